#include "tools/load/run.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>

#include "agent/transport/clock.h"

namespace iswitch::load {

namespace {

constexpr Time drain_timeout = 10 * second;
constexpr Time leave_timeout = second;
constexpr Time longest_wait = millisecond;
/// What a run may take for gradients, their sums and results.
constexpr std::uint64_t most_memory = std::uint64_t{8} << 30;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

class Run {
 public:
  explicit Run(const RunOptions& options) : options_(options) {}
  Report go();

 private:
  bool fail(Outcome outcome, std::string problem) {
    if (report_.problem.empty()) {
      report_.outcome = outcome;
      report_.problem = std::move(problem);
    }
    return false;
  }
  bool open();
  bool join();
  bool prepare();
  bool reduce();
  void leave();
  void count();
  /// Moves what there is to move; false when an operation has failed.
  bool turn(Time now, bool submits);
  void submit(Worker& worker, Time now);
  Time next_due(const Worker& worker) const;
  void wait(Time now, bool submits);
  void stop_submitting();
  void tell_progress(Time now);
  bool all(agent::EngineState state) const;

  const RunOptions& options_;
  Report report_;
  std::unique_ptr<Link> link_;
  std::vector<Worker> workers_;
  std::unique_ptr<Gradients> gradients_;
  Time heard_at_ = 0;
  Time begin_ = 0;
  Time interval_ = 0;  // between operations of a worker; 0: as soon as there is room
  std::uint64_t last_operation_ = UINT64_MAX;  // number of operations, once it is known
  bool ending_ = false;
  Time told_at_ = 0;
  std::uint64_t told_ = 0;
};

bool Run::open() {
  std::string problem;
  link_ = Link::open(options_.link, problem);
  if (!link_) return fail(Outcome::unusable, problem);
  if (wire::largest_segment(link_->mtu()) == 0) {
    return fail(Outcome::unusable,
                "the path's MTU of " + std::to_string(link_->mtu()) + " bytes holds no segment");
  }
  const Time now = agent::monotonic_now();
  workers_.reserve(options_.link.workers);
  for (std::uint16_t number = 0; number < options_.link.workers; ++number) {
    WorkerOptions worker;
    worker.number = number;
    worker.job = options_.job;
    worker.key = options_.key;
    worker.operation_timeout = options_.operation_timeout;
    workers_.emplace_back(worker, *link_, options_.link.switch_ip, options_.link.switch_port, now);
  }
  return true;
}

bool Run::all(agent::EngineState state) const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [&](const Worker& worker) { return worker.engine().state() == state; });
}

bool Run::join() {
  Time now = agent::monotonic_now();
  const Time deadline = now + options_.join_timeout;
  for (Worker& worker : workers_) worker.engine().join(now, deadline);
  while (!all(agent::EngineState::running)) {
    if (!turn(now, false)) return false;
    for (const Worker& worker : workers_) {
      const auto& error = worker.engine().join_error();
      if (worker.engine().state() == agent::EngineState::failed) {
        return fail(Outcome::not_joined, "job " + std::to_string(options_.job) +
                                             " cannot be joined: " + error.text +
                                             link_->trouble_text());
      }
    }
    now = agent::monotonic_now();
    if (now > deadline + second) return fail(Outcome::not_joined, "the job does not start");
    wait(now, false);
  }
  const wire::ReplyBody& job = workers_.front().engine().job();
  if (job.members_expected != options_.link.workers || job.mode != wire::Mode::sync) {
    return fail(Outcome::unusable, "job " + std::to_string(options_.job) + " is " +
                                       (job.mode == wire::Mode::sync ? "" : "asynchronous and ") +
                                       "of " + std::to_string(job.members_expected) +
                                       " members; this takes a synchronous " + "one of --workers " +
                                       std::to_string(options_.link.workers));
  }
  return true;
}

bool Run::prepare() {
  report_.segment_bytes = workers_.front().engine().job().segment_bytes;
  const std::uint64_t bytes =
      options_.segments != 0 ? options_.segments * report_.segment_bytes : options_.bytes;
  const std::uint64_t elements = std::max<std::uint64_t>(bytes / sizeof(float), 1);
  report_.operation_bytes = elements * sizeof(float);
  report_.operation_segments =
      (report_.operation_bytes + report_.segment_bytes - 1) / report_.segment_bytes;
  const std::uint64_t vectors =
      options_.link.workers * (Gradients::sets + std::uint64_t{options_.outstanding} + 1);
  if (report_.operation_bytes > most_memory / vectors) {
    return fail(Outcome::unusable, std::to_string(vectors) + " vectors of " +
                                       std::to_string(report_.operation_bytes) +
                                       " bytes are more than 8 GiB: lower --size or --segments");
  }
  gradients_ = std::make_unique<Gradients>(options_.link.workers, elements);
  for (Worker& worker : workers_) worker.begin(*gradients_, options_.outstanding);
  if (options_.rate > 0) {
    interval_ = std::max<Time>(
        static_cast<Time>(static_cast<double>(report_.operation_segments) * 1e9 / options_.rate),
        1);
  }
  return true;
}

Time Run::next_due(const Worker& worker) const {
  return begin_ + static_cast<Time>(worker.submitted()) * interval_;
}

void Run::submit(Worker& worker, Time now) {
  while (worker.submitted() < last_operation_) {
    const Time due = interval_ == 0 ? now : next_due(worker);
    if (due > now) return;
    if (!worker.may_submit()) return;
    if (interval_ != 0 && now - due > interval_) ++report_.late;
    worker.submit(due, now);
  }
}

bool Run::turn(Time now, bool submits) {
  // One batch from everywhere, then everybody's turn: results of one worker do not wait long for
  // another's.
  const bool came = link_->receive([&](std::uint16_t number, const agent::Received& received) {
    if (number < workers_.size()) workers_[number].receive(received, now, report_.tally);
  });
  if (came) heard_at_ = now;
  for (Worker& worker : workers_) {
    if (submits) submit(worker, now);
    const std::string problem = worker.turn(now, report_.tally);
    if (!problem.empty()) return fail(Outcome::failed, problem + link_->trouble_text());
  }
  return true;
}

void Run::wait(Time now, bool submits) {
  Time until = now + longest_wait;
  for (const Worker& worker : workers_) {
    until = std::min(until, worker.engine().next_deadline());
    if (submits && worker.may_submit() && worker.submitted() < last_operation_) {
      until = std::min(until, interval_ == 0 ? now : next_due(worker));
    }
  }
  link_->wait(std::max<Time>(until - now, 0), now - heard_at_);
}

/// Everybody stops after the same operation, or some would wait for the others.
void Run::stop_submitting() {
  last_operation_ = 1;
  for (const Worker& worker : workers_) {
    last_operation_ = std::max(last_operation_, worker.submitted());
  }
  ending_ = true;
}

bool Run::reduce() {
  const double cpu_before = cpu_seconds();
  begin_ = told_at_ = agent::monotonic_now();
  const Time end = begin_ + static_cast<Time>(options_.seconds * 1e9);
  // At a rate, those that are due in time, unless the rate cannot be kept.
  if (interval_ != 0) {
    last_operation_ =
        std::max<std::uint64_t>(static_cast<std::uint64_t>((end - begin_) / interval_), 1);
  }
  const Time cut = interval_ == 0 ? end : end + second;
  Time now = begin_;
  const auto finished = [this] {
    return std::all_of(workers_.begin(), workers_.end(), [this](const Worker& worker) {
      return worker.submitted() >= last_operation_ && worker.idle();
    });
  };
  while (!finished()) {
    if (!turn(now, true)) return false;
    now = agent::monotonic_now();
    if (now >= cut && !ending_) stop_submitting();
    if (now >= end + options_.operation_timeout + drain_timeout) {
      return fail(Outcome::failed, "the last operations do not end");
    }
    tell_progress(now);
    wait(now, true);
    now = agent::monotonic_now();
  }
  report_.seconds = static_cast<double>(now - begin_) / 1e9;
  report_.cpu_seconds = cpu_seconds() - cpu_before;
  return true;
}

void Run::tell_progress(Time now) {
  if (now - told_at_ < second || !options_.progress) return;
  const double seconds = static_cast<double>(now - told_at_) / 1e9;
  const auto done = static_cast<double>(report_.tally.operations_done - told_);
  const double contributions = done * static_cast<double>(report_.operation_segments) / seconds;
  char line[160];
  std::snprintf(line, sizeof line,
                "%.0f s: %.3f M contributions/s, %.2f Gb/s of gradient, segment p99 %.1f us, %s",
                static_cast<double>(now - begin_) / 1e9, contributions / 1e6,
                contributions * report_.segment_bytes * 8 / 1e9,
                static_cast<double>(report_.tally.segments.quantile(0.99)) / 1e3,
                report_.tally.elements_wrong == 0 ? "sums right" : "SUMS WRONG");
  options_.progress(line);
  told_at_ = now;
  told_ = report_.tally.operations_done;
}

void Run::leave() {
  Time now = agent::monotonic_now();
  const Time deadline = now + leave_timeout;
  for (Worker& worker : workers_) worker.engine().leave(now, deadline);
  const auto away = [](const Worker& worker) {
    const agent::EngineState state = worker.engine().state();
    return state == agent::EngineState::left || state == agent::EngineState::failed ||
           state == agent::EngineState::idle;
  };
  while (!std::all_of(workers_.begin(), workers_.end(), away) && now < deadline) {
    link_->receive([&](std::uint16_t number, const agent::Received& received) {
      if (number < workers_.size()) {
        workers_[number].engine().receive(received.datagram, received.ecn, now);
      }
    });
    for (Worker& worker : workers_) worker.turn(now, report_.tally);
    now = agent::monotonic_now();
    wait(now, false);
  }
}

void Run::count() {
  for (const Worker& worker : workers_) {
    const agent::Statistics statistics = worker.engine().statistics();
    report_.contributions += statistics.contributions_sent;
    report_.retransmissions += statistics.retransmissions;
    report_.duplicate_results += statistics.duplicate_results;
  }
  report_.operations = report_.tally.operations_done / options_.link.workers;
}

Report Run::go() {
  if (!open()) return std::move(report_);
  const bool reduced = join() && prepare() && reduce();
  count();
  if (reduced && report_.tally.elements_wrong != 0) {
    fail(Outcome::wrong_sums, report_.tally.first_wrong);
  }
  leave();
  return std::move(report_);
}

}  // namespace

Report run(const RunOptions& options) { return Run(options).go(); }

}  // namespace iswitch::load
