// Scenario files: what is wrong is told at its place, what is right becomes the scenario it says.
#include <catch2/catch.hpp>

#include "tools/sim/scenario_file.h"
#include "tools/sim/sweep.h"

using namespace iswitch;
using namespace iswitch::sim;

namespace {

std::string all(const std::vector<std::string>& lines) {
  std::string out;
  for (const auto& line : lines) out += line + "\n";
  return out;
}

// A scenario around this topology and these members of its job.
std::string around(const std::string& topology, const std::string& job = "") {
  return R"({"topology": )" + topology + R"(, "jobs": [{"id": 1)" + job + "}]}";
}

}  // namespace

TEST_CASE("what is wrong with a scenario is told at its place", "[sim][scenario]") {
  struct Case {
    const char* name;
    std::string text;
    const char* error;  // the only one
  };
  const std::string two = R"({"switches": [{"name": "a"}, {"name": "b"}], "workers":
      [{"name": "x", "switch": "a"}, {"name": "y", "switch": "b"}]})";
  const Case cases[] = {
      {"a loop",
       around(R"({"switches": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
                  "workers": [{"name": "x", "switch": "a"}]})"),
       "/topology/switches/1/parent: \"a\": closes a loop: switches must be in a tree"},
      {"its own parent", around(R"({"switches": [{"name": "a", "parent": "a"}],
                  "workers": [{"name": "x", "switch": "a"}]})"),
       "/topology/switches/0/parent: \"a\": closes a loop: switches must be in a tree"},
      {"an unknown parent",
       around(R"({"switches": [{"name": "a", "parent": "c"}], "workers": []})"),
       "/topology/switches/0/parent: \"c\": is no switch of this scenario"},
      {"an unknown switch",
       around(R"({"switches": [{"name": "a"}], "workers": [{"name": "x", "switch": "c"}]})"),
       "/topology/workers/0/switch: \"c\": is no switch of this scenario"},
      {"a worker without a switch",
       around(R"({"switches": [{"name": "a"}], "workers": [{"name": "x"}]})"),
       "/topology/workers/0/switch: is missing: without one no switch can be reached"},
      {"workers that cannot reach each other", around(two),
       "/topology: \"y\": cannot reach the other workers of its job: their switches have no root "
       "in common"},
      {"a negative rate",
       R"({"topology": {"tiers": [2]}, "links": {"rate_gbps": -1}, "jobs": [{"id": 1}]})",
       "/links/rate_gbps: -1: must be a number from 0.0 to 1000000.0"},
      {"a probability above 1",
       R"({"topology": {"tiers": [2]}, "links": {"loss": 1.5}, "jobs": [{"id": 1}]})",
       "/links/loss: 1.5: must be a number from 0.0 to 1.0"},
      {"a vector longer than the slots",
       around(R"({"tiers": [2]})",
              R"(, "mode": "async", "slots": 4, "workload": {"elements": 2000})"),
       "/jobs/0/workload/elements: 2000: is longer than an asynchronous job's slots hold: slots x "
       "segment_bytes / 4 = 1440 floats"},
      {"an unknown fault's node",
       R"({"topology": {"tiers": [2]}, "jobs": [{"id": 1}],
           "faults": [{"what": "crash", "node": "w9", "at_ms": 1, "for_ms": 2}]})",
       "/faults/0/node: \"w9\": is no node of this scenario"},
      {"a key given twice",
       R"({"topology": {"tiers": [2]}, "topology": {"tiers": [2]}, "jobs": [{"id": 1}]})",
       "/topology: is given twice"},
      {"too many members", around(R"({"tiers": [65]})"),
       "/topology/tiers: [65]: must be an array of 1 to 8 fan-outs, each from 1 to 64; the last "
       "one counts the workers of each job at a leaf"},
      {"two jobs with one id", R"({"topology": {"tiers": [2]}, "jobs": [{"id": 1}, {"id": 1}]})",
       "/jobs/1/id: 1: is another job's id too"},
      {"two nodes with one name",
       around(R"({"switches": [{"name": "a"}], "workers": [{"name": "a", "switch": "a"}]})"),
       "/topology/workers/0/name: \"a\": must be a name of its own, a text of 1 to 32 bytes"},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const LoadedScenario loaded = parse_scenario(c.text);
    CHECK_FALSE(loaded.scenario.has_value());
    INFO(all(loaded.errors));
    REQUIRE(loaded.errors.size() == 1);
    CHECK(loaded.errors[0] == c.error);
  }
  CHECK(parse_scenario("{").errors.at(0).rfind("not JSON: ", 0) == 0);
  CHECK(parse_scenario("[]").errors.size() == 1);
  CHECK(parse_scenario("").errors.size() == 1);
  const auto unknown =
      parse_scenario(R"({"topology": {"tiers": [2]}, "jobs": [{"id": 1, "slot": 3}], "seed": 1})");
  INFO(all(unknown.errors));
  CHECK(unknown.errors.size() == 2);
}

TEST_CASE("tiers are a tree with workers at its leaves", "[sim][scenario]") {
  const auto loaded = parse_scenario(R"({"topology": {"tiers": [2, 3, 4]},
      "links": {"rate_gbps": 25, "delay_us": 2}, "trunks": {"rate_gbps": 100},
      "jobs": [{"id": 7, "workload": {"elements": 100, "operations": 2}}]})");
  INFO(all(loaded.errors));
  REQUIRE(loaded.scenario);
  const Scenario& scenario = *loaded.scenario;
  REQUIRE(scenario.switches.size() == 1 + 2 + 6);
  REQUIRE(scenario.hosts.size() == 24);
  CHECK(scenario.switches[8].parent == 2U);
  CHECK(scenario.switches[8].cable.up.bits_per_second == 100'000'000'000);
  CHECK(scenario.switches[8].cable.up.delay == 2 * microsecond);
  CHECK(scenario.hosts[0].cable.down.bits_per_second == 25'000'000'000);
  CHECK(scenario.hosts[23].rank == 23);
  CHECK(jobs_at(scenario, 0).at(0).members == 2);
  CHECK(jobs_at(scenario, 1).at(0).members == 3);
  CHECK(jobs_at(scenario, 8).at(0).members == 4);
}

TEST_CASE("a sweep tells every seed in order and stops at the first failure", "[sim][scenario]") {
  const auto loaded = parse_scenario(
      around(R"({"tiers": [2]})", R"(, "workload": {"elements": [1, 3000], "operations": 10})"));
  REQUIRE(loaded.scenario);
  SweepOptions options;
  options.first = 1;
  options.end = 31;
  options.threads = 3;
  options.scenario = [&](std::uint64_t seed) {
    Scenario scenario = *loaded.scenario;
    scenario.seed = seed;
    if (seed == 12 || seed == 14) scenario.switches[0].node.bug = SwitchBug::keep_buffer;
    return scenario;
  };
  std::vector<std::uint64_t> seeds;
  options.done = [&](const Report& report) { seeds.push_back(report.seed); };
  const auto failure = sweep(options);
  REQUIRE(failure);
  CHECK(failure->seed == 12);
  CHECK_FALSE(failure->trace.empty());
  REQUIRE(seeds.size() == 12);
  for (std::size_t i = 0; i < seeds.size(); ++i) CHECK(seeds[i] == i + 1);
}
