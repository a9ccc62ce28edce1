// Pushes and updates (protocol.md section 5).
#include <algorithm>
#include <utility>

#include "agent/engine/state.h"
#include "agent/engine/texts.h"
#include "wire/serial.h"

namespace iswitch::agent {
namespace {

using Phase = Asynchronous::Phase;

std::string event_text(EventKind kind, const EngineOptions& options, const Error& error) {
  const std::string remedy = "; take weights and update numbers from a peer and resume with them";
  if (kind == EventKind::joined)
    return "job " + std::to_string(options.job) + " was at work when this member joined" + remedy;
  return error.text + remedy;
}

}  // namespace

void Engine::State::follow_async() {
  const EngineState state = membership.state();
  Asynchronous& a = *async;
  if (leaving || away.yes || (state != EngineState::running && state != EngineState::halted)) {
    if (a.pushes.active()) a.pushes.pause();
    return;
  }
  if (a.phase == Phase::unbegun) {
    begin_updates(a.told_origin);
    if (a.saw_forming) {
      a.phase = Phase::live;
      a.updates.resume(a.updates.taken());
      a.asking.begin(a.updates.segments(), now);
    } else {
      a.phase = Phase::probing;
      a.probe_interval = options.join_retry;
      a.probe_at = now;
    }
  }
  if (a.phase != Phase::live) return;
  if (!a.pushes.active()) {
    a.pushes.begin(membership.job(), membership.member(), now);
    a.bit_in_doubt.assign(a.updates.segments(), !a.saw_forming);
    a.asking.expect(a.pushes.first_timeout(), now);
  }
  if (state == EngineState::halted || a.settling.active())
    a.pushes.pause();
  else if (a.pushes.paused())
    a.pushes.resume(now);
}

void Engine::State::begin_updates(std::optional<std::uint32_t> origin) {
  Asynchronous& a = *async;
  wire::ReplyBody job = membership.job();
  a.origin = origin.value_or(job.base_round);
  a.shift = job.base_round - a.origin;
  a.slots = job.slots;
  a.segment_bytes = job.segment_bytes;
  job.base_round = a.origin;
  a.updates.begin(job, options.elements);
  if (options.resume_within > 0) kept.begin(a.updates.segments(), job.history, job.segment_bytes);
}

void Engine::State::on_update(const wire::Message& message, bool marked_here) {
  Asynchronous& a = *async;
  const wire::Header& header = message.header;
  const std::uint32_t base_round = membership.job().base_round;
  const bool settles = a.settling.active() && header.segment < a.updates.segments() &&
                       (header.flags & wire::flag::settled) != 0 &&
                       !wire::serial_newer(base_round, header.round);
  if (settles) note_settled(header.segment, header.round, marked_here);
  if (settles && !a.settling.active()) return;  // this member has left its place
  if (settles && header.round == base_round)
    requests.heard();  // there has been no update
  else
    take_result(message, marked_here);
  if (a.settling.active() && header.segment < a.updates.segments())
    advance_settling(header.segment);
}

void Engine::State::take_result(const wire::Message& message, bool marked_here) {
  Asynchronous& a = *async;
  const wire::Header& header = message.header;
  if (marked_here) a.pushes.echo_mark();
  // Before its first Join is answered a member knows neither the vector's segments nor the numbers.
  if (a.phase == Phase::unbegun || header.segment >= a.updates.segments() ||
      header.data_type() != wire::DataType::float32 || header.member == 0 ||
      !wire::serial_newer(header.round, membership.job().base_round)) {
    ++statistics.ignored;
    return;
  }
  requests.heard();
  parent_missing = false;
  const std::uint32_t bytes = a.updates.bytes_of(header.segment);
  if (!message.payload.empty() && message.payload.size() != bytes) {
    ++statistics.ignored;
    const Error error{ErrorCode::mismatch, wire::Status::ok, 0,
                      "members disagree on the vector: " +
                          text::slot(header.segment, header.round) + " came with " +
                          std::to_string(message.payload.size()) + " bytes where this member has " +
                          std::to_string(bytes) + "; push vectors of one length everywhere"};
    operations.fail_all(error);
    a.pushes.give_up_all();
    return;
  }
  const bool partial = (header.flags & wire::flag::partial) != 0;
  const std::uint32_t number = header.round - a.shift;
  switch (a.updates.store({header.segment, number, header.member, partial, message.payload})) {
    case Updates::Stored::copy:
      ++statistics.duplicate_results;
      a.pushes.duplicate(now);
      return;
    case Updates::Stored::refused:
      ++statistics.updates_refused;
      // Far ahead of what is here: a hole all the same.
      if (a.phase == Phase::live)
        a.asking.heard(a.updates, header.segment, a.pushes.first_timeout(), now);
      return;
    case Updates::Stored::fresh:
      break;
  }
  const bool marked = marked_here || (header.flags & wire::flag::ecn_echo) != 0;
  ++statistics.results;
  statistics.gradient_bytes_received += message.payload.size();
  if (partial) ++statistics.partial_results;
  if (marked) ++statistics.ecn_marks;
  kept.keep(header.segment, number, header, message.payload);
  if (a.settling.active()) a.settling.progress_at = now;
  acknowledge_push(header, marked);
  if (a.phase == Phase::live)
    a.asking.heard(a.updates, header.segment, a.pushes.first_timeout(), now);
  if (a.phase == Phase::probing) need_weights(EventKind::joined, {});
}

void Engine::State::acknowledge_push(const wire::Header& header, bool marked) {
  Asynchronous& a = *async;
  const std::uint32_t segment = header.segment;
  const wire::MemberId member = membership.member();
  const bool mine = member < wire::max_members && (header.set >> member & 1) != 0;
  const bool perhaps_a_predecessor = segment < a.bit_in_doubt.size() && a.bit_in_doubt[segment];
  // Who is in it is not known to the switch: all, if it waited for all.
  const bool unnamed = (header.flags & wire::flag::retransmit) != 0;
  const bool told = unnamed ? mine && a.waited_for_all : true;
  // Since the restart what has been settled is known, not yet who is in it.
  const bool old = unnamed || (a.settling.active() &&
                               a.settling.stage[segment] != Asynchronous::Settling::Stage::done);
  if (!told || (mine && old && perhaps_a_predecessor)) {
    a.pushes.abandon(segment,
                     {ErrorCode::in_doubt, wire::Status::ok, 0,
                      "whether the push is in " + text::slot(segment, header.round) +
                          " got lost with a switch that restarted; the rest of it is summed"},
                     now);
    return;
  }
  if (!mine) return;
  if (segment < a.bit_in_doubt.size()) a.bit_in_doubt[segment] = false;
  const bool partial = (header.flags & wire::flag::partial) != 0;
  a.pushes.acknowledge(segment, header.member, partial, marked, now);
}

void Engine::State::need_weights(EventKind kind, const Error& error) {
  Asynchronous& a = *async;
  a.phase = Phase::waiting;
  a.gone.reset();
  a.event = Event{kind, a.origin, false, event_text(kind, options, error)};
  a.why = {kind == EventKind::reset ? ErrorCode::job_reset : ErrorCode::gone, error.status, 0,
           a.event->text};
  a.updates.wait();
  a.pushes.stop();
  operations.fail_all(a.why);
}

void Engine::State::restart_updates(const Error& error, std::optional<std::uint32_t> origin) {
  forget_way_back();
  begin_updates(origin);
  ++statistics.resets;
  need_weights(EventKind::reset, error);
}

void Engine::State::take_new_place(const Error& error, Time at) {
  Asynchronous& a = *async;
  a.pushes.stop();
  forget_way_back();
  a.saw_forming = false;
  if (begun()) operations.fail_all(error);
  renew_incarnation();
  membership.rejoin(at, now);
}

void Engine::State::fall_behind(std::uint32_t segment, std::uint32_t number) {
  Asynchronous& a = *async;
  if (segment >= a.updates.segments() || !wire::serial_newer(number, membership.job().base_round))
    return;
  // Somebody may have taken this member's weights, with updates that it alone can hand back: that
  // comes first. It asks again, and is told again.
  if (hand_back.active()) return;
  number -= a.shift;
  if (a.phase == Phase::probing) return need_weights(EventKind::joined, {});
  // A late word about an update that has come since.
  if (a.phase != Phase::live || !wire::serial_newer(number, a.updates.complete_to(segment))) return;
  const Error error{ErrorCode::gone, wire::Status::gone, 0,
                    "update " + std::to_string(number) + " of segment " + std::to_string(segment) +
                        " is no longer kept: this member fell too far behind"};
  need_weights(EventKind::gone, error);
  a.gone = Asynchronous::Gone{segment, number};
  take_new_place(a.why, now);
}

void Engine::State::on_async_help_reply(const Reply& reply) {
  Asynchronous& a = *async;
  if (reply.body.status == wire::Status::gone)
    return fall_behind(reply.about.segment, reply.about.round);
  if (a.phase != Phase::probing || reply.body.status != wire::Status::ok) return;
  // Its first update may still come. But perhaps the job was reset, and the others' weights are not
  // those of a beginning: only its user can tell.
  need_weights(EventKind::joined, {});
  a.event->untouched = true;
}

Time Engine::State::asking_due() const {
  if (!membership.joined() || away.yes) return never;
  if (async->phase == Phase::probing) return async->probe_at;
  return async->phase == Phase::live ? async->asking.next_deadline() : never;
}

void Engine::State::ask_for_updates() {
  Asynchronous& a = *async;
  if (now < asking_due()) return;
  const auto ask = [&](std::uint32_t segment, std::uint32_t number) {
    ++statistics.helps;
    requests.help(membership.member(), {segment, number + a.shift}, now);
  };
  if (a.phase == Phase::probing) {
    ask(0, a.origin + 1);
    a.probe_at = now + a.probe_interval;
    a.probe_interval = std::min(2 * a.probe_interval, options.ping_interval);
    return;
  }
  const Time timeout = a.pushes.first_timeout();
  while (const auto segment = a.asking.next(a.updates, a.pushes.outstanding() != 0, timeout, now))
    ask(*segment, a.updates.complete_to(*segment) + 1);
}

Error Engine::State::resume_updates(const UpdateNumbers& numbers) {
  Asynchronous& a = *async;
  const auto refused = [](ErrorCode code, std::string text) {
    return Error{code, wire::Status::ok, 0, std::move(text)};
  };
  if (a.phase == Phase::unbegun)
    return refused(ErrorCode::not_joined,
                   "job " + std::to_string(options.job) + " does not run yet: resume when it does");
  const std::uint32_t base = a.origin;
  if (numbers.base_round != base)
    return refused(ErrorCode::job_reset, "the weights are of base round " +
                                             std::to_string(numbers.base_round) +
                                             ", the job is at " + std::to_string(base) +
                                             ": it was reset meanwhile; take weights again");
  if (numbers.last.size() != a.updates.segments())
    return refused(ErrorCode::bad_argument, std::to_string(numbers.last.size()) +
                                                " update numbers for a vector of " +
                                                std::to_string(a.updates.segments()) + " segments");
  if (a.gone && a.phase == Phase::waiting &&
      wire::serial_newer(a.gone->number, numbers.last[a.gone->segment]))
    return refused(ErrorCode::gone, "the weights lack update " + std::to_string(a.gone->number) +
                                        " of segment " + std::to_string(a.gone->segment) +
                                        " too, which the switch no longer keeps: take another "
                                        "worker's, or reset the job where all lack it");
  bool ahead = false;
  for (std::uint32_t segment = 0; segment < a.updates.segments(); ++segment) {
    const std::uint32_t number = numbers.last[segment];
    if (wire::serial_newer(base, number))
      return refused(ErrorCode::bad_argument, "update number " + std::to_string(number) +
                                                  " of segment " + std::to_string(segment) +
                                                  " is before base round " + std::to_string(base));
    if (a.phase != Phase::live) continue;
    const std::int32_t distance = wire::serial_distance(number, a.updates.taken()[segment]);
    if (distance < 0)
      return refused(ErrorCode::bad_argument,
                     "update " + std::to_string(a.updates.taken()[segment]) + " of segment " +
                         std::to_string(segment) + " was taken already; the weights have only " +
                         std::to_string(number));
    ahead = ahead || distance > 0;
  }
  if (a.phase == Phase::live && !ahead) return {};
  if (a.phase == Phase::live && !operations.empty()) {
    // Their acknowledgements may be among what is passed over.
    operations.fail_all({ErrorCode::gone, wire::Status::ok, 0,
                         "newer weights were taken while the push was under way"});
    a.pushes.give_up_all();
  }
  a.phase = Phase::live;
  a.event.reset();
  a.updates.resume(numbers.last);
  a.asking.begin(a.updates.segments(), now);
  if (a.settling.active()) {
    // What counts as caught up is another thing now.
    using Stage = Asynchronous::Settling::Stage;
    for (std::uint32_t segment = 0; segment < a.updates.segments(); ++segment) {
      Stage& stage = a.settling.stage[segment];
      if (stage == Stage::unanswered) a.settling.had[segment] = numbers.last[segment];
      if (stage != Stage::done) continue;
      stage = Stage::catching_up;
      ++a.settling.left;
    }
    for (std::uint32_t segment = 0; segment < a.updates.segments(); ++segment)
      advance_settling(segment);
  }
  follow_async();
  return {};
}

Error Engine::State::overdue_push(const Operation& operation) const {
  const std::string what = "push " + std::to_string(operation.id) + " was not summed within " +
                           text::duration(operation.request.deadline - operation.submitted);
  if (auto error = standstill(what)) return *error;
  return {ErrorCode::timed_out, wire::Status::ok, 0,
          what + ": " + std::to_string(operation.segments - operation.done) + " of its " +
              std::to_string(operation.segments) + " segments are not in any update yet; job " +
              std::to_string(options.job) + " sums " + std::to_string(membership.job().threshold) +
              " pushes at a time: are there so many members at work?"};
}

}  // namespace iswitch::agent
