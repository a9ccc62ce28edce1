// iswitch-sim: the system in virtual time, from scenario files or from seeds alone.
// Exit code 1: a property is broken; 2: the command line or the scenario is wrong.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/sim/pcap_files.h"
#include "tools/sim/random_scenario.h"
#include "tools/sim/run.h"
#include "tools/sim/scenario_file.h"
#include "tools/sim/show.h"
#include "tools/sim/sweep.h"
#include "tools/sim/tally.h"

namespace {

using namespace iswitch;
using namespace iswitch::sim;

constexpr int broken = 1;
constexpr int wrong_call = 2;

struct Options {
  std::string file;
  std::uint64_t seed = 1;
  std::string seeds;
  double soak_seconds = 0;
  bool json = false, hashes = false, keep_going = false, no_chaos = false, no_faults = false;
  bool restarts = false;
  std::size_t trace = 60;
  unsigned threads = 0;
  std::string shape = "any", modes = "any";
  std::vector<std::string> pcap;
};

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// On a terminal a line that changes, elsewhere a line now and then.
class Progress {
 public:
  explicit Progress(std::uint64_t runs) : runs_(runs) {}
  ~Progress() {
    if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void done(const Report& report) {
    ++done_;
    operations_ += report.operations;
    const double now = clock_.seconds();
    if (now < next_) return;
    next_ = now + (terminal_ ? 0.2 : 10.0);
    shown_ = true;
    const std::string all = runs_ == 0 ? "" : " of " + std::to_string(runs_);
    std::fprintf(stderr, "%s%llu%s runs, %llu operations, seed %llu%s", terminal_ ? "\r\033[K" : "",
                 static_cast<unsigned long long>(done_), all.c_str(),
                 static_cast<unsigned long long>(operations_),
                 static_cast<unsigned long long>(report.seed), terminal_ ? "" : "\n");
  }

 private:
  std::uint64_t runs_;  // 0: not known
  std::uint64_t done_ = 0, operations_ = 0;
  Clock clock_;
  double next_ = 1;
  bool shown_ = false;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

RandomLimits limits_of(const Options& options) {
  RandomLimits limits;
  limits.chaos = !options.no_chaos;
  limits.restarts = options.restarts;
  if (options.no_faults) limits.faults = 0;
  limits.shape = options.shape == "star"   ? Shape::star
                 : options.shape == "tree" ? Shape::tree
                                           : Shape::any;
  limits.modes = options.modes == "sync"    ? Modes::sync
                 : options.modes == "async" ? Modes::async
                                            : Modes::any;
  return limits;
}

// How to see one seed again.
std::string again(const Options& options, std::uint64_t seed) {
  std::string line = "iswitch-sim ";
  if (!options.file.empty()) line += options.file + " ";
  line += "--seed " + std::to_string(seed);
  if (options.no_chaos) line += " --no-chaos";
  if (options.restarts) line += " --restarts";
  if (options.no_faults) line += " --no-faults";
  if (options.shape != "any") line += " --shape " + options.shape;
  if (options.modes != "any") line += " --modes " + options.modes;
  return line;
}

int refuse(const std::string& line) {
  std::fprintf(stderr, "iswitch-sim: %s\n", line.c_str());
  return wrong_call;
}

int run_one(const Options& options, Scenario scenario) {
  scenario.trace_records = std::max(scenario.trace_records, options.trace);
  Run run(std::move(scenario));
  PcapFiles pcap;
  if (const std::string problem = pcap.open(run, options.pcap); !problem.empty())
    return refuse(problem);
  const Clock clock;
  const Report report = run.execute(options.trace);
  const double seconds = clock.seconds();
  if (options.hashes) {
    std::printf("%llu %016llx\n", static_cast<unsigned long long>(report.seed),
                static_cast<unsigned long long>(report.hash));
  } else {
    std::fputs((options.json ? json_of(report, seconds) : table_of(report, seconds)).c_str(),
               stdout);
  }
  std::fputs(failure_of(report, again(options, report.seed)).c_str(),
             options.json ? stderr : stdout);
  if (const std::string problem = pcap.close(); !problem.empty()) return refuse(problem);
  return report.violations.empty() ? 0 : broken;
}

// Seeds [first, end), or from `first` on for a time.
int run_many(const Options& options, std::uint64_t first, std::uint64_t end,
             std::function<Scenario(std::uint64_t)> scenario) {
  SweepOptions sweeping;
  sweeping.first = first;
  sweeping.end = end;
  sweeping.threads = options.threads;
  sweeping.keep_going = options.keep_going;
  sweeping.trace_lines = options.trace;
  sweeping.scenario = std::move(scenario);
  const Clock clock;
  const bool soak = options.soak_seconds > 0;
  if (soak) sweeping.enough = [&] { return clock.seconds() >= options.soak_seconds; };
  Progress progress(soak ? 0 : end - first);
  Tally tally;
  sweeping.done = [&](const Report& report) {
    tally.add(report);
    if (options.hashes) {
      std::printf("%llu %016llx\n", static_cast<unsigned long long>(report.seed),
                  static_cast<unsigned long long>(report.hash));
    } else if (options.json) {
      std::fputs(json_of(report, 0).c_str(), stdout);
    }
    if (options.keep_going && !report.violations.empty()) {
      std::fprintf(stderr, "seed %llu: BROKEN %s\n", static_cast<unsigned long long>(report.seed),
                   report.violations.front().c_str());
    }
    progress.done(report);
  };
  const auto failure = sweep(sweeping);
  if (!options.hashes && !options.json) std::fputs(tally.table(clock.seconds()).c_str(), stdout);
  if (failure) {
    std::fputs(failure_of(*failure, again(options, failure->seed)).c_str(),
               options.json ? stderr : stdout);
  }
  return failure ? broken : 0;
}

// "A:B", both ends included; gives [A, B + 1).
std::optional<std::pair<std::uint64_t, std::uint64_t>> range_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto number = [](const std::string& digits) -> std::optional<std::uint64_t> {
    if (digits.empty() || digits.size() > 18 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      return std::nullopt;
    }
    return std::strtoull(digits.c_str(), nullptr, 10);
  };
  if (colon == std::string::npos) return std::nullopt;
  const auto first = number(text.substr(0, colon));
  const auto last = number(text.substr(colon + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return std::pair{*first, *last + 1};
}

void describe(CLI::App& app, Options& options) {
  app.add_option("scenario", options.file, "scenario file; without it a seed draws a random one")
      ->option_text("SCENARIO.json");
  app.add_option("--seed", options.seed, "of one run, or of the first one of --soak")
      ->capture_default_str();
  auto* seeds = app.add_option("--seeds", options.seeds,
                               "many runs, both ends included; stops at the first failure");
  seeds->option_text("A:B");
  app.add_option("--soak", options.soak_seconds, "runs from --seed on for so many seconds")
      ->check(CLI::PositiveNumber)
      ->excludes(seeds);
  app.add_flag("--json", options.json, "one JSON object a run, a line each");
  app.add_flag("--hashes", options.hashes, "prints each seed and the hash of its event log");
  app.add_flag("--keep-going", options.keep_going, "does not stop at a failure");
  app.add_option("--trace", options.trace,
                 "records of the event log of a run that breaks something")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "of many runs; 0: one a processor")
      ->capture_default_str();
  app.add_option("--pcap", options.pcap,
                 "LINK=FILE or a folder for all links: what crossed them, as pcapng")
      ->option_text("LINK=FILE|FOLDER");
  app.add_flag("--no-chaos", options.no_chaos, "random scenarios: nodes stay up, nobody resets");
  app.add_flag("--no-faults", options.no_faults, "random scenarios: links are clean");
  app.add_flag("--restarts", options.restarts,
               "random scenarios: switches restart in every one of them");
  app.add_option("--shape", options.shape, "random scenarios: star, tree or any")
      ->check(CLI::IsMember({"any", "star", "tree"}))
      ->capture_default_str();
  app.add_option("--modes", options.modes, "random scenarios: sync, async or any")
      ->check(CLI::IsMember({"any", "sync", "async"}))
      ->capture_default_str();
}

int run(const Options& options) {
  std::function<Scenario(std::uint64_t)> scenario;
  if (options.file.empty()) {
    scenario = [limits = limits_of(options)](std::uint64_t seed) {
      return random_scenario(seed, limits);
    };
  } else {
    LoadedScenario loaded = load_scenario(options.file);
    for (const std::string& line : loaded.errors)
      std::fprintf(stderr, "%s: %s\n", options.file.c_str(), line.c_str());
    if (!loaded.scenario) return wrong_call;
    scenario = [plan = std::move(*loaded.scenario)](std::uint64_t seed) {
      Scenario one = plan;
      one.seed = seed;
      return one;
    };
  }
  const bool many = !options.seeds.empty() || options.soak_seconds > 0;
  if (many && !options.pcap.empty()) return refuse("--pcap goes with one run (--seed)");
  if (options.soak_seconds > 0) return run_many(options, options.seed, UINT64_MAX, scenario);
  if (options.seeds.empty()) return run_one(options, scenario(options.seed));
  const auto range = range_of(options.seeds);
  if (!range) return refuse("--seeds: " + options.seeds + ": must be A:B with A not above B");
  return run_many(options, range->first, range->second, scenario);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"The system in virtual time: switches, workers and links, with faults from a seed.",
               "iswitch-sim"};
  Options options;
  describe(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : wrong_call;
  }
  return run(options);
}
