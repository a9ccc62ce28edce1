// The slot of a synchronous job, protocol.md section 4.
#pragma once

#include <algorithm>

#include "switchd/pipeline/rows.h"
#include "switchd/pipeline/sums.h"

namespace iswitch::pipeline {

template <BufferPool Buffers>
class SyncSlots {
  // What only children do is kept out of line: a root's way is short then.
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;
  using SlotType = Slot<Handle>;
  using State = typename SlotType::State;

  explicit SyncSlots(Sums<Buffers>& sums) : sums_(sums) {}

  Row contribute(JobType& job, const Contribution& c, Time now) {
    SlotType& slot = job.slots.slot(c.slot);
    // Serial distance: 2^31 counts as older.
    const wire::Header& header = c.header();
    const std::int32_t newer = wire::serial_distance(header.round, slot.last_round);
    if (newer <= 0) return contribute_old(job, c, 0u - static_cast<std::uint32_t>(newer));
    // A sum's round, open or waiting, is always last_round + 1.
    if (newer > 1) return refuse_ahead(job, c, newer);
    const std::size_t bytes = c.payload().size();
    if (slot.state != State::idle) {
      if (slot.state == State::waiting) return contribute_waiting(job, slot, c);
      if ((slot.members >> header.member & 1) != 0) return Row::duplicate;
      const bool other_length = bytes != 0 && slot.bytes != 0 && bytes != slot.bytes;
      if (header.operation_tag() != slot.tag || other_length) return Row::mismatch;
    }
    if (bytes != 0 && slot.bytes == 0 && !sums_.take_buffer(slot)) return Row::no_buffer;
    if (slot.state == State::idle) sums_.open(job, slot, c, now);
    add(job, slot, c);
    return Row::added;
  }

  /// Members already in the sum that a mismatching contribution was for.
  MemberMask members_of_round(JobType& job, const Contribution& c) const {
    const SlotType& slot = job.slots.slot(c.slot);
    const std::uint32_t age = slot.last_round - c.header().round;
    if (age < job.slots.history()) return job.slots.kept(c.slot, age).members;
    return slot.members;
  }

  void force_open(JobType& job, std::uint32_t index) {
    SlotType& slot = job.slots.slot(index);
    sums_.mark_forced(job, slot);
    complete(job, index, sums_.finish(slot));
  }

  /// Completes an open sum if that needs nobody any more (a member has gone).
  void complete_if_met(JobType& job, std::uint32_t index) {
    SlotType& slot = job.slots.slot(index);
    if (slot.state != State::open || !is_met(job, slot, slot.members, slot.contributions)) return;
    complete(job, index, sums_.finish(slot));
  }

  /// A waiting sum, unchanged but for RETRANSMIT.
  void send_up_again(JobType& job, std::uint32_t index) { send_up(job, index, true); }
  void send_up_first(JobType& job, std::uint32_t index) { send_up(job, index, false); }

  /// State of one round of a slot.
  datapath::SlotState state_of(JobType& job, std::uint32_t index, std::uint32_t round) const {
    const SlotType& slot = job.slots.slot(index);
    const std::uint32_t age = slot.last_round - round;
    if (age < job.slots.history() && job.slots.kept(index, age).place == Place::kept)
      return datapath::SlotState::kept;
    if (!wire::serial_newer(round, slot.last_round)) return datapath::SlotState::gone;
    if (slot.state == State::idle || round != slot.last_round + 1) return datapath::SlotState::none;
    return slot.state == State::open ? datapath::SlotState::open : datapath::SlotState::waiting;
  }

  /// Closes what is open or waiting: a result of the parent for its round or a newer one has come.
  /// `in_it` tells that the parent counts this switch in a result of the sum's very round. True
  /// when the result is that of the waiting sum.
  bool close(JobType& job, std::uint32_t index, bool in_it, Kept<Handle>& result) {
    SlotType& slot = job.slots.slot(index);
    const bool own = in_it && slot.state == State::waiting && !slot.handed;
    if (own) {
      result.members = slot.members;
      result.tag = slot.tag;
    }
    result.tag_known = own;
    if (slot.sum) sums_.buffers().release(slot.sum);
    slot.forget_sum();
    return own;
  }

 private:
  Row contribute_old(JobType& job, const Contribution& c, std::uint32_t age) {
    if (age >= job.slots.history()) return Row::gone;
    const Kept<Handle>& kept = job.slots.kept(c.slot, age);
    if (kept.place != Place::kept) return Row::gone;
    if (!kept.tag_known && job.link != nullptr) return pass_up(job, c, age);
    // A root's without a tag was handed back: it answers any.
    if (kept.tag_known && kept.tag != c.header().operation_tag()) return Row::mismatch;
    sums_.replay(job, c.slot, age, MemberMask{1} << c.header().member);
    return Row::kept;
  }

  /// The parent compares the operation tag: it sends that result again, or tells of a mismatch. It
  /// has completed the round, so that an empty contribution can not get into a sum.
  [[gnu::noinline]] Row pass_up(JobType& job, const Contribution& c, std::uint32_t age) {
    job.link->asked[job.slots.place_of(c.slot, age)] |= MemberMask{1} << c.header().member;
    typename Sums<Buffers>::Upward part;
    part.round = c.header().round;
    part.tag = c.header().operation_tag();
    part.workers = 1;
    sums_.send_up(job, c.slot, part, true);
    return Row::passed_up;
  }

  [[gnu::noinline]] Row contribute_waiting(JobType& job, const SlotType& slot,
                                           const Contribution& c) {
    const wire::Header& header = c.header();
    if ((header.flags & wire::flag::retransmit) != 0) send_up(job, c.slot, true);
    return (slot.members >> header.member & 1) != 0 ? Row::duplicate : Row::late;
  }

  Row refuse_ahead(JobType& job, const Contribution& c, std::int32_t newer) {
    if (newer <= believable)
      job.highest_round = wire::serial_latest(job.highest_round, c.header().round);
    return Row::ahead;
  }

  void add(JobType& job, SlotType& slot, const Contribution& c) {
    const wire::Header& header = c.header();
    const MemberMask members = slot.members | MemberMask{1} << header.member;
    const auto contributions = static_cast<std::uint16_t>(slot.contributions + 1);
    const bool completes = is_met(job, slot, members, contributions);
    slot.members = members;
    slot.contributions = contributions;
    slot.workers += header.workers();
    slot.flags |= c.carried;
    const wire::PartialSum checksum = sums_.add(job, slot, c.payload(), completes);
    if (completes) complete(job, c.slot, checksum);
  }

  /// The threshold in force is never above the number of members.
  static bool is_met(const Admission& job, const SlotType& slot, MemberMask members,
                     std::uint16_t contributions) {
    if (slot.threshold == 0) return (job.members & ~members) == 0;
    return contributions >= std::min(slot.threshold, job.member_count);
  }

  void complete(JobType& job, std::uint32_t index, wire::PartialSum checksum) {
    if (job.link == nullptr) return sums_.complete(job, index, checksum);
    wait_for_parent(job, index, checksum);
  }

  [[gnu::noinline]] void wait_for_parent(JobType& job, std::uint32_t index,
                                         wire::PartialSum checksum) {
    SlotType& slot = job.slots.slot(index);
    slot.state = State::waiting;
    slot.checksum = sums_.folded(job, checksum);
    slot.flags |= sums_.take_echo(job);
    sums_.count_completed();
    send_up(job, index, false);
  }

  void send_up(JobType& job, std::uint32_t index, bool again) {
    const SlotType& slot = job.slots.slot(index);
    const typename Sums<Buffers>::Upward sum{.payload = slot.sum,
                                             .members = slot.members,
                                             .round = slot.last_round + 1,
                                             .tag = slot.tag,
                                             .workers = slot.workers,
                                             .bytes = slot.bytes,
                                             .checksum = slot.checksum,
                                             .flags = slot.flags};
    if (slot.handed) return sums_.hand_up(job, index, sum, again);
    sums_.send_up(job, index, sum, again);
  }

  Sums<Buffers>& sums_;
};

}  // namespace iswitch::pipeline
