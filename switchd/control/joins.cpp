// Join: who is let in, and what it takes to let them in.
#include <algorithm>

#include "switchd/control/state.h"

namespace iswitch::control {
namespace {

/// Why a Join is refused whatever the membership is; ok where it is not.
wire::Status refusal(const Job& job, const wire::JoinBody& join) {
  if (job.phase == SlotPhase::failed) return wire::Status::unsupported;
  // A child's parent may come back with a job as large as was planned for.
  const std::uint32_t needed = std::max(job.spec.segment_bytes, job.config.segment_bytes);
  if (join.data_type != job.spec.data_type || join.mode != job.spec.mode ||
      join.max_segment_bytes < needed)
    return wire::Status::unsupported;
  if (join.wanted_member != wire::no_member && join.wanted_member >= job.members.expected())
    return wire::Status::bad_value;
  return wire::Status::ok;
}

datapath::MemberSpec member_spec(datapath::MemberId id, const Requester& who,
                                 const wire::JoinBody& join) {
  datapath::MemberSpec spec;
  spec.id = id;
  spec.kind = join.kind;
  spec.endpoint = who.endpoint;
  spec.ingress = who.ingress;
  spec.shards = join.kind == wire::MemberKind::child_switch ? join.shards : std::uint16_t{1};
  spec.incarnation = join.incarnation;
  return spec;
}

}  // namespace

void Control::State::on_join(Job& job, const Requester& who, Bytes body, const Turn& turn) {
  const auto join = wire::read_join(body);
  if (!join) return answer(job, who, wire::Status::bad_value, turn);
  let_in(job, who, *join, {}, turn);
}

void Control::State::on_rejoin(Job& job, const Requester& who, Bytes body, const Turn& turn) {
  const auto rejoin = wire::read_rejoin(body);
  if (!rejoin) return answer(job, who, wire::Status::bad_value, turn);
  let_in(job, who, rejoin->join, stream_of(*rejoin), turn);
}

void Control::State::let_in(Job& job, const Requester& who, const wire::JoinBody& join,
                            const std::optional<Stream>& stream, const Turn& turn) {
  if (const wire::Status status = refusal(job, join); status != wire::Status::ok)
    return answer(job, who, status, turn);
  MemberId wanted = join.wanted_member;
  bool in_doubt = stream && wanted == wire::no_member;
  if (stream && calls_all(job, who, join, *stream)) {
    // A child switch that has restarted does not know its id any more; here it is known.
    const Member* const row = job.members.find(who.place());
    if (row != nullptr && wanted == wire::no_member) {
      wanted = row->spec.id;
      in_doubt = row->spec.id_in_doubt;
    }
    form_again(job, turn);
  }
  if (stream && !job.formed) make_way(job, who, wanted, turn);
  MemberTable::Seat seat = job.members.seat_for(who.place(), join.incarnation, wanted, turn.now,
                                                job.config.member_timeout);
  const bool any_id = wanted == wire::no_member;
  // Not the first ones: workers are there before child switches as a rule, and want theirs back.
  if (stream && any_id && seat.kind == MemberTable::Seat::Kind::taken && !seat.replaces)
    seat.id = job.members.last_free_id().value_or(seat.id);
  if (seat.kind == MemberTable::Seat::Kind::full)
    return answer(job, who, wire::Status::job_full, turn);
  // It has given up what it said when it came back, without another incarnation.
  if (seat.kind == MemberTable::Seat::Kind::same && !stream && job.members.find(seat.id)->stream)
    seat = {MemberTable::Seat::Kind::taken, seat.id, true, {}};

  datapath::MemberSpec spec = member_spec(seat.id, who, join);
  if (seat.kind == MemberTable::Seat::Kind::taken) {
    spec.id_in_doubt = in_doubt;
    Member joiner{spec, join.incarnation, turn.now, turn.now, {}, 0, false, stream, false, false};
    joiner.any_id = any_id;
    if (stream && job.decided) {
      joiner.stream.reset();
      joiner.late = true;
    }
    take_seat(job, seat, joiner, turn);
  } else {
    Member& member = *job.members.find(seat.id);
    member.last_heard = turn.now;
    spec.id_in_doubt = member.spec.id_in_doubt;
    if (member.spec == spec && member.placed) return answer_join(job, who, turn);
    member.spec = spec;
  }
  Member& member = *job.members.find(seat.id);
  member.put = ++job.last_put;
  member.placed = false;
  // Asked again before the row is there, it is put again: the same incarnation refills nothing.
  order(job, datapath::PutMember{spec}, turn,
        [this, who, id = seat.id, put = member.put](Job& same, const Outcome&, const Turn& later) {
          Member* const row = same.members.find(id);
          if (row != nullptr && row->put == put) row->placed = true;
          answer_join(same, who, later);
        });
  if (!job.formed && job.members.complete()) {
    job.formed = true;
    if (job.uplink) open_uplink(job, turn);
    advance(job, turn);
  }
}

// Who comes back wants the id that it had, since bits of handed-back results go by it; who wants
// any (a child switch that has restarted) may have got that one first, and asks again.
void Control::State::make_way(Job& job, const Requester& who, MemberId wanted, const Turn& turn) {
  const Member* const row = wanted < wire::max_members ? job.members.find(wanted) : nullptr;
  if (row == nullptr || !row->any_id || row == job.members.find(who.place())) return;
  tell_member(job, wanted, wire::Status::not_a_member, 0, turn);
  job.members.erase(wanted);
  order(job, datapath::DropMember{wanted}, turn);
}

void Control::State::take_seat(Job& job, const MemberTable::Seat& seat, const Member& joiner,
                               const Turn& turn) {
  ++counters.joins;
  if (seat.replaces || seat.leaves) ++counters.replacements;
  // Workers of a child switch that joins late could not tell who of them is in updates of before.
  const bool no_stream = !job.uplink && joiner.spec.kind == wire::MemberKind::child_switch &&
                         job.decided && job.origin != job.next_base_round;
  if (job.formed && (job.is_sync() || no_stream)) clear_for_new_member(job, turn);
  if (seat.leaves) {
    job.members.erase(*seat.leaves);
    order(job, datapath::DropMember{*seat.leaves}, turn);
  }
  job.members.put(joiner);
  // The parent has been told of another member's stream.
  if (job.formed && !job.decided && job.uplink && job.uplink->stream()) {
    job.uplink->abandon(turn);
    open_uplink(job, turn);
  }
}

void Control::State::answer_join(Job& job, const Requester& who, const Turn& turn) {
  when_settled(
      job,
      [this, who, id = job.config.id, instance = job.instance](const Turn& later) {
        Job* const same = find_instance(id, instance);
        if (same == nullptr) return;
        wire::Status status = wire::Status::ok;
        if (same->phase == SlotPhase::failed) {
          status = wire::Status::unsupported;
        } else if (same->members.find(who.place()) == nullptr) {
          status = wire::Status::not_a_member;  // evicted meanwhile
        }
        answer(*same, who, status, later);
      },
      turn);
}

}  // namespace iswitch::control
