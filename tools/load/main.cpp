// iswitch-load: emulated workers against whatever speaks the protocol.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/load/run.h"
#include "tools/program.h"
#include "wire/key_file.h"

namespace {

using namespace iswitch;
using load::Histogram;
using load::Outcome;

enum ExitCode { ok = 0, machine = 1, usage = 2, not_joined = 3, not_reduced = 4, wrong_sums = 5 };

constexpr const char* footer =
    "Every sum is checked: gradients are integers whose sum is known.\n"
    "Latencies: of segments from the first sending of a contribution to its result, and of "
    "operations from when they were due.\n\n"
    "Exit codes: 0 done; 1 the machine or the device refuses; 2 wrong use; 3 the job could not be "
    "joined; 4 an operation failed; 5 sums were wrong.\n";

struct Settings {
  std::string switch_address, local_address, key_file;
  std::uint16_t job = 1, workers = 2;
  std::uint64_t size = 0, segments = 0;
  unsigned outstanding = 2;
  double seconds = 5, rate = 0, timeout = 10;
  std::vector<std::string> devices;
  bool json = false;
};

int fail(ExitCode code, const std::string& line) {
  std::fprintf(stderr, "iswitch-load: %s\n", line.c_str());
  return code;
}

void add_options(CLI::App& app, Settings& settings) {
  app.footer(footer);
  app.add_option("--switch", settings.switch_address, "IPv4 of the switch, or IPv4:port")
      ->envname("ISWITCH_SWITCH")
      ->required();
  app.add_option("--job", settings.job, "job id, of a synchronous job (default: 1)");
  app.add_option("--workers", settings.workers, "members to be; all that the job has (default: 2)")
      ->check(CLI::Range(1, 64));
  auto* size = app.add_option("--size", settings.size, "bytes of each all-reduce")
                   ->check(CLI::Range(std::uint64_t{4}, std::uint64_t{1} << 32));
  app.add_option("--segments", settings.segments,
                 "segments of each all-reduce (default: 256, and 1 with --rate)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 24))
      ->excludes(size);
  app.add_option("--outstanding", settings.outstanding,
                 "all-reduces of a worker at a time (default: 2, and 64 with --rate)")
      ->check(CLI::Range(1u, 4096u));
  app.add_option("--seconds", settings.seconds, "how long (default: 5)")
      ->check(CLI::Range(0.01, 1e6));
  app.add_option("--rate", settings.rate,
                 "segments a second of every worker; the switch gets so many contributions times "
                 "--workers (default: as fast as it goes)")
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--device", settings.devices,
                 "DPDK device instead of kernel UDP, such as "
                 "net_memif0,socket=/run/iswitch/memif.sock,id=0; several times: the workers are "
                 "spread over them")
      ->allow_extra_args(false);
  app.add_option("--local-address", settings.local_address,
                 "IPv4 to bind; with --device the first device's, the next ones follow");
  app.add_option("--key-file", settings.key_file, "the job's key, mode 0600")
      ->envname("ISWITCH_KEY_FILE");
  app.add_option("--timeout", settings.timeout, "seconds for joining, and for each all-reduce")
      ->check(CLI::Range(0.001, 1e6));
  app.add_flag("--json", settings.json, "figures as one JSON object");
}

nlohmann::json latencies(const Histogram& histogram) {
  const auto us = [](std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; };
  return {{"count", histogram.count()},          {"mean", histogram.mean() / 1e3},
          {"p50", us(histogram.quantile(0.5))},  {"p90", us(histogram.quantile(0.9))},
          {"p99", us(histogram.quantile(0.99))}, {"p999", us(histogram.quantile(0.999))},
          {"max", us(histogram.largest())}};
}

/// Contributions a second that were summed, of all workers.
double contribution_rate(const load::Report& report, const load::RunOptions& options) {
  if (report.seconds <= 0) return 0;
  return static_cast<double>(report.operations * report.operation_segments) * options.link.workers /
         report.seconds;
}

void print_json(const load::Report& report, const load::RunOptions& options) {
  const double rate = contribution_rate(report, options);
  const double gradient =
      static_cast<double>(report.operations) * static_cast<double>(report.operation_bytes);
  const nlohmann::json figures = {
      {"job", options.job},
      {"workers", options.link.workers},
      {"devices", options.link.devices},
      {"segment_bytes", report.segment_bytes},
      {"operation_bytes", report.operation_bytes},
      {"operation_segments", report.operation_segments},
      {"seconds", report.seconds},
      {"cpu_seconds", report.cpu_seconds},
      {"rate_wanted", options.rate},
      {"operations", report.operations},
      {"operations_late", report.late},
      {"contributions_per_second", rate},
      {"goodput_bytes_per_second", report.seconds > 0 ? gradient / report.seconds : 0},
      {"contributions_sent", report.contributions},
      {"retransmissions", report.retransmissions},
      {"duplicate_results", report.duplicate_results},
      {"segment_latency_us", latencies(report.tally.segments)},
      {"operation_latency_us", latencies(report.tally.operations)},
      {"elements_checked", report.tally.elements_checked},
      {"elements_wrong", report.tally.elements_wrong},
      {"problem", report.problem},
  };
  std::printf("%s\n", figures.dump().c_str());
}

void print_latency(const char* name, const Histogram& histogram) {
  std::printf("%s latency  p50 %.1f us  p99 %.1f us  p99.9 %.1f us  max %.1f us  (%llu)\n", name,
              static_cast<double>(histogram.quantile(0.5)) / 1e3,
              static_cast<double>(histogram.quantile(0.99)) / 1e3,
              static_cast<double>(histogram.quantile(0.999)) / 1e3,
              static_cast<double>(histogram.largest()) / 1e3,
              static_cast<unsigned long long>(histogram.count()));
}

void print_text(const load::Report& report, const load::RunOptions& options) {
  const double rate = contribution_rate(report, options);
  const double goodput = report.seconds <= 0
                             ? 0
                             : static_cast<double>(report.operations) *
                                   static_cast<double>(report.operation_bytes) / report.seconds;
  std::printf(
      "%u workers, %llu all-reduces of %llu bytes in %.2f s\n"
      "%.3f M contributions/s, %.2f Gb/s of gradient into the switch, %.1f MB/s reduced\n"
      "%llu contributions sent, %llu of them again; %llu elements checked, %llu wrong; %.2f s of "
      "CPU\n",
      options.link.workers, static_cast<unsigned long long>(report.operations),
      static_cast<unsigned long long>(report.operation_bytes), report.seconds, rate / 1e6,
      goodput * options.link.workers * 8 / 1e9, goodput / 1e6,
      static_cast<unsigned long long>(report.contributions),
      static_cast<unsigned long long>(report.retransmissions),
      static_cast<unsigned long long>(report.tally.elements_checked),
      static_cast<unsigned long long>(report.tally.elements_wrong), report.cpu_seconds);
  if (report.late != 0) {
    std::printf("the rate was not kept: %llu operations were late\n",
                static_cast<unsigned long long>(report.late));
  }
  print_latency("segment  ", report.tally.segments);
  print_latency("operation", report.tally.operations);
}

ExitCode exit_code(Outcome outcome) {
  switch (outcome) {
    case Outcome::good:
      return ok;
    case Outcome::unusable:
      return machine;
    case Outcome::not_joined:
      return not_joined;
    case Outcome::failed:
      return not_reduced;
    case Outcome::wrong_sums:
      return wrong_sums;
  }
  return machine;
}

/// Empty, or what is wrong with them.
std::string convert(const Settings& settings, load::RunOptions& options) {
  const auto address = agent::parse_switch_address(settings.switch_address);
  if (!address) {
    return "switch address '" + settings.switch_address +
           "' is neither an IPv4 address nor IPv4:port, such as 10.77.0.254 or 10.77.0.254:17170";
  }
  options.link.switch_ip = address->ip;
  options.link.switch_port = address->port;
  if (!settings.local_address.empty()) {
    const auto local = wire::parse_ipv4(settings.local_address);
    if (!local) return "local address '" + settings.local_address + "' is not an IPv4 address";
    options.link.local_ip = *local;
  } else if (!settings.devices.empty()) {
    return "--device needs --local-address: an IPv4 of the switch's network that nobody else has";
  }
  if (!settings.key_file.empty()) {
    const std::string problem = wire::read_key_file(settings.key_file, options.key);
    if (!problem.empty()) return "key file " + settings.key_file + " " + problem;
  }
  const bool paced = settings.rate > 0;
  options.link.workers = settings.workers;
  options.link.devices = settings.devices;
  options.job = settings.job;
  options.bytes = settings.size;
  options.segments = settings.segments;
  if (settings.size == 0 && settings.segments == 0) options.segments = paced ? 1 : 256;
  options.outstanding = settings.outstanding != 0 ? settings.outstanding : paced ? 64 : 2;
  options.seconds = settings.seconds;
  options.rate = settings.rate;
  const auto timeout = static_cast<Time>(settings.timeout * 1e9);
  options.join_timeout = options.operation_timeout = options.link.patience = timeout;
  return {};
}

int run(const Settings& settings) {
  load::RunOptions options;
  if (const std::string problem = convert(settings, options); !problem.empty())
    return fail(usage, problem);
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  }
  const load::Report report = load::run(options);
  if (report.operations != 0 || report.outcome == Outcome::good) {
    if (settings.json) {
      print_json(report, options);
    } else {
      print_text(report, options);
    }
  }
  return report.outcome == Outcome::good ? ok : fail(exit_code(report.outcome), report.problem);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.outstanding = 0;
  CLI::App app("Emulates 1 to 64 workers of an iSwitch, and checks every sum.", "iswitch-load");
  add_options(app, settings);
  return iswitch::run_program(app, argc, argv, [&] { return run(settings); });
}
