// Who is missing, and operations that do not end in time.
#include <algorithm>

#include "agent/engine/state.h"
#include "agent/engine/texts.h"

namespace iswitch::agent {
namespace {

constexpr Time least_lateness = 50 * millisecond;
constexpr Time most_interval = 500 * millisecond;
/// Two requests unanswered for this long at a deadline: it is the switch that is gone.
constexpr Time silence = 100 * millisecond;

}  // namespace

Time Engine::State::inquiry_due() const {
  const Segment* oldest = stream.oldest();
  if (oldest == nullptr || membership.state() != EngineState::running) return never;
  if (inquiry.asked && inquiry.position == oldest->position) return inquiry.next;
  const Time timeout = stream.round_trip().timeout();
  const Time late = oldest->first_sent + std::max(4 * timeout, least_lateness);
  // Before the deadline even where the timeout has grown beyond it: its error is to name members.
  const Time latest = std::max(operations.earliest_inquiry(),
                               oldest->first_sent + std::min(timeout, least_lateness));
  // However fast the oldest changes, the switch is asked now and then only.
  return std::max(std::min(late, latest), inquiry.last + least_lateness);
}

void Engine::State::inquire() {
  if (now < inquiry_due()) return;
  const std::uint64_t position = stream.oldest()->position;
  if (!inquiry.asked || inquiry.position != position) {
    inquiry.asked = true;
    inquiry.answered = false;
    inquiry.missing = 0;
    inquiry.position = position;
    const Time deadline = operations.earliest_deadline();
    const Time half = deadline == never ? least_lateness : (deadline - now) / 2;
    inquiry.interval = std::clamp(half, options.min_retransmit, least_lateness);
  } else {
    inquiry.interval = std::min(2 * inquiry.interval, most_interval);
  }
  inquiry.last = now;
  inquiry.next = now + inquiry.interval;
  requests.help(membership.member(), {stream.slot_of(position), stream.round_of(position)}, now);
}

bool Engine::State::switch_silent() const {
  return requests.unanswered() >= 2 && now - requests.unanswered_since() >= silence;
}

std::optional<Error> Engine::State::standstill(const std::string& what) const {
  if (switch_silent() && requests.keys_differ())
    return Error{ErrorCode::refused, wire::Status::bad_tag, 0, what + ": " + text::another_key()};
  if (switch_silent())
    return Error{ErrorCode::switch_gone, wire::Status::ok, 0,
                 what + ": no answer from the switch for " +
                     text::duration(now - requests.unanswered_since()) + " to " +
                     std::to_string(requests.unanswered()) + " requests; check that switchd runs"};
  if (away.yes && membership.state() == EngineState::forming) {
    const wire::ReplyBody& job = membership.job();
    return Error{ErrorCode::timed_out, wire::Status::ok, 0,
                 what + ": the switch of job " + std::to_string(options.job) + " was gone " +
                     text::duration(now - away.since) +
                     " ago and the job forms again: " + std::to_string(job.members_now) + " of " +
                     std::to_string(job.members_expected) +
                     " members are back; look after the others"};
  }
  if (membership.state() == EngineState::halted)
    return Error{
        ErrorCode::halted, wire::Status::halted, 0,
        what + ": job " + std::to_string(options.job) + " is halted; resume it (switchctl resume)"};
  if (parent_missing)
    return Error{ErrorCode::timed_out, wire::Status::parent_not_ready, 0,
                 what + ": the switch's parent does not run job " + std::to_string(options.job) +
                     " (parent not ready): check the parent, and the way to it"};
  if (membership.state() == EngineState::joining || membership.state() == EngineState::forming) {
    Error error = membership.why_not_yet();
    error.text = what + ": " + error.text;
    return error;
  }
  return std::nullopt;
}

Error Engine::State::overdue_error(const Operation& operation) const {
  const std::string what = "operation " + std::to_string(operation.id) + " did not end within " +
                           text::duration(operation.request.deadline - operation.submitted);
  const std::string job = "job " + std::to_string(options.job);
  if (auto error = standstill(what)) return *error;
  Error error{ErrorCode::timed_out, wire::Status::ok, 0, {}};
  const Segment* oldest = stream.oldest();
  if (oldest == nullptr) {
    error.text =
        what + (broken ? ": the Reset of " + job + " that was asked for has not come"
                       : std::string(": nothing of it was sent; the deadline is too short"));
    return error;
  }
  const std::string where =
      text::slot(stream.slot_of(oldest->position), stream.round_of(oldest->position));
  const bool known = inquiry.answered && inquiry.position == oldest->position;
  if (known && inquiry.missing != 0) {
    error.missing = inquiry.missing;
    const std::string names = text::members(inquiry.missing, membership.member());
    error.text = what + ": " + names +
                 (names.find(',') == std::string::npos && names.find(" and ") == std::string::npos
                      ? " has"
                      : " have") +
                 " not contributed to " + where;
  } else {
    error.text = what + ": the result of " + where +
                 (known ? " was not complete and the switch has no open sum for it"
                        : " has not come, and the switch has not said who is missing");
  }
  return error;
}

void Engine::State::end_overdue() {
  while (const Operation* operation = operations.overdue(now)) {
    if (!async) return break_epoch(operation->id, overdue_error(*operation));
    const std::uint64_t index = operation->index;
    async->pushes.give_up(index);
    operations.fail_one(index, overdue_push(*operation));
  }
}

}  // namespace iswitch::agent
