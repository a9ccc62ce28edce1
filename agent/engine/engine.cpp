#include "agent/engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/engine/payload.h"
#include "agent/engine/state.h"

namespace iswitch::agent {

Engine::Engine(EngineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

void Engine::join(Time now, Time deadline) {
  State& s = *state_;
  s.now = now;
  if (s.membership.joined() || s.membership.state() == EngineState::joining) return;
  s.leaving = false;
  s.broken = false;
  s.reset_at = never;
  s.confirming = false;
  s.parent_missing = false;
  s.away.yes = false;
  s.forget_way_back();
  s.report.reset();
  s.requests.forget_peer();
  s.membership.join(now, deadline);
}

void Engine::leave(Time now, Time deadline) {
  State& s = *state_;
  s.now = now;
  if (s.leaving || s.membership.state() == EngineState::left) return;
  s.operations.fail_all({ErrorCode::closed, wire::Status::ok, 0,
                         "this member left job " + std::to_string(s.options.job) +
                             " while the operation was under way"});
  s.stream.stop();
  if (s.async) s.async->pushes.stop();
  s.forget_way_back();
  s.broken = false;
  s.reset_at = never;
  s.confirming = false;
  s.leaving = true;
  const bool was_away = std::exchange(s.away.yes, false);
  if (!s.membership.joined()) {
    // The switch may have let it in again, and its answer be lost.
    if (was_away) s.requests.farewell(s.membership.member(), now);
    s.requests.stop();
    s.membership.set_state(EngineState::left);
    return;
  }
  s.leave_deadline = deadline;
  s.requests.start({wire::Action::leave, {}}, s.membership.member(),
                   {s.options.join_retry, s.options.ping_interval}, now, now);
}

void Engine::State::has_left() {
  requests.stop();
  membership.set_state(EngineState::left);
  leave_deadline = never;
}

void Engine::use_pages() {
  constexpr std::size_t most = std::size_t{16} << 20;  // some ten milliseconds
  state_->kept.use_pages(most);
}

void Engine::limit_receive_datagrams(std::uint32_t datagrams) {
  State& s = *state_;
  s.options.receive_datagrams = datagrams;
  // Under way it counts from the next epoch (asynchronous: place) on.
  if (s.async) return s.async->pushes.fit_window(s.now);
  if (!s.stream.untouched() || s.away.yes || s.hand_back.active()) return;
  s.stream.begin(s.membership.job(), s.membership.member(), s.now);
  if (s.membership.state() == EngineState::halted) s.stream.pause();
}

void Engine::receive(Bytes datagram, wire::Ecn ecn, Time now) {
  State& s = *state_;
  s.now = now;
  wire::Message message;
  if (wire::parse_message(datagram, message) != wire::Fault::none) {
    ++s.statistics.malformed;
    return;
  }
  const bool over = s.membership.state() == EngineState::left ||
                    s.membership.state() == EngineState::failed ||
                    s.membership.state() == EngineState::idle;
  if (message.header.job != s.options.job || over) {
    ++s.statistics.ignored;
    return;
  }
  switch (message.header.type) {
    case wire::Type::contribution:
      ++s.statistics.ignored;
      return;
    case wire::Type::result:
      return s.on_result(message, ecn);
    case wire::Type::request:
      ++s.statistics.control_received;
      return s.on_request(message, datagram);
    case wire::Type::reply:
      ++s.statistics.control_received;
      return s.on_reply(message, datagram);
  }
}

std::size_t Engine::transmit(std::span<Outgoing> out, Time now) {
  State& s = *state_;
  s.now = now;
  std::size_t count = 0;
  while (count < out.size() && s.requests.transmit(out[count])) ++count;
  while (count < out.size() && s.hand_back.transmit(out[count], now)) ++count;
  while (count < out.size() &&
         (s.async ? s.async->pushes.transmit(out[count], now) : s.stream.transmit(out[count], now)))
    ++count;
  return count;
}

void Engine::tick(Time now) {
  State& s = *state_;
  s.now = now;
  if (s.leaving && s.membership.joined() && now >= s.leave_deadline) s.has_left();
  const EngineState before = s.membership.state();
  s.membership.tick(now);
  if (before != EngineState::failed && s.membership.state() == EngineState::failed)
    s.stop_everything();
  s.end_overdue();
  s.give_up_coming_back();
  s.ask_for_reset();
  s.hand_back.tick(now);
  if (s.async) {
    s.async->pushes.tick(now);
    s.ask_for_updates();
    s.notice_lost_updates();
  } else {
    s.stream.tick(now);
    s.inquire();
  }
  s.requests.tick(s.membership.member(), s.membership.joined() && !s.leaving, now);
  s.ping_while_away();
  s.keep_alive();
}

Time Engine::State::ping_due() const {
  if (confirming) return ping_at;
  const bool forms_again = membership.state() == EngineState::forming && membership.has_run();
  return last_ping + (forms_again ? std::min(membership.forming_interval(), options.ping_interval)
                                  : options.ping_interval);
}

/// Also while contributions flow: only the reply to a Ping brings the number of members up to date.
void Engine::State::keep_alive() {
  if (!membership.joined() || leaving) return;
  if (now < ping_due()) return;
  requests.ping(membership.member(), now);
  last_ping = now;
  ping_at = now + options.join_retry;
}

Time Engine::next_deadline() const {
  const State& s = *state_;
  const EngineState state = s.membership.state();
  if (s.requests.ready() || s.hand_back.ready() || s.stream.ready() ||
      (s.async && s.async->pushes.ready()))
    return s.now;
  Time next = std::min(
      {s.requests.next_deadline(), s.membership.next_deadline(), s.operations.earliest_deadline()});
  if (state == EngineState::left || state == EngineState::failed || state == EngineState::idle)
    return next;
  if (s.leaving) return std::min(next, s.leave_deadline);
  if (s.away.yes) next = std::min(next, s.away.until);
  next = std::min(next, s.hand_back.next_deadline());
  next =
      s.async
          ? std::min({next, s.async->pushes.next_deadline(), s.asking_due(), s.lost_updates_due()})
          : std::min({next, s.stream.next_deadline(), s.inquiry_due(), s.reset_at});
  if (s.membership.joined()) next = std::min(next, s.ping_due());
  return next;
}

/// Why nothing can be asked for any more, or not yet.
Error Engine::State::unready() const {
  const std::string job = "job " + std::to_string(options.job);
  const EngineState state = membership.state();
  if (leaving || state == EngineState::left)
    return {ErrorCode::closed, wire::Status::ok, 0, "this member has left " + job};
  if (state == EngineState::idle)
    return {ErrorCode::not_joined, wire::Status::ok, 0, "join " + job + " first"};
  return state == EngineState::failed ? membership.error() : Error{};
}

OperationId Engine::submit(const Request& request, Time now) {
  State& s = *state_;
  s.now = now;
  const OperationId id = s.operations.next_id();
  const auto refuse = [&](ErrorCode code, std::string text) {
    s.operations.complete_at_once(id, {code, wire::Status::ok, 0, std::move(text)});
    return id;
  };
  if (const char* problem = unfit(request); problem != nullptr)
    return refuse(ErrorCode::bad_argument, problem);
  if (Error error = s.unready(); error) {
    s.operations.complete_at_once(id, std::move(error));
    return id;
  }
  if (s.async)
    return refuse(ErrorCode::bad_argument,
                  "this member was started for asynchronous jobs, which have push and updates");
  if (s.report) {
    const Error report = *std::exchange(s.report, std::nullopt);
    s.operations.add(id, request, now);
    s.operations.fail_all(report);
    return id;
  }
  if (s.operations.failure_untaken()) {
    s.operations.add(id, request, now);
    s.operations.fail_all(
        {ErrorCode::job_reset, wire::Status::ok, 0,
         "submitted behind an operation that had failed; its failure comes first"});
    return id;
  }
  if (request.kind != wire::OperationKind::barrier && request.output.empty()) {
    s.operations.complete_at_once(id, {});
    return id;
  }
  s.operations.add(id, request, now);
  s.stream.more(now);
  return id;
}

std::optional<Completion> Engine::take_completion() { return state_->operations.take(); }

OperationId Engine::push(std::span<const float> gradient, Time deadline, Time now) {
  State& s = *state_;
  s.now = now;
  const OperationId id = s.operations.next_id();
  if (Error error = s.unready(); error) {
    s.operations.complete_at_once(id, std::move(error));
  } else if (!s.async || gradient.size() != s.options.elements) {
    s.operations.complete_at_once(
        id, {ErrorCode::bad_argument, wire::Status::ok, 0,
             s.async ? "a push of " + std::to_string(gradient.size()) + " floats; the vector has " +
                           std::to_string(s.options.elements)
                     : std::string("this member was started for synchronous jobs: push is for "
                                   "asynchronous ones")});
  } else if (needs_weights()) {
    s.operations.complete_at_once(id, s.async->why);
  } else {
    Request request;
    request.input = gradient;
    request.deadline = deadline;
    const std::uint64_t bytes = s.options.elements * sizeof(float);
    const std::uint32_t segment = s.membership.job().segment_bytes;
    s.operations.add(id, request, now).segments =
        segment == 0 ? 0 : (bytes + segment - 1) / segment;
    s.async->pushes.more(now);
    s.async->asking.expect(s.async->pushes.first_timeout(), now);
  }
  return id;
}

void Engine::give_up_pushes(Time now) {
  State& s = *state_;
  s.now = now;
  if (!s.async) return;
  s.operations.fail_all({ErrorCode::timed_out, wire::Status::ok, 0,
                         "the push was given up before all of it was summed"});
  s.async->pushes.give_up_all();
}

std::optional<Update> Engine::take_update() {
  State& s = *state_;
  if (!s.async || s.async->phase != Asynchronous::Phase::live) return std::nullopt;
  std::optional<Update> update = s.async->updates.take();
  if (!update) return update;
  ++s.statistics.updates;
  // Where there was no room for what came, there is now.
  if (s.async->updates.hole(update->segment))
    s.async->asking.expect(s.async->pushes.first_timeout(), s.now);
  return update;
}

bool Engine::has_news() const {
  const State& s = *state_;
  return s.async && (s.async->event || s.async->updates.ready());
}

std::optional<Event> Engine::take_event() {
  return state_->async ? std::exchange(state_->async->event, std::nullopt) : std::nullopt;
}

bool Engine::needs_weights() const {
  return state_->async && state_->async->phase == Asynchronous::Phase::waiting;
}

UpdateNumbers Engine::numbers() const {
  const State& s = *state_;
  UpdateNumbers numbers;
  if (!s.async || !s.begun()) return numbers;
  numbers.base_round = s.async->origin;
  if (needs_weights())
    numbers.last.assign(s.async->updates.segments(), numbers.base_round);
  else
    numbers.last = s.async->updates.taken();
  return numbers;
}

Error Engine::resume(const UpdateNumbers& numbers, Time now) {
  State& s = *state_;
  s.now = now;
  if (Error error = s.unready(); error) return error;
  if (!s.async)
    return {ErrorCode::bad_argument, wire::Status::ok, 0,
            "this member was started for synchronous jobs: resume is for asynchronous ones"};
  return s.resume_updates(numbers);
}

void Engine::abandon(const Error& error) {
  State& s = *state_;
  s.operations.fail_all(error);
  s.stream.stop();
  if (s.async) s.async->pushes.stop();
  s.forget_way_back();
  s.away.yes = false;
  s.broken = false;
  s.reset_at = never;
  s.membership.fail(error);
}

void Engine::request_reset(Time now) {
  state_->now = now;
  state_->requests.want({wire::Action::reset, ResetBody{}});
}

void Engine::request_threshold(std::uint16_t threshold, Time now) {
  state_->now = now;
  state_->requests.want({wire::Action::set_threshold, ThresholdBody{threshold}});
}

void Engine::request_halt(bool halted, Time now) {
  state_->now = now;
  state_->requests.want({halted ? wire::Action::halt : wire::Action::resume, {}});
}

void Engine::request_force(std::uint32_t segment, std::uint32_t round, Time now) {
  state_->now = now;
  state_->requests.want({wire::Action::force_broadcast, wire::SlotBody{segment, round}});
}

EngineState Engine::state() const { return state_->membership.state(); }
const Error& Engine::join_error() const { return state_->membership.error(); }
wire::MemberId Engine::member() const { return state_->membership.member(); }
const wire::ReplyBody& Engine::job() const { return state_->membership.job(); }
std::uint32_t Engine::origin() const {
  if (state_->async) return state_->async->origin;
  return state_->stream.active() ? state_->stream.origin() : state_->membership.job().base_round;
}

Statistics Engine::statistics() const {
  Statistics statistics = state_->statistics;
  if (state_->async)
    state_->async->pushes.describe(statistics);
  else
    state_->stream.describe(statistics);
  return statistics;
}

}  // namespace iswitch::agent
