// iswitch-sim-core: runs random stars from seeds and shows what happened. Exit code 1 when a
// property is broken, 2 for a wrong command line.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tools/sim/star.h"

namespace {

using iswitch::sim::Report;

void print(const Report& report, bool all) {
  std::printf(
      "seed %llu: %llu events, %llu frames, %llu operations, %llu failed, %llu acts, hash "
      "%016llx\n",
      static_cast<unsigned long long>(report.seed), static_cast<unsigned long long>(report.events),
      static_cast<unsigned long long>(report.frames),
      static_cast<unsigned long long>(report.operations),
      static_cast<unsigned long long>(report.failures),
      static_cast<unsigned long long>(report.acts), static_cast<unsigned long long>(report.hash));
  if (all || !report.violations.empty()) {
    for (const auto& [error, count] : report.errors) {
      std::printf("  failed, %s: %llu\n", error.c_str(), static_cast<unsigned long long>(count));
    }
    for (const auto& [name, count] : report.counters) {
      if (count != 0)
        std::printf("  %s: %llu\n", name.c_str(), static_cast<unsigned long long>(count));
    }
    std::printf("  links: %llu lost, %llu overflow, %llu duplicated, %llu corrupted, %llu marked\n",
                static_cast<unsigned long long>(report.links.lost),
                static_cast<unsigned long long>(report.links.overflow),
                static_cast<unsigned long long>(report.links.duplicated),
                static_cast<unsigned long long>(report.links.corrupted),
                static_cast<unsigned long long>(report.links.marked));
  }
  if (report.violations.empty()) return;
  std::printf("%s", report.trace.c_str());
  for (const auto& line : report.violations) std::printf("BROKEN %s\n", line.c_str());
  std::printf("%llu in all; again: iswitch-sim-core --seed %llu\n",
              static_cast<unsigned long long>(report.violation_count),
              static_cast<unsigned long long>(report.seed));
}

int usage() {
  std::fprintf(stderr,
               "usage: iswitch-sim-core --seed N | --seeds A:B  [--trace LINES] [--no-chaos] "
               "[--no-faults] [--keep-going]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  unsigned long long first = 0;
  unsigned long long end = 0;
  std::size_t lines = 60;
  bool keep_going = false;
  iswitch::sim::StarLimits limits;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (option == "--no-chaos") {
      limits.chaos = false;
    } else if (option == "--no-faults") {
      limits.faults = 0;
    } else if (option == "--keep-going") {
      keep_going = true;
    } else if (option == "--seed" && value != nullptr) {
      first = std::strtoull(value, nullptr, 10);
      end = first + 1;
      ++i;
    } else if (option == "--seeds" && value != nullptr && std::strchr(value, ':') != nullptr) {
      first = std::strtoull(value, nullptr, 10);
      end = std::strtoull(std::strchr(value, ':') + 1, nullptr, 10);
      ++i;
    } else if (option == "--trace" && value != nullptr) {
      lines = std::strtoull(value, nullptr, 10);
      ++i;
    } else {
      return usage();
    }
  }
  if (end <= first) return usage();
  bool broken = false;
  for (auto seed = first; seed < end; ++seed) {
    auto scenario = iswitch::sim::random_star(seed, limits);
    scenario.trace_records = std::max(scenario.trace_records, lines);
    iswitch::sim::Run run(std::move(scenario));
    const Report report = run.execute(lines);
    print(report, end == first + 1);
    broken = broken || !report.violations.empty();
    if (broken && !keep_going) break;
  }
  return broken ? 1 : 0;
}
