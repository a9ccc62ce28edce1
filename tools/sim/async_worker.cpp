#include "tools/sim/async_worker.h"

#include <algorithm>
#include <utility>

#include "tools/sim/checks.h"
#include "wire/serial.h"

namespace iswitch::sim {

namespace {
constexpr Time loneliness = 200 * millisecond;
constexpr Time longest_nap = 20 * millisecond;
}  // namespace

AsyncWorker::AsyncWorker(World& world, HostNode& host, AsyncProgram& program, AsyncChecks& checks,
                         unsigned rank, double slowness, Random random)
    : Member(world, host, program, rank, slowness, random), program_(program), checks_(checks) {
  program_.workers.push_back(this);
}

void AsyncWorker::begin() {
  in_flight_.clear();
  weights_.assign(program_.workload.max_elements, 0.0F);
  numbers_ = {};
  has_weights_ = false;
  event_.reset();
  catch_up_at_ = alone_since_ = never;
  nap_until_ = 0;
  computing_ = false;
  pushes_ = 0;
}

bool AsyncWorker::done() const {
  return program_.workload.operations != 0 && pushes_ >= program_.workload.operations &&
         in_flight_.empty();
}

void AsyncWorker::run_at(Time at) { next_run_ = std::min(next_run_, at); }

void AsyncWorker::work(agent::Engine& engine, Time now) {
  take_events(engine, now);
  if (event_) {
    catch_up(engine, now);
    if (event_) return;
  } else if (!has_weights_ && !engine.needs_weights()) {
    // It was there when the job began, with weights that all start from.
    enter(engine.numbers().base_round);
  }
  if (!has_weights_) return;
  apply_updates(engine, now);
  compute(engine, now);
}

// The first one at a base round decides about the weights that all start from.
void AsyncWorker::enter(std::uint32_t base_round) {
  numbers_.base_round = base_round;
  numbers_.last.assign(checks_.segments(), base_round);
  has_weights_ = true;
  if (!checks_.has_epoch(base_round)) {
    checks_.epoch(base_round, weights_);
  } else {
    const auto start = checks_.start_of(base_round);
    weights_.assign(start.begin(), start.end());
  }
  checks_.resumed(rank_, numbers_);
}

void AsyncWorker::take_events(agent::Engine& engine, Time now) {
  while (auto event = engine.take_event()) {
    world_.trace.add(now, What::state, host_.number(),
                     100 + static_cast<std::uint32_t>(event->kind), event->base_round);
    if (event->text.empty() || event->text.find('\n') != std::string::npos)
      world_.violation(property::honest, format("rank %u: an event is not one line", rank_));
    event_ = std::move(event);
    has_weights_ = false;
    computing_ = false;
    catch_up_at_ = now + random_.around(program_.workload.catch_up, 0.5);
    alone_since_ = never;
  }
  if (event_) run_at(catch_up_at_);
}

bool AsyncWorker::is_ahead(const AsyncWorker& peer) const {
  if (numbers_.base_round != peer.numbers_.base_round) return true;
  for (std::size_t i = 0; i < std::min(numbers_.last.size(), peer.numbers_.last.size()); ++i)
    if (wire::serial_newer(peer.numbers_.last[i], numbers_.last[i])) return true;
  return false;
}

// A peer that lacks the same update is no help: where all do, the job must begin anew.
const AsyncWorker* AsyncWorker::donor(std::uint32_t base_round) {
  std::vector<const AsyncWorker*> donors;
  for (const AsyncWorker* peer : program_.workers) {
    if (peer == this || !peer->has_weights_ || peer->base_round() != base_round) continue;
    if (event_->kind != agent::EventKind::gone || is_ahead(*peer)) donors.push_back(peer);
  }
  return donors.empty() ? nullptr : donors[random_.below(donors.size())];
}

// Nobody who knows for a while: the job must begin anew.
void AsyncWorker::ask_for_reset(agent::Engine& engine, Time now) {
  if (alone_since_ == never) alone_since_ = now;
  if (now - alone_since_ < loneliness) return;
  alone_since_ = now;
  engine.request_reset(now);
}

void AsyncWorker::catch_up(agent::Engine& engine, Time now) {
  if (now < catch_up_at_) return;
  const std::uint32_t base_round = event_->base_round;
  // Nothing has happened yet, and all start from the same weights.
  if (event_->untouched && checks_.figures().pushes == 0 && !engine.resume(engine.numbers(), now)) {
    event_.reset();
    return enter(base_round);
  }
  const AsyncWorker* peer = donor(base_round);
  const bool first_here = peer == nullptr && event_->kind == agent::EventKind::reset;
  if (peer == nullptr && !first_here) {
    ask_for_reset(engine, now);
    catch_up_at_ = now + 10 * millisecond;
    run_at(catch_up_at_);
    return;
  }
  agent::UpdateNumbers numbers;
  if (peer != nullptr) {
    numbers = peer->numbers_;
  } else {
    numbers.base_round = base_round;
    numbers.last.assign(checks_.segments(), base_round);
  }
  if (const agent::Error error = engine.resume(numbers, now)) {
    if (error.code == agent::ErrorCode::gone) ask_for_reset(engine, now);  // the peer lacks it too
    catch_up_at_ = now + 5 * millisecond;
    run_at(catch_up_at_);
    return;
  }
  event_.reset();
  if (peer == nullptr) return enter(base_round);
  ++checks_.figures().catch_ups;
  weights_.assign(peer->weights_.begin(), peer->weights_.end());
  numbers_ = std::move(numbers);
  has_weights_ = true;
  checks_.resumed(rank_, numbers_);
}

void AsyncWorker::apply_updates(agent::Engine& engine, Time now) {
  if (now < nap_until_) return run_at(nap_until_);
  while (const auto update = engine.take_update()) {
    const std::size_t first = std::min<std::size_t>(update->first, weights_.size());
    const std::size_t size = std::min(update->values.size(), weights_.size() - first);
    const auto segment = std::span(weights_).subspan(first, size);
    const int times = apply_twice_ && update->number % 16 == 0 ? 2 : 1;
    for (int n = 0; n < times; ++n) {
      for (std::size_t i = 0; i < size; ++i) segment[i] += update->values[i];
    }
    if (update->segment < numbers_.last.size()) numbers_.last[update->segment] = update->number;
    world_.trace.add(now, What::update, host_.number(), update->segment, update->number);
    checks_.applied(rank_, numbers_.base_round, *update, segment);
    if (update->segment == 0) ++successes_;  // the job gets on
  }
  const agent::UpdateNumbers numbers = engine.numbers();
  if (numbers.base_round != numbers_.base_round || numbers.last != numbers_.last)
    world_.violation(property::once,
                     format("rank %u: the engine's update numbers are not those delivered", rank_));
  if (!program_.stopping && random_.chance(program_.workload.naps)) {
    nap_until_ = now + random_.between(0, longest_nap);
    run_at(nap_until_);
  }
}

std::uint32_t AsyncWorker::version() const {
  std::uint32_t least = ~0U;
  for (const std::uint32_t last : numbers_.last)
    least = std::min(least, last - numbers_.base_round);
  return least;
}

void AsyncWorker::compute(agent::Engine& engine, Time now) {
  const WorkloadSpec& load = program_.workload;
  while (in_flight_.size() < load.depth && !program_.stopping &&
         (load.operations == 0 || pushes_ < load.operations)) {
    if (!computing_) {
      computing_ = true;
      computed_on_ = version();
      compute_until_ = now + compute_time();
    }
    if (now < compute_until_) return run_at(compute_until_);
    computing_ = false;
    const std::uint32_t age = version() - computed_on_;
    if (age > load.staleness) {
      ++checks_.figures().stale_dropped;
      ++successes_;  // it could have pushed
      continue;
    }
    ++checks_.figures().staleness[age];
    push(engine, now);
  }
}

void AsyncWorker::push(agent::Engine& engine, Time now) {
  auto push = std::make_unique<Push>();
  push->gradient.resize(program_.workload.max_elements);
  push->serial = checks_.pushed(rank_, push->gradient);
  push->base_round = numbers_.base_round;
  push->submitted = now;
  push->deadline = now + program_.workload.deadline;
  world_.trace.add(now, What::submit, host_.number(), push->serial, numbers_.base_round);
  push->id = engine.push(push->gradient, push->deadline, now);
  ++pushes_;
  in_flight_.push_back(std::move(push));
}

void AsyncWorker::completed(const agent::Completion& completion, agent::Engine&, Time now) {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [&](const auto& push) { return push->id == completion.id; });
  if (found == in_flight_.end()) {
    world_.violation(property::honest,
                     format("rank %u: a completion of nothing that is under way", rank_));
    return;
  }
  const std::unique_ptr<Push> push = std::move(*found);
  in_flight_.erase(found);
  world_.trace.add(now, What::complete, host_.number(), push->serial,
                   static_cast<std::uint32_t>(completion.error.code));
  checks_.ended({rank_, push->serial, completion.error, push->base_round, push->submitted,
                 push->deadline, slack(push->deadline), program_.stopping});
  if (!checks_.unchanged(rank_, push->serial, push->gradient)) {
    world_.violation(property::exact_sum, format("rank %u: a pushed gradient was written", rank_));
  }
  if (!completion.error) ++successes_;
}

}  // namespace iswitch::sim
