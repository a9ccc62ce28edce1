#include "iswitch/async_trainer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace iswitch {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the thread waits for an update before it looks whether it should stop.
constexpr std::chrono::milliseconds turn{50};

AgentError error_of(AgentErrorCode code, std::string text) {
  AgentError error;
  error.code = code;
  error.text = std::move(text);
  return error;
}

CatchUp why_of(MemberEventKind kind) {
  switch (kind) {
    case MemberEventKind::joined:
      return CatchUp::joined;
    case MemberEventKind::gone:
      return CatchUp::gone;
    case MemberEventKind::reset:
      break;
  }
  return CatchUp::reset;
}

}  // namespace

/// The trainer's thread takes updates and catches up; the user's computes and pushes.
struct AsyncTrainer::State {
  State(Agent& its_agent, std::vector<float> initial, AsyncTrainerCallbacks its_callbacks,
        const AsyncTrainerOptions& its_options)
      : agent(its_agent),
        callbacks(std::move(its_callbacks)),
        options(its_options),
        weights(std::move(initial)),
        assembler(weights.size(), its_agent.segment_bytes() / sizeof(float)),
        mean(weights.size()) {}

  void take_updates();
  bool catch_up(CatchUp why, std::uint32_t base_round);
  /// One attempt; an error that may pass is `again`.
  AgentError adopt(CatchUp why, std::uint32_t base_round, bool& again);
  AgentError adopt_snapshot(TrainerSnapshot snapshot);
  AgentError keep_own(CatchUp why);
  void apply(const SliceUpdate& slice);
  void fail(AgentError error);
  AgentError reap(std::size_t most_left, Clock::time_point until);

  Agent& agent;
  const AsyncTrainerCallbacks callbacks;
  const AsyncTrainerOptions options;

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex; what of it the optimiser's callbacks touch as well.
  std::vector<float> weights;
  UpdateAssembler assembler;
  bool live = false;             ///< the weights follow from the updates
  std::uint64_t generation = 0;  ///< catch-ups so far: versions of different ones do not compare
  bool stopping = false;
  AgentError failure;
  AsyncTrainerStatistics statistics;

  // Of the trainer's thread.
  std::vector<float> mean;

  // Of the user's computing thread.
  struct Push {
    std::vector<float> gradient;
    Handle handle;
  };
  std::deque<Push> pushes;  ///< under way, oldest first
  std::vector<std::vector<float>> spare;
  std::uint64_t read_version = 0, read_generation = 0;

  std::thread thread;
};

AsyncTrainer::AsyncTrainer(Agent& agent, std::vector<float> weights,
                           AsyncTrainerCallbacks callbacks, const AsyncTrainerOptions& options)
    : state_(std::make_unique<State>(agent, std::move(weights), std::move(callbacks), options)) {
  State& s = *state_;
  if (!s.callbacks.apply) {
    s.fail(error_of(AgentErrorCode::bad_argument, "AsyncTrainer needs an apply callback"));
    return;
  }
  try {
    s.thread = std::thread([&s] { s.take_updates(); });
  } catch (const std::system_error& error) {
    s.fail(error_of(AgentErrorCode::system,
                    std::string("cannot start the trainer's thread: ") + error.what()));
  }
}

AsyncTrainer::~AsyncTrainer() {
  State& s = *state_;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.stopping = true;
  }
  s.changed.notify_all();
  if (s.thread.joinable()) s.thread.join();
  give_up_pushes();
}

// ---- the trainer's thread

void AsyncTrainer::State::take_updates() {
  if (!catch_up(CatchUp::start, agent.numbers().base_round)) return;
  SliceUpdate slice;
  MemberEvent event;
  while (true) {
    const auto arrived = agent.next(slice, event, turn);
    if (!arrived) return fail(arrived.error());
    if (*arrived == Arrived::event) {
      if (!catch_up(why_of(event.kind), event.base_round)) return;
      continue;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (stopping) return;
    if (*arrived == Arrived::update) apply(slice);
    if (failure) return;
  }
}

void AsyncTrainer::State::apply(const SliceUpdate& slice) {
  if (!assembler.add(slice)) {
    failure = error_of(AgentErrorCode::system,
                       "update " + std::to_string(slice.number) + " of segment " +
                           std::to_string(slice.segment) +
                           " does not follow the one before: somebody else took updates of this "
                           "agent");
    changed.notify_all();
    return;
  }
  bool applied = false;
  while (assembler.take(mean)) {
    callbacks.apply(weights, mean);
    ++statistics.applied;
    applied = true;
  }
  if (applied) changed.notify_all();
}

void AsyncTrainer::State::fail(AgentError error) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!failure) failure = std::move(error);
  live = false;
  changed.notify_all();
}

bool AsyncTrainer::State::catch_up(CatchUp why, std::uint32_t base_round) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    live = false;
  }
  const auto until = Clock::now() + options.catch_up_timeout;
  auto reset_at = Clock::now() + options.reset_after;
  while (true) {
    bool again = true;
    AgentError error = adopt(why, base_round, again);
    std::unique_lock<std::mutex> lock(mutex);
    if (!error) {
      live = true;
      ++generation;
      statistics.catch_ups += why == CatchUp::start ? 0 : 1;
      changed.notify_all();
      return !stopping;
    }
    if (stopping) return false;
    if (!again || Clock::now() >= until) {
      lock.unlock();
      error.text = "cannot catch up with the other workers: " + error.text;
      fail(std::move(error));
      return false;
    }
    changed.wait_for(lock, options.catch_up_retry, [this] { return stopping; });
    lock.unlock();
    if (why == CatchUp::gone && Clock::now() >= reset_at) {
      reset_at = Clock::now() + options.reset_after;
      agent.request_reset();
    }
    // The job may have been reset meanwhile.
    if (const std::uint32_t now = agent.numbers().base_round; now != base_round) {
      base_round = now;
      why = why == CatchUp::start ? why : CatchUp::reset;
    }
  }
}

AgentError AsyncTrainer::State::adopt(CatchUp why, std::uint32_t base_round, bool& again) {
  if (!callbacks.fetch) {
    again = false;
    if (why == CatchUp::start) return keep_own(why);
    return error_of(AgentErrorCode::gone,
                    "this worker needs weights from a peer, and there is no fetch callback");
  }
  auto fetched = callbacks.fetch(why, base_round);
  if (!fetched) return fetched.error();
  if (!*fetched) return keep_own(why);
  if ((*fetched)->numbers.base_round != base_round)
    return error_of(AgentErrorCode::job_reset, "the peer's weights are of base round " +
                                                   std::to_string((*fetched)->numbers.base_round) +
                                                   ", the job is at " + std::to_string(base_round));
  return adopt_snapshot(std::move(**fetched));
}

AgentError AsyncTrainer::State::adopt_snapshot(TrainerSnapshot snapshot) {
  const std::lock_guard<std::mutex> lock(mutex);
  UpdateAssembler taken(weights.size(), agent.segment_bytes() / sizeof(float));
  if (snapshot.weights.size() != weights.size() ||
      !taken.restart(snapshot.numbers, snapshot.version, std::move(snapshot.pending)))
    return error_of(AgentErrorCode::mismatch,
                    "a peer's snapshot is of another vector, or its numbers do not fit together");
  if (AgentError error = agent.resume(snapshot.numbers)) return error;
  assembler = std::move(taken);
  weights = std::move(snapshot.weights);
  if (callbacks.load_optimiser) callbacks.load_optimiser(snapshot.optimiser);
  return {};
}

AgentError AsyncTrainer::State::keep_own(CatchUp why) {
  if (why == CatchUp::gone)
    return error_of(AgentErrorCode::gone,
                    "the other workers' weights have gone on: this worker's "
                    "own are not those from which all go on");
  const UpdateNumbers own = agent.numbers();
  const std::lock_guard<std::mutex> lock(mutex);
  // Whether or not an event was told, or is about to be.
  if (AgentError error = agent.resume(own)) return error;
  if (!assembler.restart(
          {own.base_round, std::vector<std::uint32_t>(own.last.size(), own.base_round)}, 0, {}))
    return error_of(AgentErrorCode::bad_argument,
                    "the weights are not of the length that the agent joined with");
  return {};
}

// ---- the user's thread

AgentError AsyncTrainer::read_weights(std::span<float> weights) {
  State& s = *state_;
  std::unique_lock<std::mutex> lock(s.mutex);
  // Bounded by catch_up_timeout: the trainer's thread fails then.
  s.changed.wait(lock, [&s] { return s.live || s.failure || s.stopping; });
  if (s.failure) return s.failure;
  if (weights.size() != s.weights.size())
    return error_of(AgentErrorCode::bad_argument, "weights of another length");
  std::copy(s.weights.begin(), s.weights.end(), weights.begin());
  s.read_version = s.assembler.version();
  s.read_generation = s.generation;
  return {};
}

/// Waits until at most so many are under way. A push that timed out is an error; one that ended as
/// this member fell behind, the job was reset or the switch restarted is not.
AgentError AsyncTrainer::State::reap(std::size_t most_left, Clock::time_point until) {
  AgentError told;
  while (!pushes.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    const bool must = pushes.size() > most_left;
    const auto ended = pushes.front().handle.wait_for(
        must ? std::max(left, std::chrono::milliseconds{0}) : std::chrono::milliseconds{0});
    if (!ended && must) return error_of(AgentErrorCode::timed_out, "pushes are still under way");
    if (!ended) break;
    if (*ended) {
      const std::lock_guard<std::mutex> lock(mutex);
      ++statistics.failed;
      if (ended->code != AgentErrorCode::gone && ended->code != AgentErrorCode::job_reset &&
          ended->code != AgentErrorCode::in_doubt && !told)
        told = *ended;
    }
    spare.push_back(std::move(pushes.front().gradient));
    pushes.pop_front();
  }
  return told;
}

Expected<bool> AsyncTrainer::push(std::span<const float> gradient) {
  State& s = *state_;
  const std::size_t most = std::max(s.options.pushes_in_flight, 1U) - 1;
  if (AgentError error = s.reap(most, Clock::now() + s.options.push_timeout + turn)) return error;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (s.failure) return s.failure;
    if (gradient.size() != s.weights.size())
      return error_of(AgentErrorCode::bad_argument, "a gradient of another length");
    if (!s.live || s.generation != s.read_generation) {
      ++s.statistics.dropped;
      return false;
    }
    const std::uint64_t age = s.assembler.version() - s.read_version;
    if (s.statistics.staleness.size() <= age) s.statistics.staleness.resize(age + 1);
    ++s.statistics.staleness[age];
    if (age > s.options.max_staleness) {
      ++s.statistics.dropped;
      return false;
    }
    ++s.statistics.pushed;
  }
  State::Push push;
  if (!s.spare.empty()) {
    push.gradient = std::move(s.spare.back());
    s.spare.pop_back();
  }
  push.gradient.assign(gradient.begin(), gradient.end());
  push.handle = s.agent.push(push.gradient, {.timeout = s.options.push_timeout});
  s.pushes.push_back(std::move(push));
  return true;
}

bool AsyncTrainer::wait_for_pushes(std::chrono::milliseconds time) {
  State& s = *state_;
  static_cast<void>(s.reap(0, Clock::now() + time));
  return s.pushes.empty();
}

void AsyncTrainer::give_up_pushes() {
  State& s = *state_;
  if (s.pushes.empty()) return;
  s.agent.give_up_pushes();
  // Until then the engine may read the gradients; an agent that is leaving takes its time.
  static_cast<void>(s.reap(0, Clock::now() + s.options.push_timeout));
}

AgentError AsyncTrainer::run(
    const std::function<bool(std::span<const float> weights, std::span<float> gradient)>& compute) {
  std::vector<float> copy(state_->mean.size());
  std::vector<float> gradient(copy.size());
  while (true) {
    if (AgentError error = read_weights(copy)) return error;
    if (!compute(copy, gradient)) return {};
    const auto pushed = push(gradient);
    if (!pushed) return pushed.error();
  }
}

// ---- any thread

std::optional<TrainerSnapshot> AsyncTrainer::snapshot() const {
  const State& s = *state_;
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.live) return std::nullopt;
  TrainerSnapshot snapshot;
  snapshot.numbers = s.assembler.numbers();
  snapshot.version = s.assembler.version();
  snapshot.weights = s.weights;
  if (s.callbacks.save_optimiser) snapshot.optimiser = s.callbacks.save_optimiser();
  snapshot.pending = s.assembler.pending();
  return snapshot;
}

UpdateNumbers AsyncTrainer::numbers() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->assembler.numbers();
}

std::uint64_t AsyncTrainer::version() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->assembler.version();
}

std::vector<float> AsyncTrainer::weights() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->weights;
}

AsyncTrainerStatistics AsyncTrainer::statistics() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->statistics;
}

AgentError AsyncTrainer::failure() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->failure;
}

}  // namespace iswitch
