// switchctl: what an operator says to a running switchd, over its admin socket (docs/admin.md).
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/switchctl/connection.h"
#include "tools/switchctl/drain.h"
#include "tools/switchctl/views.h"

namespace {

using iswitch::switchctl::Connection;
using nlohmann::json;

constexpr int answer_timeout_ms = 10'000;
constexpr int exit_refused = 1;
volatile std::sig_atomic_t interrupted = 0;

struct Options {
  std::string socket;
  std::string name;
  bool json = false;
};

int fail(const std::string& error) {
  std::fprintf(stderr, "switchctl: %s\n", error.c_str());
  return exit_refused;
}

/// The admin socket's path: given, by the switch's name, or the only one there is.
std::optional<std::string> find_socket(const Options& options, std::string& error) {
  if (!options.socket.empty()) return options.socket;
  if (!options.name.empty()) {
    const auto candidates = iswitch::switchctl::socket_candidates(options.name);
    for (const auto& path : candidates) {
      if (access(path.c_str(), F_OK) == 0) return path;
    }
    error = "no switch named " + options.name + " runs here (looked for " + candidates.front() +
            " and in " + std::to_string(candidates.size() - 1) +
            " other places); --socket names its socket";
    return std::nullopt;
  }
  const auto found = iswitch::switchctl::sockets_found();
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    error = "no switchd runs here that this user may see; --socket names its admin socket";
    return std::nullopt;
  }
  error = "several switches run here; pick one with --socket:";
  for (const auto& path : found) error += " " + path;
  return std::nullopt;
}

/// Connects, asks, and gives a reply that says ok; says what is wrong otherwise.
std::optional<json> ask(const Options& options, const json& request, Connection& connection,
                        std::string& error) {
  const auto path = find_socket(options, error);
  if (!path || !connection.open(*path, error)) return std::nullopt;
  const auto line = connection.ask(request.dump(), answer_timeout_ms, error);
  if (!line) return std::nullopt;
  json reply = json::parse(*line, nullptr, false);
  if (!reply.is_object() || !reply.contains("ok")) {
    error = "switchd's answer is not understood: " + line->substr(0, 200);
    return std::nullopt;
  }
  if (reply["ok"] != true) {
    error = reply.value("error", std::string("refused without a reason"));
    return std::nullopt;
  }
  return reply;
}

using Text = std::function<std::string(const json&)>;

/// One request, printed as JSON or by `text`.
int show(const Options& options, const json& request, const Text& text) {
  Connection connection;
  std::string error;
  const auto reply = ask(options, request, connection, error);
  if (!reply) return fail(error);
  const std::string out = options.json ? reply->dump() + "\n" : text(*reply);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return 0;
}

std::optional<std::string> read_file(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int add_job(const Options& options, const std::string& path) {
  const auto text = read_file(path);
  if (!text) return fail("cannot read " + path);
  const json job = json::parse(*text, nullptr, false);
  if (!job.is_object()) return fail(path + " is not one JSON object, as in \"jobs\" of the config");
  return show(options, {{"command", "add-job"}, {"job", job}}, [&](const json&) {
    return "job " + (job.contains("id") ? job["id"].dump() : std::string("?")) + " added\n";
  });
}

struct CaptureOptions {
  std::string file;
  std::vector<std::string> ports;
  unsigned snap = 0;
  std::string direction = "both";
  double seconds = 0;
};

/// Streams frames into a file until interrupted, for so many seconds, or until switchd ends.
int capture(const Options& options, const CaptureOptions& wanted) {
  const std::string pcapng = ".pcapng";
  const bool named_pcapng =
      wanted.file.size() > pcapng.size() &&
      wanted.file.compare(wanted.file.size() - pcapng.size(), pcapng.size(), pcapng) == 0;
  json request = {{"command", "capture"},
                  {"snap", wanted.snap},
                  {"direction", wanted.direction},
                  {"format", named_pcapng ? "pcapng" : "pcap"}};
  if (!wanted.ports.empty()) request["ports"] = wanted.ports;
  std::FILE* out = wanted.file == "-" ? stdout : std::fopen(wanted.file.c_str(), "wb");
  if (out == nullptr) return fail("cannot write " + wanted.file);

  Connection connection;
  std::string error;
  unsigned long long bytes = 0;
  if (ask(options, request, connection, error)) {
    struct sigaction stop {};
    stop.sa_handler = [](int) { interrupted = 1; };
    sigaction(SIGINT, &stop, nullptr);
    sigaction(SIGTERM, &stop, nullptr);
    const auto start = std::chrono::steady_clock::now();
    if (isatty(STDERR_FILENO) != 0)
      std::fprintf(stderr, "capturing into %s; Ctrl-C ends it\n", wanted.file.c_str());
    std::string chunk;
    while (interrupted == 0) {
      if (wanted.seconds > 0 &&
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >=
              wanted.seconds) {
        break;
      }
      if (!connection.read_stream(chunk, 100, error)) break;
      if (std::fwrite(chunk.data(), 1, chunk.size(), out) != chunk.size()) {
        error = "cannot write " + wanted.file + " (disk full?)";
        break;
      }
      // What was recorded is in the file when somebody looks, not when a buffer happens to be full.
      if (std::fflush(out) != 0) {
        error = "cannot write " + wanted.file + " (disk full?)";
        break;
      }
      bytes += chunk.size();
    }
  }
  if (std::fflush(out) != 0 && error.empty())
    error = "cannot write " + wanted.file + " (disk full?)";
  if (out != stdout) std::fclose(out);
  if (!error.empty()) return fail(error);
  if (options.json) {
    std::fprintf(stderr, "%s\n",
                 json{{"ok", true}, {"file", wanted.file}, {"bytes", bytes}}.dump().c_str());
  } else {
    std::fprintf(stderr, "%llu bytes written to %s\n", bytes, wanted.file.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace iswitch::switchctl;
  CLI::App app(
      "Looks at and steers a running switchd. Exit code: 0 done, 1 refused or not reachable, 2 "
      "wrong usage.");
  app.require_subcommand(1);
  app.fallthrough();
  Options options;
  app.add_option("--socket", options.socket, "admin socket (default: the only one found)");
  app.add_option("--name", options.name, "the switch's name in its config");
  app.add_flag("--json", options.json, "switchd's answer as one line of JSON");

  int code = 0;
  unsigned job = 0;
  std::optional<unsigned> only_job;
  const auto with_job = [&](CLI::App* command) {
    command->add_option("job", job, "job id")->required();
    return command;
  };

  app.add_subcommand("status", "the switch, its lcores and memory")->callback([&] {
    code = show(options, {{"command", "status"}}, status_text);
  });
  app.add_subcommand("ports", "links and frame counts")->callback([&] {
    code = show(options, {{"command", "ports"}}, ports_text);
  });
  app.add_subcommand("jobs", "state, members, threshold, slots")->callback([&] {
    code = show(options, {{"command", "jobs"}}, jobs_text);
  });

  const auto for_jobs = [&](const char* command) {
    json request = {{"command", command}};
    if (only_job) request["job"] = *only_job;
    return request;
  };
  auto* members = app.add_subcommand("members", "who has joined, from where, last heard");
  members->add_option("--job", only_job, "only this job's");
  members->callback([&] { code = show(options, for_jobs("members"), members_text); });

  unsigned limit = 100;
  auto* slots = app.add_subcommand("slots", "open sums, their age and which members are missing");
  slots->add_option("--job", only_job, "only this job's");
  slots->add_option("--limit", limit, "most sums shown a job")->capture_default_str();
  slots->callback([&] {
    json request = for_jobs("slots");
    request["limit"] = limit;
    code = show(options, request, slots_text);
  });

  bool all = false;
  auto* counters = app.add_subcommand("counters", "where frames ended and what was done");
  counters->add_flag("--all", all, "those that are zero too");
  counters->callback([&] {
    code = show(options, {{"command", "counters"}},
                [&](const json& reply) { return counters_text(reply, all); });
  });

  const auto act = [&](const char* command, const char* help, const std::string& done) {
    with_job(app.add_subcommand(command, help))->callback([&, command, done] {
      code = show(options, {{"command", command}, {"job", job}},
                  [&](const json&) { return "job " + std::to_string(job) + " " + done + "\n"; });
    });
  };
  act("halt", "suspend a job: contributions are refused, nothing is lost", "halted");
  act("resume", "end a halt", "resumed");
  act("reset", "clear every slot of a job; its outstanding operations fail", "reset");
  act("remove-job", "end a job; its members are told", "removed");

  unsigned threshold = 0;
  auto* set_threshold =
      with_job(app.add_subcommand("set-threshold", "contributions that complete a sum"));
  set_threshold->add_option("threshold", threshold, "0 follows the number of members")->required();
  set_threshold->callback([&] {
    code = show(options, {{"command", "set-threshold"}, {"job", job}, {"threshold", threshold}},
                [&](const json&) {
                  return "threshold of job " + std::to_string(job) +
                         (threshold == 0 ? " follows the number of members\n"
                                         : " is " + std::to_string(threshold) + "\n");
                });
  });

  std::uint32_t segment = 0;
  std::uint32_t round = 0;
  auto* force = with_job(app.add_subcommand("force", "complete an open sum now, marked PARTIAL"));
  force->add_option("segment", segment)->required();
  force->add_option("round", round)->required();
  force->callback([&] {
    code =
        show(options, {{"command", "force"}, {"job", job}, {"segment", segment}, {"round", round}},
             [&](const json&) {
               return "segment " + std::to_string(segment) + ", round " + std::to_string(round) +
                      " completed\n";
             });
  });

  unsigned member = 0;
  auto* remove_member =
      with_job(app.add_subcommand("remove-member", "evict a member, as if it had left"));
  remove_member->add_option("member", member)->required();
  remove_member->callback([&] {
    code = show(options, {{"command", "remove-member"}, {"job", job}, {"member", member}},
                [&](const json&) {
                  return "member " + std::to_string(member) + " of job " + std::to_string(job) +
                         " removed\n";
                });
  });

  DrainOptions drain_options;
  auto* draining = app.add_subcommand(
      "drain",
      "halt every job, wait until no sum is open, and end switchd so that it or a standby goes on "
      "where it was");
  draining->add_flag("--anyway", drain_options.anyway,
                     "then end it with sums open: members send them again");
  draining
      ->add_option("--timeout", drain_options.timeout_seconds,
                   "seconds to wait; then the jobs go on")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  draining->callback([&] {
    const auto request = [&](const json& wish, std::string& error) {
      Connection connection;
      return ask(options, wish, connection, error);
    };
    const auto say = [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    };
    const std::string error = drain(request, say, drain_options);
    code = error.empty() ? 0 : fail(error);
  });

  std::string job_file;
  auto* add = app.add_subcommand("add-job", "begin a job without a restart");
  add->add_option("file", job_file, "a job object as in the config; - reads it from stdin")
      ->required();
  add->callback([&] { code = add_job(options, job_file); });

  CaptureOptions wanted;
  auto* capturing = app.add_subcommand("capture", "record what crosses the ports, both directions");
  capturing
      ->add_option("--pcap", wanted.file,
                   "file to write, - for stdout; pcap, or pcapng if it is called so")
      ->required();
  capturing->add_option("--port", wanted.ports, "only this port; may be repeated");
  capturing->add_option("--snap", wanted.snap, "bytes kept of a frame; 0 keeps all");
  capturing->add_option("--direction", wanted.direction, "rx, tx or both")
      ->check(CLI::IsMember({"rx", "tx", "both"}));
  capturing->add_option("--seconds", wanted.seconds, "end after so long; 0: when interrupted");
  capturing->callback([&] { code = capture(options, wanted); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return code;
}
