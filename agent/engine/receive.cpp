// What a datagram from the switch means.
#include <utility>

#include "agent/engine/payload.h"
#include "agent/engine/state.h"
#include "agent/engine/texts.h"
#include "wire/serial.h"

namespace iswitch::agent {
namespace {

constexpr Time unasked = INT64_MIN;

}  // namespace

void Engine::State::on_result(const wire::Message& message, wire::Ecn ecn) {
  const wire::Header& header = message.header;
  const bool marked_here = ecn == wire::Ecn::ce;
  if (away.yes) {  // what it has said of itself must stay true
    ++statistics.ignored;
    return;
  }
  if (async) return on_update(message, marked_here);
  if (marked_here) stream.echo_mark();
  const Stream::Place place = stream.find(header.round, header.segment);
  if (place.found == Stream::Found::unknown || header.data_type() != wire::DataType::float32 ||
      header.member == 0) {
    ++statistics.ignored;
    return;
  }
  requests.heard();
  parent_missing = false;
  if (hand_back.active() && hand_back.answered(header.segment, header.round, marked_here, now))
    hand_back_answered();
  if (place.found == Stream::Found::duplicate) {
    ++statistics.duplicate_results;
    stream.duplicate(now);
    return;
  }
  const Segment& segment = stream.segment(place.position);
  Operation& operation = operations.at(segment.operation);
  if (!message.payload.empty() && message.payload.size() != segment.bytes) {
    const std::string what = text::slot(header.segment, header.round) + " came back with " +
                             std::to_string(message.payload.size()) + " bytes where " +
                             std::to_string(segment.bytes) + " were contributed";
    break_epoch(operation.id, {ErrorCode::mismatch, wire::Status::ok, 0,
                               "members disagree on the operation: " + what +
                                   "; issue the same operations in the same order everywhere"});
    return;
  }
  const std::uint64_t offset = (place.position - operation.first) * membership.job().segment_bytes;
  deliver(operation.request, offset, segment.bytes, message.payload, header.member);
  if (operation.request.kind == wire::OperationKind::broadcast && message.payload.empty() &&
      !operation.error) {
    // Every member gets this same result, so the stream goes on: no Reset is needed.
    operation.error = {ErrorCode::root_missing, wire::Status::ok, 0,
                       "nobody gave data to the broadcast: it was forced without its root, or no "
                       "member has rank " +
                           std::to_string(operation.request.root) + ", in " +
                           text::slot(header.segment, header.round) + "; repeat it"};
  }
  const bool partial = (header.flags & wire::flag::partial) != 0;
  const bool marked = marked_here || (header.flags & wire::flag::ecn_echo) != 0;
  ++statistics.results;
  statistics.gradient_bytes_received += message.payload.size();
  if (partial) ++statistics.partial_results;
  if (marked) ++statistics.ecn_marks;
  kept.keep(header.segment, place.position, header, message.payload);
  stream.acknowledge(place.position, marked, now);
  operations.segment_done(operation, header.member, partial);
}

void Engine::State::on_request(const wire::Message& message, Bytes datagram) {
  const bool member = membership.joined();
  if (!member || leaving || !requests.authentic_request(datagram)) {
    ++statistics.ignored;
    return;
  }
  requests.heard();
  const auto action = static_cast<wire::Action>(message.header.flags);
  wire::ReplyBody answer = membership.job();
  answer.status = wire::Status::ok;
  if (action == wire::Action::help) {
    const wire::SlotBody slot = wire::read_slot(message.payload);
    const Stream::Place place = stream.find(slot.round, slot.segment);
    if (place.found == Stream::Found::outstanding) stream.resend(place.position);
    if (!async)
      hand_back.resend(slot.segment);
    else if (const std::uint32_t number = slot.round - async->shift;
             !away.yes && kept.find(slot.segment, number) != nullptr)
      hand_back.once(slot.segment, number, slot.round);
    else
      async->pushes.resend(slot.segment);
    requests.answer(message.header, membership.member(), answer);
    return;
  }
  if (action == wire::Action::ping) {
    requests.answer(message.header, membership.member(), answer);
    return;
  }
  if (action != wire::Action::reset && action != wire::Action::halt &&
      action != wire::Action::resume && action != wire::Action::leave) {
    answer.status = wire::Status::unsupported;
    requests.answer(message.header, membership.member(), answer);
    return;
  }
  const Requests::Freshness freshness = requests.freshness(message.header);
  if (freshness == Requests::Freshness::replayed) answer.status = wire::Status::replayed_nonce;
  if (freshness == Requests::Freshness::fresh) {
    // While it is away the answer to its Rejoin is what counts.
    if (action == wire::Action::reset && !away.yes) {
      on_base_round(wire::read_reset(message.payload));
    } else if (action == wire::Action::halt || action == wire::Action::resume) {
      wire::ReplyBody job = membership.job();
      job.state = action == wire::Action::halt ? wire::JobState::halted : wire::JobState::running;
      on_job_state(job, unasked);
    }
    answer = membership.job();
    answer.status = wire::Status::ok;
  }
  requests.answer(message.header, membership.member(), answer);
  if (freshness == Requests::Freshness::fresh && action == wire::Action::leave) switch_leaves();
}

void Engine::State::on_reply(const wire::Message& message, Bytes datagram) {
  const Reply reply = requests.match(message, datagram);
  if (reply.answers == Answers::nothing) {
    ++statistics.ignored;
    return;
  }
  requests.heard();
  note_parent(reply);
  if (reply.answers == Answers::main) return on_main_reply(reply);
  if (!membership.joined()) return on_ping_while_away(reply);
  if (leaving) {  // what was asked before matters no more, unless there is no place left to leave
    if (reply.body.status == wire::Status::not_a_member && reply.answers != Answers::unasked)
      has_left();
    return;
  }
  if (reply.body.status == wire::Status::not_a_member) {
    if (reply.answers != Answers::unasked) return lose_membership();
    // Perhaps about a contribution sent before the last Join: only an answer to a question counts.
    if (!confirming) {
      confirming = true;
      ping_at = now;
    }
    return;
  }
  if (reply.answers == Answers::ping) confirming = false;
  // It runs now: the answer to the Join says from where.
  if (reply.answers == Answers::unasked && membership.state() == EngineState::forming &&
      reply.body.state != wire::JobState::forming)
    requests.hurry(now);
  on_job_state(reply.body, reply.answers == Answers::unasked ? unasked : reply.asked_at);
  if (reply.answers == Answers::help) on_help_reply(reply);
  if (reply.answers == Answers::unasked) on_refused_segment(reply.body);
}

/// A leaf tells that its parent does not run the job (yet, or any more).
void Engine::State::note_parent(const Reply& reply) {
  if (reply.body.status == wire::Status::parent_not_ready)
    parent_missing = true;
  else if (reply.answers != Answers::unasked && reply.body.status == wire::Status::ok &&
           reply.body.state == wire::JobState::running)
    parent_missing = false;
}

void Engine::State::on_main_reply(const Reply& reply) {
  if (leaving) {
    if (reply.action == wire::Action::leave) has_left();
    return;
  }
  const bool joining = reply.action == wire::Action::join || reply.action == wire::Action::rejoin;
  if (joining && away.yes) return on_return_reply(reply);
  if (joining) {
    const bool was_member = membership.joined();
    if (was_member) {
      // Polling while the job forms. A place that was lost meanwhile shows as another status.
      if (!reply.authentic) return;
    } else {
      requests.forget_peer();
      confirming = false;
    }
    // None: base_round.
    const std::optional<std::uint32_t> origin = wire::decode_resumed(reply.body.missing).origin;
    const std::uint32_t before =
        async && begun() ? async->base_round() : membership.job().base_round;
    if (membership.on_join_reply(reply, now)) {
      base_known_at = now;
      if (async) async->told_origin = origin;
      if (async && membership.state() == EngineState::forming) async->saw_forming = true;
      if (begun() && membership.job().base_round != before) {
        const Error error = reset_error(before, membership.job().base_round);
        requests.was_reset();
        async ? restart_updates(error, origin) : end_epoch(error);
      }
      follow_job_state();
    }
    if (membership.state() == EngineState::failed) stop_everything();
    return;
  }
  if (!membership.joined()) return;
  if (reply.body.status == wire::Status::not_a_member) return lose_membership();
  if (reply.body.status == wire::Status::replayed_nonce) requests.jump_nonces();
  if (reply.action == wire::Action::reset && broken) reset_at = now + options.ping_interval / 2;
  on_job_state(reply.body, reply.asked_at);
}

void Engine::State::on_help_reply(const Reply& reply) {
  if (async) return on_async_help_reply(reply);
  const wire::ReplyBody& body = reply.body;
  if (body.status == wire::Status::gone) return on_refused_segment(body);
  const Segment* oldest = stream.oldest();
  if (!inquiry.asked || oldest == nullptr || oldest->position != inquiry.position ||
      reply.about.segment != stream.slot_of(inquiry.position) ||
      reply.about.round != stream.round_of(inquiry.position))
    return;
  inquiry.answered = true;
  inquiry.missing = body.missing;
  if ((body.missing >> membership.member() & 1) != 0) stream.resend(inquiry.position);
}

void Engine::State::on_job_state(const wire::ReplyBody& body, Time asked_at) {
  // While a job forms, the switch may restart and a repeated Join make this a member of its next
  // life unnoticed. So only the answer to a Join tells that the job runs, and in which round it
  // began.
  if (!membership.has_run()) return;
  // Refusals may carry zeros: nothing is learned from those.
  const bool described = body.status == wire::Status::ok || body.status == wire::Status::gone ||
                         body.status == wire::Status::halted ||
                         body.status == wire::Status::parent_not_ready ||
                         body.status == wire::Status::mismatch;
  if (!described || !unfit_job(body, options).empty()) return;
  const std::uint32_t known = membership.job().base_round;
  if (wire::serial_newer(known, body.base_round)) {
    // Overtaken by a Reset; or, when asked since that was learned, the word of a switch that
    // restarted.
    if (asked_at > base_known_at) lose_membership();
    return;
  }
  wire::ReplyBody job = body;
  job.base_round = known;
  const bool same_shape = job.slots == membership.job().slots &&
                          job.segment_bytes == membership.job().segment_bytes &&
                          job.shards == membership.job().shards;
  // Another shape under a running stream can only be another job under the same number.
  if (!same_shape && begun()) return lose_membership();
  membership.adopt(job);
  if (body.base_round != known) on_base_round(body.base_round);
  follow_job_state();
}

void Engine::State::follow_job_state() {
  if (away.yes) return;
  const bool running = membership.state() == EngineState::running;
  if (hand_back.active() && running == hand_back.paused())
    running ? hand_back.resume(now) : hand_back.pause();
  if (async) return follow_async();
  if (!stream.active()) return begin_epoch_if_possible();
  // What is handed back goes first.
  if (!running || hand_back.active())
    stream.pause();
  else if (stream.paused())
    stream.resume(now);
}

void Engine::State::on_base_round(std::uint32_t base_round) {
  const std::uint32_t before = membership.job().base_round;
  if (!wire::serial_newer(base_round, before)) return;
  membership.set_base_round(base_round);
  requests.was_reset();
  base_known_at = now;
  last_ping = now - options.ping_interval;  // a Reset does not say who is a member now: ask
  if (async) {
    if (begun()) restart_updates(reset_error(before, base_round));
    return follow_async();
  }
  if (stream.active()) {
    end_epoch(reset_error(before, base_round));
    ++statistics.resets;
  } else if (broken) {
    ++statistics.resets;
  }
  broken = false;
  reset_at = never;
  begin_epoch_if_possible();
}

void Engine::State::on_refused_segment(const wire::ReplyBody& body) {
  const bool gone = body.status == wire::Status::gone;
  if ((!gone && body.status != wire::Status::mismatch) || !begun() || away.yes) return;
  const auto slot = static_cast<std::uint32_t>(body.missing >> 32);
  const auto round = static_cast<std::uint32_t>(body.missing);
  if (async) {
    if (gone) return fall_behind(slot, round);
    const auto index = async->pushes.find(slot, round);
    if (!index) return;
    async->pushes.give_up(*index);
    operations.fail_one(*index, {ErrorCode::mismatch, wire::Status::mismatch, 0,
                                 "members disagree on the vector in " + text::slot(slot, round) +
                                     "; push vectors of one length everywhere"});
    return;
  }
  // The others have that round and more: no need to hand it back.
  if (gone && hand_back.answered(slot, round, false, now)) return hand_back_answered();
  const Stream::Place place = stream.find(round, slot);
  if (place.found == Stream::Found::unknown) return;
  // A late copy of a contribution is stale at the switch; its result has been taken.
  if (gone && place.found == Stream::Found::duplicate) return;
  const Operation* operation = operations.covering(place.position);
  if (operation == nullptr) return;
  const std::string where = text::slot(slot, round);
  if (gone) {
    break_epoch(operation->id,
                {ErrorCode::gone, wire::Status::gone, 0,
                 "the result of " + where +
                     " is no longer kept: this member fell too far behind; a Reset of job " +
                     std::to_string(options.job) + " follows"});
    return;
  }
  break_epoch(operation->id,
              {ErrorCode::mismatch, wire::Status::mismatch, 0,
               "members disagree on the operation in " + where +
                   " (kind, length, root or tag); issue the same operations in the same "
                   "order everywhere"});
}

}  // namespace iswitch::agent
