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
  s.broken = false;
  s.reset_at = never;
  s.confirming = false;
  s.leaving = true;
  if (!s.membership.joined()) {
    s.requests.stop();
    s.membership.set_state(EngineState::left);
    return;
  }
  s.leave_deadline = deadline;
  s.requests.start({wire::Action::leave, {}}, s.membership.member(),
                   {s.options.join_retry, s.options.ping_interval}, now, now);
}

void Engine::limit_receive_datagrams(std::uint32_t datagrams) {
  State& s = *state_;
  s.options.receive_datagrams = datagrams;
  // Under way it counts from the next epoch on.
  if (!s.stream.untouched()) return;
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
  while (count < out.size() && s.stream.transmit(out[count], now)) ++count;
  return count;
}

void Engine::tick(Time now) {
  State& s = *state_;
  s.now = now;
  if (s.leaving && s.membership.joined() && now >= s.leave_deadline) {
    s.requests.stop();
    s.membership.set_state(EngineState::left);
  }
  const EngineState before = s.membership.state();
  s.membership.tick(now);
  if (before != EngineState::failed && s.membership.state() == EngineState::failed) {
    s.operations.fail_all(s.membership.error());
    s.stream.stop();
  }
  s.end_overdue();
  s.ask_for_reset();
  s.stream.tick(now);
  s.inquire();
  s.requests.tick(s.membership.member(), s.membership.joined() && !s.leaving, now);
  s.keep_alive();
}

/// Also while contributions flow: only the reply to a Ping brings the number of members up to date.
void Engine::State::keep_alive() {
  if (!membership.joined() || leaving) return;
  const Time due = confirming ? ping_at : last_ping + options.ping_interval;
  if (now < due) return;
  requests.ping(membership.member(), now);
  last_ping = now;
  ping_at = now + options.join_retry;
}

Time Engine::next_deadline() const {
  const State& s = *state_;
  const EngineState state = s.membership.state();
  if (s.requests.ready() || s.stream.ready()) return s.now;
  Time next = std::min(
      {s.requests.next_deadline(), s.membership.next_deadline(), s.operations.earliest_deadline()});
  if (state == EngineState::left || state == EngineState::failed || state == EngineState::idle)
    return next;
  if (s.leaving) return std::min(next, s.leave_deadline);
  next = std::min({next, s.stream.next_deadline(), s.inquiry_due(), s.reset_at});
  if (s.membership.joined())
    next = std::min(next, s.confirming ? s.ping_at : s.last_ping + s.options.ping_interval);
  return next;
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
  const std::string job = "job " + std::to_string(s.options.job);
  const EngineState state = s.membership.state();
  if (s.leaving || state == EngineState::left)
    return refuse(ErrorCode::closed, "this member has left " + job);
  if (state == EngineState::idle) return refuse(ErrorCode::not_joined, "join " + job + " first");
  if (state == EngineState::failed) {
    s.operations.complete_at_once(id, s.membership.error());
    return id;
  }
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

void Engine::abandon(const Error& error) {
  State& s = *state_;
  s.operations.fail_all(error);
  s.stream.stop();
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

Statistics Engine::statistics() const {
  Statistics statistics = state_->statistics;
  state_->stream.describe(statistics);
  return statistics;
}

}  // namespace iswitch::agent
