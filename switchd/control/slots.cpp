// The state of a job's slots in the datapath. Everything here is asynchronous: an order goes out,
// and what follows from it happens when every shard has answered.
#include <utility>

#include "switchd/control/state.h"
#include "wire/serial.h"

namespace iswitch::control {
void Control::State::advance(Job& job, const Turn& turn) {
  switch (job.phase) {
    case SlotPhase::installing:
    case SlotPhase::starting:
    case SlotPhase::stopping:
      return;
    case SlotPhase::failed:
      return settle(job, turn);
    case SlotPhase::running:
      if (job.clear_wanted || has_new_run(job)) return stop(job, turn);
      if (job.uplink) follow_link(job, turn);
      if (job.settled()) settle(job, turn);
      return;
    case SlotPhase::clear:
      if (job.clear_wanted) return stop(job, turn);
      if (job.uplink && adapt(job, turn)) return;
      if (job.formed && job.parent_ready()) return start(job, turn);
      return settle(job, turn);
  }
}

void Control::State::stop(Job& job, const Turn& turn) {
  job.clear_wanted = false;
  job.phase = SlotPhase::stopping;
  if (job.formed) ++counters.resets;
  if (job.uplink) {  // what it was to ask for has come
    job.reset_due = false;
    job.uplink->withdraw(wire::Action::reset, turn);
  }
  order(job, datapath::Stop{}, turn, [this](Job& same, const Outcome& outcome, const Turn& later) {
    // Before the first Start the datapath has no base to count rounds from.
    if (!same.uplink) {
      if (same.ever_started)
        same.next_base_round = wire::serial_latest(same.next_base_round, outcome.highest_round);
      same.next_base_round += base_round_step;
    }
    same.phase = SlotPhase::clear;
    advance(same, later);
  });
}

void Control::State::start(Job& job, const Turn& turn) {
  job.ever_started = true;
  job.phase = SlotPhase::starting;
  if (job.uplink) {
    job.run = job.uplink->run();
    job.next_base_round = job.run->base_round;
    order(job, datapath::PutParent{job.uplink->place()}, turn);
  }
  decide(job);
  // Whether a Start ends a Halt is the datapath's affair: what is wanted is said again.
  const bool halt_may_differ = job.refuses() || job.datapath_halted;
  order(job, datapath::Start{job.next_base_round, job.resumption}, turn,
        [this, halt_may_differ](Job& same, const Outcome&, const Turn& later) {
          started(same, halt_may_differ, later);
        });
}

void Control::State::started(Job& job, bool halt_may_differ, const Turn& turn) {
  if (halt_may_differ || job.refuses() != job.datapath_halted) {
    job.datapath_halted = job.refuses();
    order(job, datapath::SetHalted{job.datapath_halted}, turn,
          [this](Job& same, const Outcome&, const Turn& later) { started(same, false, later); });
    return;
  }
  job.phase = SlotPhase::running;
  advance(job, turn);
}

void Control::State::settle(Job& job, const Turn& turn) {
  if (job.phase != SlotPhase::failed) {
    job.base_round = job.next_base_round;
    const bool was_up = job.up;
    job.up = job.phase == SlotPhase::running && job.parent_ready() && !job.reset_due;
    if (job.uplink && !job.base_told)  // the reply to the Join that they repeat will say it
      job.members.for_each([&](Member& member) { member.told.base_round = job.base_round; });
    const bool first_time = job.up && !was_up && !job.base_told;
    job.base_told = job.base_told || job.up;
    announce(job, turn);
    if (first_time) call_back(job, turn);
  }
  const auto waiting = std::exchange(job.when_settled, {});
  for (const auto& then : waiting) then(turn);
}

/// Who came back waits for it, and need not wait until it asks the next time.
void Control::State::call_back(Job& job, const Turn& turn) {
  for (MemberId id = 0; id < wire::max_members; ++id) {
    const Member* const member = job.members.find(id);
    if (member != nullptr && member->stream) tell_member(job, id, wire::Status::ok, 0, turn);
  }
}

void Control::State::when_settled(Job& job, std::function<void(const Turn&)> then,
                                  const Turn& turn) {
  if (job.settled()) return then(turn);
  job.when_settled.push_back(std::move(then));
}

void Control::State::request_clear(Job& job, const Turn& turn) {
  if (job.uplink) return request_reset(job, turn);
  // A clearing that nobody has been told of serves this request as well. The first start is none.
  const bool first_start = job.phase == SlotPhase::starting &&
                           (job.next_base_round == job.base_round || job.first_start);
  if (job.phase != SlotPhase::running && job.phase != SlotPhase::clear && !first_start) return;
  job.clear_wanted = true;
  advance(job, turn);
}

void Control::State::clear_for_new_member(Job& job, const Turn& turn) {
  // During a Stop the member's row is there before the Start. During a Start it would come too
  // late: a sum could be complete without it.
  if (job.phase != SlotPhase::running && job.phase != SlotPhase::starting) return;
  job.fresh_because = wire::Resumed::Fresh::stranger;
  (job.uplink ? job.reset_due : job.clear_wanted) = true;
  advance(job, turn);
}

void Control::State::set_halted(Job& job, bool halted, const Turn& turn,
                                std::function<void(Job&, const Turn&)> then) {
  job.halt_wanted = halted;
  if (job.phase != SlotPhase::running) {  // refuses contributions anyway; started() says it
    job.halted = halted;
    announce(job, turn);
    return then(job, turn);
  }
  job.datapath_halted = job.refuses();
  order(job, datapath::SetHalted{job.datapath_halted}, turn,
        [this, then = std::move(then)](Job& same, const Outcome&, const Turn& later) {
          same.halted = same.halt_wanted;
          announce(same, later);
          then(same, later);
        });
}

void Control::State::drop_member(Job& job, datapath::MemberId member, const Turn& turn,
                                 std::function<void(Job&, const Turn&)> then) {
  job.members.erase(member);
  order(job, datapath::DropMember{member}, turn,
        [then = std::move(then)](Job& same, const Outcome&, const Turn& later) {
          if (then) then(same, later);
        });
  if (!job.members.empty() || (!job.formed && !job.uplink)) return;
  disband(job, turn);
  advance(job, turn);
}

void Control::State::disband(Job& job, const Turn& turn) {
  forget_members(job);
  // Also when it is only starting: those who join before it has would find its slots in use.
  if (job.phase == SlotPhase::running || job.phase == SlotPhase::starting) job.clear_wanted = true;
  if (job.uplink) job.uplink->close(turn);
}

void Control::State::forget_members(Job& job) {
  job.formed = false;
  job.decided = false;
  job.fresh_because = wire::Resumed::Fresh::reset;
  job.up = false;
  job.base_told = false;
  job.reset_due = false;
}

}  // namespace iswitch::control
