// iswitch-rl-worker: one worker of a training run. See README.md.
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string_view>

#include "tools/rl/algorithms/registry.h"
#include "tools/rl/environments/registry.h"
#include "tools/rl/exchanges/registry.h"
#include "tools/rl/worker/run.h"

namespace {

using iswitch::rl::Failure;
using iswitch::rl::FailureKind;
using iswitch::rl::WorkerOptions;

void on_signal(int) { iswitch::rl::stop_soon(); }

/// A second signal ends the process at once.
void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct Flags {
  WorkerOptions options;
  int rank = -1;
  std::string member;
  double timeout_seconds = 30.0, join_seconds = 60.0, resume_seconds = 10.0;
};

void declare(CLI::App& app, Flags& flags) {
  WorkerOptions& options = flags.options;
  app.add_option("--algorithm", options.algorithm, "one of: " + iswitch::rl::algorithm_names())
      ->capture_default_str();
  app.add_option("--environment", options.environment,
                 "one of: " + iswitch::rl::environment_names())
      ->capture_default_str();
  app.add_option("--exchange", options.exchange, "one of: " + iswitch::rl::exchange_names())
      ->capture_default_str();
  app.add_option("--set", options.set, "a parameter of the algorithm, name=value; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--seed", options.seed, "the same on all workers")->capture_default_str();
  app.add_option("--seconds", options.seconds, "train this long; 0: no bound")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--iterations", options.iterations, "train this many iterations; 0: no bound");
  app.add_option("--print-every", options.print_every, "seconds between rows; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--progress", options.progress_file, "one JSON object an iteration; -: stdout");
  app.add_option("--json", options.figures_file, "the run's figures, at the end");

  app.add_option("--switch", options.network.switch_address, "the switch's IPv4, or IPv4:port")
      ->envname("ISWITCH_SWITCH");
  app.add_option("--job", options.network.job, "its job")->capture_default_str();
  app.add_option("--rank", flags.rank, "number in the whole job; none: the switch chooses")
      ->check(CLI::Range(0, 65534))
      ->envname("RANK");
  app.add_option("--member", flags.member,
                 "wanted member id at the switch, or any: where that has only a part of the job; "
                 "needs --rank and --size")
      ->check(CLI::Range(0, 63) | CLI::IsMember({"any"}));
  app.add_option("--size", options.expected_size, "workers that the job must have")
      ->envname("WORLD_SIZE");
  app.add_option("--local-address", options.network.local_address, "IPv4 to send from");
  app.add_option(
      "--local-port", options.network.local_port,
      "UDP port to send from: a worker restarted with the same one takes its place at once");
  app.add_option("--key-file", options.network.key_file, "the job's key")
      ->envname("ISWITCH_KEY_FILE");
  app.add_option("--peers", options.network.peers,
                 "iswitch-async: IPv4:port of every worker by rank, separated by commas, where "
                 "workers give their weights to each other; this worker listens on its own")
      ->delimiter(',');
  app.add_option("--staleness", options.network.max_staleness,
                 "iswitch-async: gradients that are more updates old are dropped")
      ->check(CLI::Range(0U, 1'000'000U))
      ->capture_default_str();
  app.add_option("--in-flight", options.network.pushes_in_flight,
                 "iswitch-async: gradients under way at a time")
      ->check(CLI::Range(1U, 64U))
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout_seconds,
                 "seconds after which an exchange fails and names who is missing")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--resume-within", flags.resume_seconds,
                 "seconds to wait for a switch that restarts; 0: the training ends")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--join-timeout", flags.join_seconds, "seconds to wait for all workers")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(seconds * 1000.0));
}

Failure run(Flags flags) {
  WorkerOptions& options = flags.options;
  options.network.timeout = milliseconds(flags.timeout_seconds);
  options.network.join_timeout = milliseconds(flags.join_seconds);
  options.network.resume_within = milliseconds(flags.resume_seconds);
  if (flags.rank >= 0) options.network.rank = static_cast<std::uint16_t>(flags.rank);
  if (!flags.member.empty()) {
    if (flags.rank < 0 || options.expected_size == 0)
      return {FailureKind::usage, "--member needs --rank and --size, which are the whole job's"};
    options.network.member = flags.member == "any"
                                 ? iswitch::any_member
                                 : static_cast<std::uint16_t>(std::stoi(flags.member));
  }
  if (options.exchange != "local" && options.network.switch_address.empty())
    return {FailureKind::usage, "no switch: give --switch ADDRESS or set ISWITCH_SWITCH"};
  return run_worker(options);
}

int run_from_command_line(int count, char** arguments) {
  CLI::App app("One worker of a training run over an iSwitch.", "iswitch-rl-worker");
  Flags flags;
  declare(app, flags);
  try {
    app.parse(count, arguments);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "iswitch-rl-worker: %s (see --help)\n", error.what());
    return static_cast<int>(FailureKind::usage);
  }
  stop_on_signals();
  const Failure failure = run(flags);
  if (!failure) return 0;
  std::fprintf(stderr, "iswitch-rl-worker: %s\n", failure.text.c_str());
  return static_cast<int>(failure.kind);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run_from_command_line(count, arguments);
  } catch (const std::exception& error) {
    // libtorch and the standard library report this way; libtorch's text goes on with a stack.
    const std::string_view text(error.what());
    const auto line = text.substr(0, text.find('\n'));
    std::fprintf(stderr, "iswitch-rl-worker: %.*s\n", static_cast<int>(line.size()), line.data());
    return static_cast<int>(FailureKind::machine);
  }
}
