// Restart without loss, protocol.md section 9: whether a job goes on with its stream, and what it
// takes that all its members are asked.
#include "switchd/control/state.h"
#include "wire/serial.h"

namespace iswitch::control {

using Fresh = wire::Resumed::Fresh;

bool Control::State::knows_life(const Job& job, const Requester& who, Bytes body) {
  const auto rejoin = wire::read_rejoin(body);
  if (!rejoin || rejoin->life == job.life) return true;  // or it is refused for another reason
  const Member* const row = job.members.find(who.place());
  return row != nullptr && row->incarnation == rejoin->join.incarnation;
}

bool Control::State::calls_all(const Job& job, const Requester& who, const wire::JoinBody& join,
                               const Stream& stream) {
  if (!job.formed) return false;
  if (job.decided && stream.origin != job.origin) return false;
  const Member* const row = job.members.find(who.place());
  if (row == nullptr) return join.kind == wire::MemberKind::child_switch;
  return row->incarnation != join.incarnation;
}

void Control::State::form_again(Job& job, const Turn& turn) {
  forget_members(job);
  // Before the first row goes: no sum may become complete by that.
  if (job.phase == SlotPhase::starting) order(job, datapath::Stop{}, turn);
  if (job.phase == SlotPhase::running || job.phase == SlotPhase::starting) job.clear_wanted = true;
  if (job.uplink) job.uplink->abandon(turn);
  advance(job, turn);
  for (MemberId id = 0; id < wire::max_members; ++id) {
    if (job.members.find(id) == nullptr) continue;
    tell_member(job, id, wire::Status::not_a_member, 0, turn);
    job.members.erase(id);
    order(job, datapath::DropMember{id}, turn);
  }
}

void Control::State::parent_lost(Job& job, const Turn& turn) {
  if (!job.formed) return;  // it is asked when they are there
  if (job.base_told) return form_again(job, turn);
  job.decided = false;  // they have been told nothing: what they said is true still
  open_uplink(job, turn);
}

void Control::State::open_uplink(Job& job, const Turn& turn) {
  const Gathered gathered = gather(job.members);
  if (gathered.fresh == Fresh::none)
    job.uplink->open(gathered.stream, turn);
  else
    job.uplink->open(gathered.fresh, turn);
}

void Control::State::decide(Job& job) {
  job.first_start = !job.decided;
  job.decided = true;
  job.resumption.reset();
  if (job.uplink) return take_decision(job);
  if (!job.first_start) {
    job.resumed = {job.fresh_because, 0, 0, {}};
    job.fresh_because = Fresh::reset;
    job.origin = job.next_base_round;
    return;
  }
  if (const auto newest = newest_of(job.members)) {
    job.next_base_round = wire::serial_latest(job.next_base_round, *newest) + base_round_step;
    // The reply to the Rejoin that they repeat will say it: it is no Reset.
    job.members.for_each([&](Member& member) { member.told.base_round = job.next_base_round; });
  }
  const Gathered gathered = gather(job.members);
  job.resumed = judge(gathered, job.spec.slots, job.spec.segment_bytes);
  job.origin = job.next_base_round;
  if (!job.resumed.goes_on()) return;
  job.origin = gathered.stream.origin;
  job.resumption = datapath::Resumption{gathered.stream.position, gathered.stream.end};
}

void Control::State::take_decision(Job& job) {
  job.resumed = job.first_start ? job.uplink->resumed() : wire::Resumed{Fresh::reset, 0, 0, {}};
  job.origin = job.resumed.origin.value_or(job.next_base_round);
  if (!job.resumed.goes_on()) return;
  const Stream& stream = *job.uplink->stream();
  const std::uint64_t first = first_position(stream, job.resumed);
  job.origin = stream.origin;
  job.resumption = datapath::Resumption{first, first + job.resumed.count};
}

std::uint64_t Control::State::said_of_stream(const Job& job, const Member& member,
                                             wire::Action action) {
  if (job.state() == wire::JobState::forming) return 0;
  wire::Resumed late{Fresh::went_on, 0, 0, {}};
  if (!job.is_sync() && job.origin != job.base_round) late.origin = job.origin;
  if (action == wire::Action::join) return late.origin ? wire::encode_resumed(late) : 0;
  if (member.late) return wire::encode_resumed(late);
  if (!member.stream) return wire::encode_resumed({Fresh::stranger, 0, 0, {}});
  return wire::encode_resumed(job.resumed);
}

void Control::State::ask_who_has(Job& job, const wire::SlotBody& slot, MemberId asker,
                                 const Turn& turn) {
  job.members.for_each([&](const Member& member) {
    if (member.spec.id != asker) ask_for_contribution(job, member, slot, turn);
  });
}

}  // namespace iswitch::control
