#include "switchd/daemon.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <optional>

#include "switchd/admin/capture.h"
#include "switchd/admin/commands.h"
#include "switchd/admin/metrics.h"
#include "switchd/admin/server.h"
#include "switchd/control/control.h"
#include "switchd/dataplane/dataplane.h"
#include "switchd/dataplane/machine.h"
#include "switchd/event_loop.h"
#include "switchd/log.h"
#include "switchd/parent_log.h"
#include "switchd/refusals.h"
#include "switchd/service.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

constexpr Time link_interval = 200 * millisecond;
constexpr Time heard_interval = 100 * millisecond;
constexpr Time second_interval = second;
// A turn handles so many messages of a kind, so that no flood of one starves the others.
constexpr unsigned messages_a_turn = 256;
constexpr Time leave_deadline = second;

std::uint64_t unix_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

/// Tells this start of the switch from any other; the clock serves where the kernel has nothing.
std::uint32_t random_incarnation() {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value)) return value;
  return static_cast<std::uint32_t>(unix_microseconds());
}

/// Something done again and again.
class Timer {
 public:
  explicit Timer(Time interval) : interval_(interval) {}
  Time deadline() const { return deadline_; }
  bool due(Time now) {
    if (now < deadline_) return false;
    deadline_ = interval_ == never ? never : now + interval_;
    return true;
  }

 private:
  Time interval_;
  Time deadline_ = 0;
};

}  // namespace

struct Daemon::State {
  explicit State(const Config& given) : config(given) {}
  ~State() {
    if (signals >= 0) close(signals);
  }

  std::string start();
  std::string block_signals();
  void start_control();
  bool turn();
  bool drain_lcores(Time now);
  void on_control_frame(const datapath::ControlFrame& frame, Time now);
  void on_second();
  void report_heard();
  void carry_out(control::Effects& wanted) { dataplane->submit(wanted); }
  std::string run();
  std::string end();
  void tell_agents();

  const Config& config;
  const Time started_at = monotonic_now();
  EventLoop loop;
  int signals = -1;
  bool ending = false;
  bool comes_back = false;  ///< or another switch in its place
  control::Effects effects;

  // In the order they come up; they go down the other way.
  std::unique_ptr<AdminServer> server;
  std::unique_ptr<Dataplane> dataplane;
  std::optional<control::Control> control;
  std::unique_ptr<Captures> captures;
  std::unique_ptr<Commands> commands;
  std::unique_ptr<Metrics> metrics;

  std::vector<unsigned> busy_percent;
  std::vector<std::uint64_t> polls_before;
  std::vector<std::uint64_t> busy_before;
  RefusalLog refusal_log;
  ParentLog parent_log;

  Timer link_timer{link_interval};
  Timer heard_timer{heard_interval};
  Timer second_timer{second_interval};
  Timer watchdog_timer{service::watchdog_interval()};
};

Daemon::Daemon(std::unique_ptr<State> state) : state_(std::move(state)) {}
Daemon::~Daemon() = default;

std::unique_ptr<Daemon> Daemon::start(const Config& config, std::string& error) {
  auto state = std::make_unique<State>(config);
  error = state->start();
  if (!error.empty()) return nullptr;
  return std::unique_ptr<Daemon>(new Daemon(std::move(state)));
}

std::string Daemon::run() { return state_->run(); }

std::string Daemon::State::start() {
  if (!loop.ok()) return "no epoll descriptor; raise the limit of open files";
  std::string error = block_signals();
  if (!error.empty()) return error;
  // First, so that a second daemon of this name never touches the ports.
  server = AdminServer::open(
      loop, config.admin_socket, config.name,
      [this](AdminServer::ClientId client, const std::string& line,
             const AdminServer::Respond& respond) { commands->handle(client, line, respond); },
      error);
  if (!server) return error;
  dataplane = Dataplane::start(config, error);
  if (!dataplane) return error;
  start_control();
  captures = std::make_unique<Captures>(*server, *dataplane);
  busy_percent.resize(dataplane->lcores().size());
  polls_before.resize(dataplane->lcores().size());
  busy_before.resize(dataplane->lcores().size());
  commands = std::make_unique<Commands>(
      AdminParts{config, *dataplane, *control, *captures, busy_percent, started_at,
                 [this](control::Effects& wanted) { carry_out(wanted); },
                 [this] { ending = comes_back = true; }});
  metrics = Metrics::start(config, error);
  if (!error.empty()) return error;
  for (const auto& lcore : dataplane->lcores()) {
    const Lcore* source = lcore.get();
    if (!loop.add(lcore->wake_fd(), EPOLLIN, [source](std::uint32_t) { source->clear_wake(); })) {
      return "an lcore's eventfd cannot be waited on; raise the limit of open files";
    }
  }
  error = dataplane->open_to_traffic();
  if (!error.empty()) return error;
  log(LogLevel::info, "switch ", config.name, " runs: ", wire::to_string(config.address.rules.ip),
      ", UDP port ", config.address.rules.udp_port, ", ", config.ports.size(), " ports, ",
      config.jobs.size(), " jobs, ", dataplane->huge_pages() ? "with" : "without",
      " huge pages, packet loop on CPU ", numbers(dataplane->lcore_cpus()), ", admin socket ",
      server->path());
  service::ready();
  return {};
}

std::string Daemon::State::block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  // Before any thread exists: all of them inherit it, and only this descriptor gets the signals.
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  const bool added = signals >= 0 && loop.add(signals, EPOLLIN, [this](std::uint32_t) {
    signalfd_siginfo info{};
    while (read(signals, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      log(LogLevel::info, info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT",
          ending ? ": ending already" : ": ending");
      ending = true;
    }
  });
  return added ? std::string() : "no signal descriptor; raise the limit of open files";
}

void Daemon::State::start_control() {
  control::SwitchConfig wish;
  wish.address = config.address;
  wish.address.rules.ports = static_cast<std::uint16_t>(dataplane->lcores().size());
  wish.shards = static_cast<std::uint16_t>(dataplane->lcores().size());
  wish.start_time = monotonic_now();
  wish.start_unix_microseconds = unix_microseconds();
  wish.parent = config.parent;
  wish.incarnation = random_incarnation();
  control.emplace(wish, config.jobs, wish.start_time, effects);
  carry_out(effects);
}

// ---- one turn of the loop

bool Daemon::State::drain_lcores(Time now) {
  bool more = false;
  for (const auto& lcore : dataplane->lcores()) {
    datapath::Answer answer;
    while (lcore->take_answer(answer)) control->on_answer(answer, now, effects);
    datapath::ControlFrame frame;
    unsigned count = 0;
    for (; count < messages_a_turn && lcore->take_control_frame(frame); ++count) {
      on_control_frame(frame, now);
    }
    more = more || count == messages_a_turn;
    datapath::Notice notice;
    for (count = 0; count < messages_a_turn && lcore->take_notice(notice); ++count) {
      control->on_notice(notice, now, effects);
    }
    more = more || count == messages_a_turn;
    Refusal refusal;
    while (lcore->take_refusal(refusal)) refusal_log.add(refusal);
  }
  return more;
}

void Daemon::State::on_control_frame(const datapath::ControlFrame& frame, Time now) {
  constexpr std::size_t statuses = std::size(control::Counters{}.refused);
  std::array<std::uint64_t, statuses> before{};
  std::copy_n(control->counters().refused, statuses, before.begin());
  control->on_frame(frame, now, effects);
  for (std::size_t status = 1; status < statuses; ++status) {
    if (control->counters().refused[status] != before[status]) {
      refusal_log.add(static_cast<wire::Status>(status), frame);
    }
  }
}

void Daemon::State::report_heard() {
  for (const auto& lcore : dataplane->lcores()) {
    lcore->pipeline().job_stats().for_each([&](wire::JobId job, const pipeline::JobStats& stats) {
      for (wire::MemberId member = 0; member < wire::max_members; ++member) {
        const Time when = stats.last_heard(member);
        if (when != 0) control->heard(job, member, when);
      }
    });
  }
}

void Daemon::State::on_second() {
  for (std::size_t i = 0; i < dataplane->lcores().size(); ++i) {
    const Lcore& lcore = *dataplane->lcores()[i];
    const std::uint64_t polls = lcore.polls() - polls_before[i];
    const std::uint64_t busy = lcore.polls_with_frames() - busy_before[i];
    polls_before[i] += polls;
    busy_before[i] += busy;
    busy_percent[i] = polls == 0 ? 0 : static_cast<unsigned>(busy * 100 / polls);
  }
  if (metrics) metrics->publish(*dataplane, *control, *captures);
}

/// False when there is more to do at once.
bool Daemon::State::turn() {
  const Time now = monotonic_now();
  const bool more = drain_lcores(now);
  if (heard_timer.due(now)) {
    report_heard();
    refusal_log.write(config, now);
    if (config.parent) parent_log.write(control->jobs(), now);
  }
  if (now >= control->next_deadline()) control->tick(now, effects);
  carry_out(effects);
  if (link_timer.due(now)) dataplane->check_links();
  if (second_timer.due(now)) on_second();
  if (captures->active()) captures->pump(now);
  if (watchdog_timer.due(now) && watchdog_timer.deadline() != never) service::alive();
  return !more;
}

std::string Daemon::State::run() {
  while (!ending) {
    const bool idle = turn();
    Time deadline =
        std::min({control->next_deadline(), link_timer.deadline(), heard_timer.deadline(),
                  second_timer.deadline(), watchdog_timer.deadline()});
    const Time now = monotonic_now();
    if (captures->active()) deadline = std::min(deadline, now + Captures::interval);
    if (!idle) deadline = now;
    // What waits for room in a ring is tried again soon.
    if (!dataplane->is_drained()) deadline = std::min(deadline, now + millisecond);
    loop.run_once(now, deadline);
  }
  return end();
}

// ---- the end

void Daemon::State::tell_agents() {
  if (comes_back) {
    control->pause_all(monotonic_now(), effects);
  } else {
    control->leave_all(monotonic_now(), effects);
  }
  const Time deadline = monotonic_now() + leave_deadline;
  do {
    carry_out(effects);
    if (dataplane->is_drained()) return;
    usleep(500);
  } while (monotonic_now() < deadline);
  log(LogLevel::warning,
      "the packet loop did not take the Leave notices in time; agents find out by timeout");
}

std::string Daemon::State::end() {
  service::stopping();
  tell_agents();
  metrics.reset();
  for (const auto& lcore : dataplane->lcores()) loop.remove(lcore->wake_fd());
  for (const auto& lcore : dataplane->lcores()) lcore->stop();
  const Time now = monotonic_now();
  drain_lcores(now);
  refusal_log.write(config, now);
  captures->finish(now);
  commands.reset();
  captures.reset();
  control.reset();
  std::string leaks = dataplane->stop();
  dataplane.reset();
  server.reset();
  if (leaks.empty())
    log(LogLevel::info, "switch ", config.name, " ended; every packet buffer is back");
  return leaks;
}

}  // namespace iswitch::switchd
