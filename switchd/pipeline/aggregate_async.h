// The slot of an asynchronous job, protocol.md section 5.
#pragma once

#include <algorithm>
#include <bit>

#include "switchd/pipeline/rows.h"
#include "switchd/pipeline/sums.h"

namespace iswitch::pipeline {

template <BufferPool Buffers>
class AsyncSlots {
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;
  using SlotType = Slot<Handle>;
  using State = typename SlotType::State;

  explicit AsyncSlots(Sums<Buffers>& sums) : sums_(sums) {}

  /// Out of line, so that it does not weigh on synchronous jobs.
  [[gnu::noinline]] Row contribute(JobType& job, const Contribution& c, Time now) {
    const wire::Header& header = c.header();
    if (header.operation_tag() != job.rows[header.member].incarnation) return Row::incarnation;
    SlotType& slot = job.slots.slot(c.slot);
    if (slot.state == State::unsettled) return Row::unsettled;
    std::uint32_t& accepted = job.async->accepted[header.member][c.slot];
    const std::int32_t newer = wire::serial_distance(header.round, accepted);
    if (newer <= 0) return repeated(job, slot, c, accepted);
    if (newer > believable && !follows_stream(job, slot, header.round)) return Row::ahead;
    const std::size_t bytes = c.payload().size();
    if (bytes != 0 && slot.bytes != 0 && bytes != slot.bytes) return Row::mismatch;
    if (bytes != 0 && slot.bytes == 0 && !sums_.take_buffer(slot)) return Row::no_buffer;
    if (slot.state == State::idle) sums_.open(job, slot, c, now);
    accepted = header.round;
    job.highest_round = wire::serial_latest(job.highest_round, header.round);
    add(job, slot, c);
    return Row::added;
  }

  /// What is open is completed whatever its number; at a child it goes up once nothing waits there.
  datapath::SlotState force(JobType& job, std::uint32_t index) {
    SlotType& slot = job.slots.slot(index);
    const bool is_open = slot.state == State::open;
    if (!may_leave(job, index)) {
      if (is_open && !is_met(job, slot)) {
        sums_.mark_forced(job, slot);
        slot.threshold = 1;
      }
      return datapath::SlotState::waiting;
    }
    if (!is_open) return datapath::SlotState::none;
    sums_.mark_forced(job, slot);
    leave(job, index, sums_.finish(slot));
    return datapath::SlotState::open;
  }

  /// An open sum that is complete goes on its way, if nothing of the slot waits at the parent.
  void leave_if_met(JobType& job, std::uint32_t index) {
    SlotType& slot = job.slots.slot(index);
    if (slot.state == State::open && may_leave(job, index) && is_met(job, slot))
      leave(job, index, sums_.finish(slot));
  }

  /// Enough of the open sum is there, though it may have to wait for its turn.
  static bool is_met(const JobType& job, const SlotType& slot) {
    if (slot.threshold != 0)
      return slot.contributions >= std::min(slot.threshold, job.member_count);
    // Parts of members whose place was filled again count for somebody who is missing.
    const int present = std::popcount(slot.members);
    return std::popcount(job.members & ~slot.members) <= slot.contributions - present;
  }

  /// State of an update. One that is not there yet may come, whether a sum is open or not.
  datapath::SlotState state_of(JobType& job, std::uint32_t index, std::uint32_t update) const {
    const SlotType& slot = job.slots.slot(index);
    const std::uint32_t age = slot.last_round - update;
    if (age < job.slots.history() && job.slots.kept(index, age).place == Place::kept)
      return datapath::SlotState::kept;
    if (wire::serial_newer(update, slot.last_round)) return datapath::SlotState::none;
    const bool may_be_had =
        job.resumed && age < job.slots.history() && wire::serial_newer(update, job.base_round);
    if (!may_be_had) return datapath::SlotState::gone;
    return is_up_to(slot, update, job.async->own_newest[index]) ? datapath::SlotState::with_members
                                                                : datapath::SlotState::elsewhere;
  }

  /// What the member of a push is told whose update is not kept any more: the newest update of
  /// which that is true. A child switch learns which push it is, since it may have another one on
  /// its way.
  static std::uint32_t gone_round(const JobType& job, const Contribution& c) {
    const wire::Header& header = c.header();
    if (job.rows[header.member].kind == wire::MemberKind::child_switch) return header.round;
    return job.slots.slot(c.slot).last_round - job.slots.history();
  }

  /// At a child: the parent has that push in an update which is not kept any more. It waits no
  /// longer, and the next sum goes on its way. Its members are told when they repeat theirs.
  void give_up_waiting(JobType& job, std::uint32_t index, std::uint32_t number) {
    OutstandingPush<Handle>& push = job.async->outstanding[index];
    if (!push.waiting || push.number != number) return;
    give_up(push);
    leave_if_met(job, index);
  }

  /// At a child: the parent has the outstanding push in a result. True when there was one.
  bool acknowledge(JobType& job, std::uint32_t index, bool in_it, Kept<Handle>& result) {
    OutstandingPush<Handle>& push = job.async->outstanding[index];
    if (!in_it || !push.waiting) return false;
    result.members = push.members;
    give_up(push);
    return true;
  }

  /// A place filled again: its bit means somebody else now, its numbers start after the base round.
  /// May throw bad_alloc, before anything has changed.
  void refill(JobType& job, wire::MemberId member) {
    job.async->accepted[member].assign(job.slots.size(), job.base_round);
    job.joined_since |= MemberMask{1} << member;
    const MemberMask others = ~(MemberMask{1} << member);
    for (std::uint32_t i = 0; i < job.slots.size(); ++i) {
      job.slots.slot(i).members &= others;
      for (std::uint32_t age = 0; age < job.slots.history(); ++age)
        job.slots.kept(i, age).members &= others;
    }
    for (OutstandingPush<Handle>& push : job.async->outstanding) push.members &= others;
  }

  /// What belongs to a member without a row.
  void forget(JobType& job, wire::MemberId member) {
    job.async->accepted[member] = std::vector<std::uint32_t>();
  }

  /// Whether an update is not newer than `newest`; neither is newer than the last one. Distances
  /// from there, as everywhere.
  static bool is_up_to(const SlotType& slot, std::uint32_t update, std::uint32_t newest) {
    return slot.last_round - update >= slot.last_round - newest;
  }

  /// Beside Sums::clear: all numbers start after this one.
  void clear(JobType& job, std::uint32_t base_round) {
    for (auto& numbers : job.async->accepted) std::fill(numbers.begin(), numbers.end(), base_round);
    for (OutstandingPush<Handle>& push : job.async->outstanding) {
      give_up(push);
      push.number = base_round;
    }
  }

 private:
  /// A member's first push after a restart has come a long way since the base round.
  static bool follows_stream(const JobType& job, const SlotType& slot, std::uint32_t push) {
    return job.resumed && wire::serial_distance(push, slot.last_round) <= believable;
  }

  /// The number is not newer than the last accepted one. Distances from there and not from the
  /// base round, which is left behind by more than half the numbers in a long run.
  Row repeated(JobType& job, const SlotType& slot, const Contribution& c, std::uint32_t accepted) {
    const wire::Header& header = c.header();
    if (accepted - header.round >= accepted - job.base_round) return Row::stale;
    if (!may_leave(job, c.slot)) send_up(job, c.slot, true);
    const MemberMask bit = MemberMask{1} << header.member;
    // Its member pushed again since, so it knows that this one was acknowledged.
    if (header.round != accepted) return Row::duplicate;
    if (((slot.members | waiting(job, c.slot)) & bit) != 0) return Row::duplicate;
    for (std::uint32_t age = 0; age < job.slots.history(); ++age) {
      if ((job.slots.kept(c.slot, age).members & bit) == 0) continue;
      sums_.replay(job, c.slot, age, bit);
      return Row::kept;
    }
    return Row::gone;
  }

  /// Members in the push that waits for the parent.
  static MemberMask waiting(const JobType& job, std::uint32_t index) {
    return may_leave(job, index) ? MemberMask{0} : job.async->outstanding[index].members;
  }

  void add(JobType& job, SlotType& slot, const Contribution& c) {
    const wire::Header& header = c.header();
    const MemberMask bit = MemberMask{1} << header.member;
    if ((slot.members & bit) == 0) ++slot.contributions;
    slot.members |= bit;
    slot.workers = sums_.workers_field(slot.workers + header.workers());
    slot.flags |= c.carried;
    const bool leaves = may_leave(job, c.slot) && is_met(job, slot);
    const wire::PartialSum checksum = sums_.add(job, slot, c.payload(), leaves);
    if (leaves) leave(job, c.slot, checksum);
  }

  /// One push of a slot is outstanding at the parent at most; the next sum goes on collecting.
  static bool may_leave(const JobType& job, std::uint32_t index) {
    return job.link == nullptr || !job.async->outstanding[index].waiting;
  }

  void leave(JobType& job, std::uint32_t index, wire::PartialSum checksum) {
    if (job.link == nullptr) {
      sums_.complete(job, index, checksum);
      job.highest_round = wire::serial_latest(job.highest_round, job.slots.slot(index).last_round);
      return;
    }
    SlotType& slot = job.slots.slot(index);
    OutstandingPush<Handle>& push = job.async->outstanding[index];
    push.payload = slot.sum;
    push.members = slot.members;
    push.opened_at = slot.opened_at;
    ++push.number;
    push.workers = slot.workers;
    push.bytes = slot.bytes;
    push.checksum = sums_.folded(job, checksum);
    push.flags = static_cast<std::uint8_t>(slot.flags | sums_.take_echo(job));
    push.waiting = true;
    slot.forget_sum();
    sums_.count_completed();
    send_up(job, index, false);
  }

  void send_up(JobType& job, std::uint32_t index, bool again) {
    const OutstandingPush<Handle>& push = job.async->outstanding[index];
    sums_.send_up(job, index,
                  {.payload = push.payload,
                   .members = push.members,
                   .round = push.number,
                   .tag = job.link->spec.incarnation,
                   .workers = push.workers,
                   .bytes = push.bytes,
                   .checksum = push.checksum,
                   .flags = push.flags},
                  again);
  }

  void give_up(OutstandingPush<Handle>& push) {
    if (push.payload) sums_.buffers().release(push.payload);
    const std::uint32_t number = push.number;
    push = {};
    push.number = number;
  }

  Sums<Buffers>& sums_;
};

}  // namespace iswitch::pipeline
