// One rank of an all-reduce from the shell: raw little-endian float32 in, the sum over all members
// of the job out.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "iswitch.h"
#include "iswitch/agent.h"
#include "tools/program.h"

namespace {

enum ExitCode { ok = 0, machine = 1, usage = 2, not_joined = 3, not_reduced = 4 };

constexpr const char* footer =
    "Every rank runs this with the same number of floats. --input and --output take - for stdin "
    "and "
    "stdout.\n\n"
    "Exit codes: 0 done; 1 a file cannot be read or written; 2 wrong use (arguments, environment, "
    "an "
    "input that is not float32, a job of another size); 3 the job could not be joined; 4 the "
    "all-reduce failed.\n";

struct Settings {
  std::string input = "-", output = "-";
  std::string switch_address, local_address, key_file, device;
  std::uint16_t job = 1, local_port = 0;
  std::optional<std::uint16_t> rank, size;
  std::string member;
  bool mean = false, json = false;
  unsigned repeat = 1;
  double timeout_seconds = 30, resume_within_seconds = 10;
  std::uint32_t tag = 0;
};

int fail(ExitCode code, const std::string& line) {
  std::fprintf(stderr, "iswitch-allreduce: %s\n", line.c_str());
  return code;
}

std::string errno_text() { return std::generic_category().message(errno); }

/// A file descriptor for a name or for "-"; closes what it opened.
class Stream {
 public:
  Stream(const std::string& name, int standard, int flags)
      : standard_(name == "-"),
        fd_(standard_ ? standard : open(name.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Stream() { static_cast<void>(close_checked()); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  int fd() const { return fd_; }
  /// Disks that are full may say so only now.
  bool close_checked() {
    const int fd = std::exchange(fd_, -1);
    return standard_ || fd < 0 || close(fd) == 0;
  }

 private:
  bool standard_;
  int fd_;
};

/// Empty when all is well, else what went wrong.
std::string read_all(const std::string& name, std::vector<char>& bytes) {
  const Stream stream(name, STDIN_FILENO, O_RDONLY);
  if (stream.fd() < 0) return "cannot open input " + name + ": " + errno_text();
  constexpr std::size_t chunk = 1u << 20;
  std::size_t size = 0;
  while (true) {
    bytes.resize(size + chunk);
    const ssize_t count = read(stream.fd(), bytes.data() + size, chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return "cannot read input " + name + ": " + errno_text();
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  bytes.resize(size);
  return {};
}

std::string write_all(const std::string& name, const char* bytes, std::size_t size) {
  Stream stream(name, STDOUT_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
  if (stream.fd() < 0) return "cannot open output " + name + ": " + errno_text();
  while (size > 0) {
    const ssize_t count = write(stream.fd(), bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return "cannot write output " + name + ": " + errno_text();
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
  if (!stream.close_checked()) return "cannot write output " + name + ": " + errno_text();
  return {};
}

void add_options(CLI::App& app, Settings& settings) {
  app.footer(footer);
  app.add_option("--input", settings.input, "this rank's float32 vector (default: stdin)");
  app.add_option("--output", settings.output, "where the result goes (default: stdout)");
  app.add_option("--switch", settings.switch_address, "IPv4 of the switch, or IPv4:port")
      ->envname("ISWITCH_SWITCH")
      ->required();
  app.add_option("--job", settings.job, "job id (default: 1)");
  app.add_option("--rank", settings.rank, "this rank's number in the whole job (default: any)")
      ->envname("RANK");
  app.add_option("--member", settings.member,
                 "wanted member id at the switch, or any; give it behind one of several switches, "
                 "where it is not the rank (--size is then that of the whole job)")
      ->check([](const std::string& text) {
        const bool number = !text.empty() && text.size() <= 2 &&
                            text.find_first_not_of("0123456789") == std::string::npos;
        return text == "any" || (number && std::stoi(text) < 64) ? std::string()
                                                                 : "neither 0 to 63 nor any";
      });
  app.add_option("--size", settings.size, "members that the job must have")->envname("WORLD_SIZE");
  app.add_option("--key-file", settings.key_file, "the job's key, mode 0600")
      ->envname("ISWITCH_KEY_FILE");
  app.add_option("--local-address", settings.local_address, "IPv4 to bind (default: by route)");
  app.add_option("--device", settings.device,
                 "DPDK device instead of kernel UDP, such as "
                 "net_memif0,socket=/run/iswitch/memif.sock,id=2; needs --local-address")
      ->envname("ISWITCH_DEVICE");
  app.add_option("--local-port", settings.local_port, "UDP port to bind (default: any)");
  app.add_flag("--mean", settings.mean, "divide by the number of workers");
  app.add_option("--repeat", settings.repeat, "all-reduce the same input so often")
      ->check(CLI::Range(1u, 1'000'000'000u));
  app.add_option("--timeout", settings.timeout_seconds,
                 "seconds for joining, and for each all-reduce")
      ->check(CLI::Range(0.001, 1e6));
  app.add_option(
         "--resume-within", settings.resume_within_seconds,
         "seconds to wait for a switch that restarts (default: 10); 0: the all-reduce fails")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--tag", settings.tag, "must be equal on all ranks");
  app.add_flag("--json", settings.json,
               "figures as one JSON object on stdout (needs --output FILE)");
}

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Of so many operations, the last ones, the median is taken: memory stays flat in long runs.
constexpr std::size_t remembered = std::size_t{1} << 16;

void print_figures(const iswitch::Agent& agent, std::size_t bytes, unsigned repeat,
                   std::vector<double> seconds, double total, bool partial,
                   std::uint32_t smallest_workers) {
  std::sort(seconds.begin(), seconds.end());
  const iswitch::AgentStatistics statistics = agent.statistics();
  const double moved = static_cast<double>(bytes) * static_cast<double>(repeat);
  const nlohmann::json figures = {
      {"rank", agent.rank()},
      {"member", agent.member()},
      {"size", agent.size()},
      {"bytes", bytes},
      {"repeat", repeat},
      {"seconds", total},
      {"median_seconds", seconds[seconds.size() / 2]},
      {"goodput_bytes_per_second", total > 0 ? moved / total : 0.0},
      {"contributions_sent", statistics.contributions_sent},
      {"retransmissions", statistics.retransmissions},
      {"results", statistics.results},
      {"duplicate_results", statistics.duplicate_results},
      {"window_bytes", statistics.window_bytes},
      {"smoothed_rtt_us", static_cast<double>(statistics.smoothed_rtt.count()) / 1e3},
      {"send_calls", statistics.send_calls},
      {"receive_calls", statistics.receive_calls},
      {"resets", statistics.resets},
      {"resumes", statistics.resumes},
      {"partial", partial},
      {"smallest_workers", smallest_workers},
  };
  std::printf("%s\n", figures.dump().c_str());
}

/// Waits until the job has all its members: after a leave or an eviction a job runs with fewer, and
/// a sum without somebody is not what --size asks for.
bool wait_for_members(iswitch::Agent& agent, std::uint16_t size,
                      std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (agent.size() < size) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    agent.progress(std::chrono::milliseconds{20});
  }
  return true;
}

/// A sum of fewer than all: by a lowered threshold, or because somebody left in the middle. The
/// switch says how many members there are in its answer to the next Ping, one a second.
bool fewer_by_design(iswitch::Agent& agent, std::uint32_t workers, std::uint16_t size) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (agent.size() == size && agent.threshold() > workers &&
         std::chrono::steady_clock::now() < deadline) {
    agent.progress(std::chrono::milliseconds{20});
  }
  return agent.size() == size;
}

int run(const Settings& settings) {
  if (settings.json && settings.output == "-") {
    return fail(usage, "--json writes to stdout, where the result would go: give --output FILE");
  }
  if (settings.size && settings.rank && *settings.rank >= *settings.size) {
    return fail(usage, "rank " + std::to_string(*settings.rank) + " is not below the size " +
                           std::to_string(*settings.size));
  }
  std::vector<char> bytes;
  if (const std::string problem = read_all(settings.input, bytes); !problem.empty()) {
    return fail(machine, problem);
  }
  if (bytes.size() % sizeof(float) != 0) {
    return fail(usage, "input " + settings.input + " has " + std::to_string(bytes.size()) +
                           " bytes, which is no multiple of 4: it must hold raw float32 values");
  }
  std::vector<float> input(bytes.size() / sizeof(float));
  if (!input.empty()) std::memcpy(input.data(), bytes.data(), bytes.size());

  const std::chrono::milliseconds timeout(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(settings.timeout_seconds * 1e3)));
  iswitch::AgentOptions options;
  options.switch_address = settings.switch_address;
  options.job = settings.job;
  options.rank = settings.rank;
  const bool whole = settings.member.empty();  // one switch has the whole job
  if (!whole)
    options.member = settings.member == "any"
                         ? iswitch::any_member
                         : static_cast<std::uint16_t>(std::stoi(settings.member));
  options.local_address = settings.local_address;
  options.local_port = settings.local_port;
  options.key_file = settings.key_file;
  options.device = settings.device;
  options.join_timeout = options.operation_timeout = timeout;
  options.resume_within =
      std::chrono::milliseconds(static_cast<std::int64_t>(settings.resume_within_seconds * 1e3));
  options.background_thread = false;  // this process does nothing else
  auto joined = iswitch::Agent::join(options);
  if (!joined) {
    const bool misuse = joined.error().code == iswitch::AgentErrorCode::bad_argument;
    return fail(misuse ? usage : not_joined, joined.error().text);
  }
  iswitch::Agent& agent = **joined;
  if (whole && settings.size && agent.size_expected() != *settings.size) {
    return fail(usage, "job " + std::to_string(settings.job) + " at " + settings.switch_address +
                           " has " + std::to_string(agent.size_expected()) + " members, not the " +
                           std::to_string(*settings.size) + " of --size or WORLD_SIZE");
  }

  std::vector<float> output(input.size());
  std::vector<double> seconds(std::min<std::size_t>(settings.repeat, remembered));
  bool partial = false;
  std::uint32_t smallest_workers = 0xFFFF'FFFF;
  const auto reduce = settings.mean ? iswitch::Reduce::mean : iswitch::Reduce::sum;
  const auto begin = std::chrono::steady_clock::now();
  auto last = begin;
  for (unsigned i = 0; i < settings.repeat;) {
    if (whole && settings.size && !wait_for_members(agent, *settings.size, timeout)) {
      return fail(not_reduced, "only " + std::to_string(agent.size()) + " of " +
                                   std::to_string(*settings.size) + " members were there within " +
                                   std::to_string(timeout.count()) + " ms");
    }
    auto handle =
        agent.all_reduce(input, output, reduce, {.timeout = std::nullopt, .tag = settings.tag});
    const iswitch::AgentError error = handle.wait();
    const bool begins_again = i == 0 && std::chrono::steady_clock::now() < begin + timeout;
    if (error) {
      // A late joiner resets a job that runs already. Before the first result nothing is lost by
      // it: every rank begins again.
      const bool begun_again =
          error.code == iswitch::AgentErrorCode::job_reset ||
          (!whole && error.code == iswitch::AgentErrorCode::gone);  // other leaves were there first
      if (begins_again && begun_again) continue;
      return fail(not_reduced, std::string(iswitch_error_name(static_cast<int>(error.code))) +
                                   ": " + error.text);
    }
    const std::uint32_t workers = handle.smallest_workers();
    if (settings.size && !handle.partial() && workers < *settings.size &&
        !(whole && fewer_by_design(agent, workers, *settings.size))) {
      // A leaf that joins its parent again resets the job.
      if (begins_again && !whole) continue;
      return fail(not_reduced, "the sum has only " + std::to_string(workers) + " of " +
                                   std::to_string(*settings.size) +
                                   " workers: a member left or was evicted meanwhile");
    }
    const auto now = std::chrono::steady_clock::now();
    seconds[i % remembered] = seconds_between(last, now);
    ++i;
    last = now;
    partial = partial || handle.partial();
    smallest_workers = std::min(smallest_workers, handle.smallest_workers());
  }
  const std::string problem = write_all(
      settings.output, reinterpret_cast<const char*>(output.data()), output.size() * sizeof(float));
  if (!problem.empty()) return fail(machine, problem);
  if (settings.json) {
    print_figures(agent, bytes.size(), settings.repeat, std::move(seconds),
                  seconds_between(begin, last), partial, smallest_workers);
  }
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Sums one float32 vector of every rank through an iSwitch.", "iswitch-allreduce");
  add_options(app, settings);
  return iswitch::run_program(app, argc, argv, [&] { return run(settings); });
}
