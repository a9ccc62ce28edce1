// How many contributions a core sums in switchd's own packet loop, and what the parts that cannot
// be done without cost in the same minute on the same memory: `run` puts testpmd beside it. Every
// result is looked at. Needs no rights; huge pages are used where enough are free.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/loop/loop.h"
#include "switchd/log.h"

namespace {

using namespace iswitch;
using namespace iswitch::bench;

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const unsigned members : {2u, 4u, 8u, 32u}) out.push_back({members, 1440, 1024, 1, true});
  for (const unsigned members : {2u, 4u, 8u, 32u}) out.push_back({members, 8928, 256, 1, true});
  out.push_back({4, 1440, 1024, 1, false});
  return out;
}

nlohmann::json measure(Loop& loop, unsigned slices, double seconds, bool alone) {
  nlohmann::json rounds = nlohmann::json::array();
  loop.run(seconds);  // the first rounds find their sums' memory cold
  for (unsigned i = 0; i < slices; ++i) {
    if (alone) {
      rounds.push_back({{"loop_ns", loop.run(seconds).per_contribution()}});
      continue;
    }
    rounds.push_back({{"loop_ns", loop.run(seconds).per_contribution()},
                      {"addition_ns", loop.run_additions(seconds / 2).per_contribution()},
                      {"checksum_ns", loop.run_checksums(seconds / 2).per_contribution()},
                      {"feed_ns", loop.run_feed(seconds / 2).per_contribution()},
                      {"receive_ns", loop.run_receive(seconds / 2).per_contribution()}});
  }
  return rounds;
}

/// TSC cycles a contribution: the middle one of some slices, stage by stage.
nlohmann::json stages_of(Loop& loop, double seconds) {
  constexpr std::size_t count = 5;
  std::array<std::vector<double>, count> slices;
  for (std::vector<double>& slice : slices) slice = loop.run_stages(seconds);
  nlohmann::json out = nlohmann::json::object();
  for (std::size_t s = 0; s < switchd::loop_stage_names.size(); ++s) {
    std::array<double, count> cycles{};
    for (std::size_t i = 0; i < count; ++i) cycles[i] = slices[i][s];
    std::nth_element(cycles.begin(), cycles.begin() + count / 2, cycles.end());
    out[switchd::loop_stage_names[s]] = cycles[count / 2];
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("switchd's packet loop over net_null, sums verified; JSON", "line-rate");
  unsigned slices = 10;
  double seconds = 0.03;
  std::size_t only = cases().size();
  app.add_option("--slices", slices, "of each case")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "of the loop in a slice")->check(CLI::Range(0.005, 60.0));
  app.add_option("--case", only, "this one alone, from 0")
      ->check(CLI::Range(std::size_t{0}, cases().size() - 1));
  bool huge_pages = true;
  app.add_flag("--huge-pages,!--no-huge-pages", huge_pages, "where enough are free");
  bool alone = false;
  app.add_flag("--loop-alone", alone, "without the parts (for a profiler)");
  CLI11_PARSE(app, argc, argv);

  switchd::start_log(switchd::LogLevel::warning);
  std::uint64_t largest = 0;
  for (const Case& one : cases()) largest = std::max(largest, plan_of(one).total_bytes());
  std::string error;
  const auto eal = start_eal("line-rate", largest, 1, huge_pages, error);
  nlohmann::json out{{"huge_pages", huge_pages}, {"kernels", pipeline::best_kernels().name}};
  for (std::size_t i = 0; eal && error.empty() && i < cases().size(); ++i) {
    if (only < cases().size() && i != only) continue;
    const Case one = cases()[i];
    const auto loop = Loop::create(one, static_cast<unsigned>(i), error);
    if (!loop) break;
    nlohmann::json figures{{"members", one.members},
                           {"segment_bytes", one.segment_bytes},
                           {"slots", one.slots},
                           {"transmit", one.chained ? "chained" : "copied"},
                           {"slices", measure(*loop, slices, seconds, alone)},
                           {"stages", stages_of(*loop, seconds)}};
    error = loop->verify();
    figures["results"] = loop->results();
    out["cases"].push_back(figures);
  }
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  std::printf("%s\n", out.dump(1).c_str());
  return 0;
}
