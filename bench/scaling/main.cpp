// What a contribution costs with more slots, members, jobs and lcores, in switchd's own packet loop
// with every result looked at. The cases take turns, so that a machine shared with others disturbs
// all alike. JSON; `run` makes a table of it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/loop/loop.h"
#include "switchd/log.h"

namespace {

using namespace iswitch;
using namespace iswitch::bench;

struct Row {
  const char* along;
  unsigned value;
  Case one;
};

std::vector<Row> rows(unsigned most_lcores) {
  std::vector<Row> out;
  for (const unsigned slots : {64u, 256u, 1024u, 4096u, 8192u})
    out.push_back({"slots", slots, {.members = 4, .slots = slots}});
  for (const unsigned members : {2u, 4u, 8u, 16u, 32u, 64u})
    out.push_back({"members", members, {.members = members, .slots = 1024}});
  for (const unsigned jobs : {1u, 2u, 4u, 8u, 16u})
    out.push_back({"jobs", jobs, {.members = 4, .slots = 1024 / jobs, .jobs = jobs}});
  for (unsigned lcores = 1; lcores <= most_lcores; ++lcores)
    out.push_back({"lcores", lcores, {.members = 4, .slots = 1024, .lcores = lcores}});
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("the cost of a contribution against slots, members, jobs and lcores; JSON",
               "scaling");
  unsigned rounds = 10;
  unsigned slices = 4;
  double seconds = 0.02;
  unsigned lcores = std::min(2u, std::thread::hardware_concurrency());
  app.add_option("--rounds", rounds, "through all cases")->check(CLI::Range(1, 1000));
  app.add_option("--slices", slices, "of each case in a round")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "of a slice")->check(CLI::Range(0.005, 60.0));
  app.add_option("--lcores", lcores, "at most")->check(CLI::Range(1, 8));
  bool huge_pages = true;
  app.add_flag("--huge-pages,!--no-huge-pages", huge_pages, "where enough are free");
  CLI11_PARSE(app, argc, argv);

  switchd::start_log(switchd::LogLevel::warning);
  std::uint64_t largest = 0;
  for (const Row& row : rows(lcores)) largest = std::max(largest, plan_of(row.one).total_bytes());
  std::string error;
  const auto eal = start_eal("scaling", largest, lcores, huge_pages, error);
  nlohmann::json out = nlohmann::json::array();
  for (const Row& row : rows(lcores))
    out.push_back({{"along", row.along}, {"value", row.value}, {"ns", nlohmann::json::array()}});
  unsigned number = 0;
  for (unsigned round = 0; eal && error.empty() && round < rounds; ++round) {
    for (std::size_t i = 0; error.empty() && i < out.size(); ++i) {
      const auto loop = Loop::create(rows(lcores)[i].one, number++, error);
      if (!loop) break;
      loop->run(seconds);  // the first round finds its sums' memory cold
      for (unsigned s = 0; s < slices; ++s)
        out[i]["ns"].push_back(loop->run(seconds).per_contribution());
      error = loop->verify();
    }
  }
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  std::printf("%s\n", nlohmann::json{{"huge_pages", huge_pages}, {"rows", out}}.dump(1).c_str());
  return 0;
}
