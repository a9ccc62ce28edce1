// The real pipeline, control and engine under seeded trouble: no property may be broken. One seed
// again, with its trace: iswitch-sim --seed N
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tools/sim/random_scenario.h"
#include "tools/sim/run.h"

using namespace iswitch;
using namespace iswitch::sim;

namespace {

std::string text_of(const Report& report) {
  std::string out = report.trace;
  for (const auto& line : report.violations) out += "BROKEN " + line + "\n";
  return out;
}

std::uint64_t seeds_wanted() {
  const char* text = std::getenv("ISWITCH_SIM_SEEDS");
  return text == nullptr ? 120 : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("the same seed gives the same run", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    const Report one = Run(random_scenario(seed)).execute();
    const Report two = Run(random_scenario(seed)).execute();
    CHECK(one.hash == two.hash);
    CHECK(one.events == two.events);
    CHECK(one.operations == two.operations);
    CHECK(one.hash != Run(random_scenario(seed + 1000)).execute().hash);
  }
}

TEST_CASE("switches restart in every scenario and nothing is lost", "[sim]") {
  RandomLimits limits;
  limits.restarts = true;
  std::uint64_t operations = 0;
  std::uint64_t resumes = 0;
  std::uint64_t handed_back = 0;
  const std::uint64_t seeds = seeds_wanted() / 2;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Report report = Run(random_scenario(seed, limits)).execute();
    INFO("seed " << seed << "; again with: iswitch-sim --restarts --seed " << seed);
    INFO(text_of(report));
    REQUIRE(report.violations.empty());
    CHECK(std::any_of(report.switches.begin(), report.switches.end(),
                      [](const auto& node) { return node.starts > 1; }));
    operations += report.operations;
    resumes += report.resumes;
    handed_back += report.handed_back;
  }
  CHECK(operations > 50 * seeds);
  CHECK(resumes > 5 * seeds);
  CHECK(handed_back > 5 * seeds);
}

TEST_CASE("random scenarios under faults break no property", "[sim]") {
  std::uint64_t operations = 0;
  std::uint64_t failures = 0;
  std::uint64_t acts = 0;
  std::uint64_t updates = 0;
  std::uint64_t catch_ups = 0;
  std::uint64_t trees = 0;
  LinkCounters links;
  const std::uint64_t seeds = seeds_wanted();
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Report report = Run(random_scenario(seed)).execute();
    INFO("seed " << seed << "; again with: iswitch-sim --seed " << seed);
    INFO(text_of(report));
    REQUIRE(report.violations.empty());
    operations += report.operations;
    failures += report.failures;
    acts += report.acts;
    trees += report.switches.size() > 1 ? 1 : 0;
    for (const auto& job : report.jobs) {
      updates += job.updates;
      catch_ups += job.catch_ups;
    }
    add(links, report.links);
  }
  // The faults happened, and most of the work got done in spite of them.
  CHECK(operations > 50 * seeds);
  CHECK(failures > 0);
  CHECK(acts > seeds);
  CHECK(updates > 50 * seeds);
  CHECK(catch_ups > 0);
  CHECK(trees > seeds / 3);
  CHECK(trees < seeds);
  CHECK(links.lost > seeds);
  CHECK(links.duplicated > seeds);
  CHECK(links.corrupted > seeds);
  CHECK(links.reordered > seeds);
  CHECK(links.marked > 0);
}

// All workers lacked an update that one of them had had, and took each other's weights for ever.
TEST_CASE("weights that lack what is gone are no help", "[sim]") {
  for (const std::uint64_t seed : {567U, 20900U}) {
    const Report report = Run(random_scenario(seed)).execute();
    INFO("seed " << seed << "; again with: iswitch-sim --seed " << seed);
    INFO(text_of(report));
    CHECK(report.violations.empty());
  }
}
