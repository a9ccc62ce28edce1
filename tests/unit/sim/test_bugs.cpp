// Each checker is shown to bite: one bug is planted, and the property it breaks is seen broken. The
// same run without the bug is clean.
#include <catch2/catch.hpp>

#include "tools/sim/star.h"

using namespace iswitch;
using namespace iswitch::sim;

namespace {

std::string lines_of(const Report& report) {
  std::string out;
  for (const auto& line : report.violations) out += line + "\n";
  return out;
}

Scenario two_jobs(std::uint64_t seed) {
  Scenario scenario = quiet_star(seed, 4);
  Scenario other = quiet_star(seed, 3);
  scenario.jobs.push_back(other.jobs[0]);
  scenario.jobs[1].config.id = 2;
  for (auto& host : other.hosts) {
    host.job = 1;
    host.host.name = "b" + host.host.name;
    host.host.endpoint.mac.bytes[4] = 9;
    host.host.endpoint.ip.value += 100;
    scenario.hosts.push_back(host);
  }
  return scenario;
}

Report run_with(SwitchBug bug, std::uint64_t seed) {
  Scenario scenario = two_jobs(seed);
  scenario.node.bug = bug;
  scenario.probe = 500 * millisecond;
  return Run(std::move(scenario)).execute();
}

}  // namespace

TEST_CASE("a quiet run breaks nothing and does work", "[sim]") {
  const Report report = run_with(SwitchBug::none, 1);
  INFO(lines_of(report));
  CHECK(report.violations.empty());
  CHECK(report.failures == 0);
  CHECK(report.operations > 500);
  CHECK(report.elements > 100'000);
}

TEST_CASE("planted in the switch: a bug is caught", "[sim]") {
  struct Case {
    const char* name;
    SwitchBug bug;
    const char* property;
  };
  const Case cases[] = {
      {"forget a member", SwitchBug::forget_member, property::recovery},
      {"add a contribution twice", SwitchBug::add_twice, property::exact_sum},
      {"add another job's contribution", SwitchBug::swap_job, property::exact_sum},
      {"other bits for one member", SwitchBug::wrong_bits, property::same_bits},
      {"lose a frame uncounted", SwitchBug::lose_frame, property::counters},
      {"write a shared buffer", SwitchBug::shared_buffer, "buffers"},
      {"keep a buffer", SwitchBug::keep_buffer, property::outstanding},
  };
  for (const Case& c : cases) {
    INFO("planted: " << c.name);
    const Report report = run_with(c.bug, 1);
    INFO(lines_of(report));
    CHECK(report.broken(c.property));
  }
}

TEST_CASE("planted in a link: corruption behind the checksum is caught", "[sim]") {
  Scenario scenario = quiet_star(2, 4);
  for (auto& host : scenario.hosts) {
    host.up.faults.corrupt = 0.01;
    host.up.faults.reseal = true;
  }
  const Report report = Run(std::move(scenario)).execute();
  CHECK(report.broken(property::exact_sum));
}

TEST_CASE("planted in a host: sleeping through a deadline is caught", "[sim]") {
  Scenario scenario = quiet_star(3, 2);
  scenario.hosts[1].host.bug = HostBug::sleep_late;
  for (auto& host : scenario.hosts) host.down.faults.loss = 0.3;
  scenario.trouble = 5 * second;
  const Report report = Run(std::move(scenario)).execute();
  CHECK(report.broken(property::deadline));
}
