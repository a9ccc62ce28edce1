// Beginnings and ends of epochs.
#include "agent/engine/state.h"
#include "agent/engine/texts.h"

namespace iswitch::agent {
namespace {

/// Members that wait for the same missing one reach their deadlines at about the same time. Each
/// should name it before the Reset that the first one asks for takes the operation away.
Time reset_grace(wire::MemberId member) {
  return 100 * millisecond +
         Time{member} * 5 * millisecond;  // apart, so that one Reset does for all
}

}  // namespace

void Engine::State::begin_epoch_if_possible() {
  const EngineState state = membership.state();
  if (stream.active() || leaving || away.yes ||
      (state != EngineState::running && state != EngineState::halted))
    return;
  if (broken) {
    if (reset_at == never) reset_at = now + reset_grace(membership.member());
    return;
  }
  inquiry.asked = inquiry.answered = false;
  const wire::ReplyBody& job = membership.job();
  if (options.resume_within > 0) kept.begin(job.slots, 1, job.segment_bytes);
  stream.begin(job, membership.member(), now);
  if (state == EngineState::halted) stream.pause();
}

void Engine::State::end_epoch(const Error& error) {
  if (!operations.empty())
    operations.fail_all(error);
  else if (!report)
    report = error;
  forget_way_back();
  stream.stop();
}

void Engine::State::break_epoch(OperationId culprit, const Error& error) {
  Error others;
  others.code = ErrorCode::job_reset;
  others.missing = error.missing;
  others.text = "operation " + std::to_string(culprit) + " of this member failed (" +
                error_name(error.code) +
                "), which ends all that were under way with it; a Reset of job " +
                std::to_string(options.job) + " follows, all members start again together";
  operations.fail_all(culprit, error, others);
  forget_way_back();
  stream.stop();
  if (away.yes) {
    // A member that comes with nothing to go on with makes the job start afresh: as good as a
    // Reset.
    away.yes = false;
    renew_incarnation();
    return membership.rejoin(now, now);
  }
  broken = true;
  reset_at = membership.joined() ? now + reset_grace(membership.member()) : never;
}

void Engine::State::stop_everything() {
  operations.fail_all(membership.error());
  away.yes = false;
  forget_way_back();
  stream.stop();
  if (async) async->pushes.stop();
}

void Engine::State::lose_membership() {
  const Error error{
      ErrorCode::job_reset, wire::Status::not_a_member, 0,
      "the switch does not know this member any more: it restarted or evicted this member; "
      "joining job " +
          std::to_string(options.job) + " again"};
  confirming = false;
  if (can_come_back()) return go_away(now);
  if (async) return take_new_place(error, now);
  if (stream.active()) end_epoch(error);
  broken = false;
  reset_at = never;
  membership.rejoin(now, now);
}

void Engine::State::switch_leaves() {
  const Error error{ErrorCode::switch_gone, wire::Status::ok, 0,
                    "the switch said that it is going down; joining job " +
                        std::to_string(options.job) + " again when one answers"};
  confirming = false;
  if (can_come_back()) return go_away(now + options.join_retry);
  if (async) return take_new_place(error, now + options.join_retry);
  if (stream.active() || !operations.empty()) end_epoch(error);
  broken = false;
  reset_at = never;
  membership.rejoin(now + options.join_retry, now);
}

void Engine::State::ask_for_reset() {
  if (!broken || now < reset_at || !membership.joined()) return;
  if (requests.main()) {
    reset_at = now + options.join_retry;  // one request at a time
    return;
  }
  requests.start({wire::Action::reset, ResetBody{}}, membership.member(),
                 {options.join_retry, options.ping_interval}, now, now);
  reset_at = never;
}

Error Engine::State::reset_error(std::uint32_t before, std::uint32_t after) const {
  return {ErrorCode::job_reset, wire::Status::ok,
          inquiry.answered ? inquiry.missing : wire::MemberMask{0},
          "job " + std::to_string(options.job) + " was reset (base round " +
              std::to_string(before) + " to " + std::to_string(after) +
              "): a member joined or gave up an operation, or an operator asked; all members start "
              "again together" +
              missing_so_far()};
}

std::string Engine::State::missing_so_far() const {
  const Segment* oldest = stream.oldest();
  if (!inquiry.answered || inquiry.missing == 0 || oldest == nullptr ||
      oldest->position != inquiry.position)
    return {};
  return "; " + text::members(inquiry.missing, membership.member()) + " had not contributed to " +
         text::slot(stream.slot_of(oldest->position), stream.round_of(oldest->position));
}

}  // namespace iswitch::agent
