// Results that members hand back after a restart, protocol.md section 9: what a member has is not
// summed again in another order.
#pragma once

#include "switchd/pipeline/aggregate_async.h"
#include "switchd/pipeline/aggregate_sync.h"

namespace iswitch::pipeline {

template <BufferPool Buffers>
class HandedBack {
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;
  using SlotType = Slot<Handle>;
  using State = typename SlotType::State;

  HandedBack(Sums<Buffers>& sums, SyncSlots<Buffers>& sync) : sums_(sums), sync_(sync) {}

  /// Slots that have just been cleared, in a job that goes on with its stream.
  void expect(JobType& job) {
    const datapath::Resumption& at = job.resumption;
    for (std::uint32_t i = 0; i < job.slots.size(); ++i) {
      SlotType& slot = job.slots.slot(i);
      if (job.async != nullptr) {
        slot.state = State::unsettled;
        slot.members = job.members;
        job.async->own_newest[i] = job.base_round;
        continue;
      }
      slot.last_round = first_round_not_below(job, i, at.first) - 1;
      slot.recovering = is_below_end(job, i, slot.last_round + 1);
    }
    // Members may have used the rounds up to there.
    if (job.async == nullptr && at.end != 0)
      job.highest_round = job.base_round + round_of(job, at.end - 1);
  }

  Row take(JobType& job, const ReceivedResult& result) {
    if (job.async != nullptr) return take_async(job, result);
    return take_sync(job, result);
  }

  // ---- of an asynchronous slot

  /// An unsettled slot of which nobody has anything left to say.
  void settle_if_all_said(JobType& job, std::uint32_t index) {
    const SlotType& slot = job.slots.slot(index);
    if (slot.state != State::unsettled || (slot.members & job.members) != 0) return;
    if (job.link != nullptr) return hand_newest_up(job, index, false);
    settle(job, index);
  }

  /// At a child, by a push on an unsettled slot: what was handed up, or the answer to it, may be
  /// lost, and members that have joined since hand back nothing that would repeat it.
  [[gnu::noinline]] void ask_again(JobType& job, std::uint32_t index) {
    const SlotType& slot = job.slots.slot(index);
    if (job.link != nullptr && (slot.members & job.members) == 0) hand_newest_up(job, index, true);
  }

  /// The newest result is known, and goes to all members.
  void settle(JobType& job, std::uint32_t index) {
    SlotType& slot = job.slots.slot(index);
    slot.state = State::idle;
    slot.members = 0;
    slot.settled_at = slot.last_round;
    job.highest_round = wire::serial_latest(job.highest_round, slot.last_round);
    sums_.send_settled(job, index, job.members);
  }

  enum class Keeping : std::uint8_t { fresh, again, nowhere, no_buffer };

  /// Puts a result where it belongs among those kept: `nowhere` where it is too old or none at all.
  /// `known`: its bitmap is one of this switch's members. Else `whole`: a sum of this switch is in
  /// it, as far as that is known.
  Keeping keep(JobType& job, const ReceivedResult& result, bool known, bool whole) {
    const std::uint32_t round = result.header().round;
    if (!wire::serial_newer(round, job.base_round)) return Keeping::nowhere;
    const std::int32_t newer = wire::serial_distance(round, job.slots.slot(result.slot).last_round);
    const std::uint32_t age = newer > 0 ? 0 : 0u - static_cast<std::uint32_t>(newer);
    if (age >= job.slots.history()) return Keeping::nowhere;
    if (newer <= 0) {
      Kept<Handle>& kept = job.slots.kept(result.slot, age);
      if (kept.place == Place::kept) {
        const bool better = known && !kept.tag_known;
        if (better && job.slots.slot(result.slot).state == State::unsettled)
          name(job, kept, result);
        return Keeping::again;
      }
    }
    Kept<Handle> fresh;
    if (!sums_.copy(job, result, newer > 0, fresh)) return Keeping::no_buffer;
    if (known) {
      name(job, fresh, result);
    } else {
      leave_unnamed(job, fresh, whole);
    }
    if (newer > 0) {
      sums_.advance(job, result.slot, static_cast<std::uint32_t>(newer));
      job.highest_round = wire::serial_latest(job.highest_round, round);
    }
    job.slots.kept(result.slot, age) = fresh;
    return Keeping::fresh;
  }

  /// Who is in a result of an asynchronous job is not known here. Where it is `whole` those who
  /// know that the sum had all members in it can tell.
  static void leave_unnamed(const JobType& job, Kept<Handle>& kept, bool whole) {
    const bool complete = whole && (kept.flags & wire::flag::partial) == 0;
    kept.members = complete ? job.members & ~job.joined_since : MemberMask{0};
    kept.tag_known = false;
    kept.flags |= wire::flag::retransmit;
  }

  /// Nobody of this switch's members is.
  static void leave_empty(Kept<Handle>& kept) {
    kept.members = 0;
    kept.tag_known = true;
    kept.flags &= static_cast<std::uint8_t>(~wire::flag::retransmit);
  }

  /// At a child: to the parent, where its bitmap means nothing.
  void hand_up(JobType& job, std::uint32_t index, std::uint32_t round, bool again = false) {
    const Kept<Handle>& kept = job.slots.kept(index, job.slots.slot(index).last_round - round);
    sums_.hand_up(job, index,
                  {.payload = kept.payload,
                   .round = round,
                   .workers = kept.workers,
                   .bytes = kept.bytes,
                   .checksum = kept.checksum,
                   .flags = kept.flags},
                  again);
  }

 private:
  static std::uint32_t round_of(const JobType& job, std::uint64_t position) {
    return static_cast<std::uint32_t>(position / job.spec.slots);
  }

  /// Round of the first position on the slot that is not below `position`.
  std::uint32_t first_round_not_below(const JobType& job, std::uint32_t index,
                                      std::uint64_t position) const {
    const bool passed = sums_.segment(index) < position % job.spec.slots;
    return job.base_round + round_of(job, position) + (passed ? 1 : 0);
  }

  bool is_below_end(const JobType& job, std::uint32_t index, std::uint32_t round) const {
    return wire::serial_newer(first_round_not_below(job, index, job.resumption.end), round);
  }

  // ---- synchronous

  Row take_sync(JobType& job, const ReceivedResult& result) {
    SlotType& slot = job.slots.slot(result.slot);
    const std::uint32_t round = result.header().round;
    const std::int32_t newer = wire::serial_distance(round, slot.last_round);
    const bool wanted =
        newer <= 0 ? is_below_end(job, result.slot, round) : newer == 1 && slot.recovering;
    if (!wanted) return Row::unexpected;
    if (newer <= 0) return take_old(job, result, 0u - static_cast<std::uint32_t>(newer));
    if (slot.state == State::waiting) {
      sync_.send_up_again(job, result.slot);
      return Row::duplicate;
    }
    // What is open gives its buffer, or none of the two has a payload.
    Kept<Handle> fresh;
    if (!take_over(job, slot, result, fresh)) return Row::no_buffer;
    job.highest_round = wire::serial_latest(job.highest_round, round);
    if (job.link == nullptr) {
      become_last(job, result.slot, fresh);
    } else {
      wait_for_parent(job, result, fresh);
    }
    return Row::handed_back;
  }

  Row take_old(JobType& job, const ReceivedResult& result, std::uint32_t age) {
    if (age >= job.slots.history() || job.slots.kept(result.slot, age).place != Place::kept)
      return Row::gone;
    sums_.replay(job, result.slot, age, MemberMask{1} << result.member);
    return Row::kept;
  }

  bool take_over(JobType& job, SlotType& slot, const ReceivedResult& result, Kept<Handle>& fresh) {
    if (slot.sum && result.payload().empty()) sums_.buffers().release(slot.sum);
    if (slot.sum && !result.payload().empty()) {
      fresh.payload = slot.sum;
      std::memcpy(sums_.buffers().data(fresh.payload), result.payload().data(),
                  result.payload().size());
      Sums<Buffers>::describe(job, result, fresh);
    } else if (!sums_.copy(job, result, true, fresh)) {
      return false;
    }
    slot.forget_sum();
    fresh.members = result.header().set;
    fresh.tag_known = false;
    return true;
  }

  void become_last(JobType& job, std::uint32_t index, const Kept<Handle>& fresh) {
    Kept<Handle>& kept = job.slots.advance(index);
    if (kept.payload) sums_.buffers().release(kept.payload);
    kept = fresh;
    sums_.send_to_all(job, index, job.slots.slot(index).last_round, kept);
  }

  /// It goes up as it is, and the slot waits for the parent's answer.
  void wait_for_parent(JobType& job, const ReceivedResult& result, const Kept<Handle>& fresh) {
    SlotType& slot = job.slots.slot(result.slot);
    slot.state = State::waiting;
    slot.handed = true;
    slot.sum = fresh.payload;
    slot.members = 0;  // a bitmap means the members of one switch
    slot.workers = fresh.workers;
    slot.bytes = fresh.bytes;
    slot.checksum = fresh.checksum;
    slot.flags = fresh.flags;
    sync_.send_up_first(job, result.slot);
  }

  // ---- asynchronous

  Row take_async(JobType& job, const ReceivedResult& result) {
    const bool has_none = result.header().round == job.base_round;
    if (!has_none && !wire::serial_newer(result.header().round, job.base_round)) return Row::stale;
    const SlotType& slot = job.slots.slot(result.slot);
    return slot.state == State::unsettled ? take_unsettled(job, result) : take_settled(job, result);
  }

  static bool is_worker(const JobType& job, const ReceivedResult& result) {
    return job.rows[result.member].kind == wire::MemberKind::worker;
  }

  /// Keeps what a member hands back. A child switch's bitmap means its own members, so what workers
  /// of this switch have comes from them.
  Keeping keep_handed(JobType& job, const ReceivedResult& result) {
    const bool from_worker = is_worker(job, result);
    const std::uint32_t round = result.header().round;
    if (!from_worker && !wire::serial_newer(round, job.async->own_newest[result.slot]))
      return Keeping::nowhere;
    const bool said = (result.header().flags & wire::flag::retransmit) == 0;
    // All updates are sums of a root; of a child those that its workers say are.
    const bool whole = job.link == nullptr || (from_worker && !said && result.header().set != 0);
    return keep(job, result, from_worker && said && job.ids_in_doubt == 0, whole);
  }

  Row take_unsettled(JobType& job, const ReceivedResult& result) {
    SlotType& slot = job.slots.slot(result.slot);
    if (keep_handed(job, result) == Keeping::no_buffer) return Row::no_buffer;
    if (is_worker(job, result)) {
      std::uint32_t& own = job.async->own_newest[result.slot];
      own = wire::serial_latest(own, result.header().round);
    }
    const bool again = (slot.members & job.members) == 0;
    slot.members &= ~(MemberMask{1} << result.member);
    if (again) {  // the answer of the parent is still to come
      hand_newest_up(job, result.slot, true);
      return Row::duplicate;
    }
    settle_if_all_said(job, result.slot);
    return Row::handed_back;
  }

  Row take_settled(JobType& job, const ReceivedResult& result) {
    const std::uint32_t round = result.header().round;
    const std::uint32_t last = job.slots.slot(result.slot).last_round;
    if (wire::serial_newer(round, last)) return Row::unexpected;
    switch (keep_handed(job, result)) {
      case Keeping::no_buffer:
        return Row::no_buffer;
      case Keeping::fresh:
        sums_.send_to_all(job, result.slot, round, job.slots.kept(result.slot, last - round));
        return Row::handed_back;
      case Keeping::again:
      case Keeping::nowhere:
        break;
    }
    sums_.send_settled(job, result.slot, MemberMask{1} << result.member);
    return Row::kept;
  }

  void hand_newest_up(JobType& job, std::uint32_t index, bool again) {
    const std::uint32_t last = job.slots.slot(index).last_round;
    if (last != job.base_round) return hand_up(job, index, last, again);
    sums_.hand_up(job, index, {.round = job.base_round}, again);
  }

  /// The bitmap that it came with is one of this switch's members.
  /// Bits of members that have joined since are their predecessors'.
  static void name(const JobType& job, Kept<Handle>& kept, const ReceivedResult& result) {
    kept.members = result.header().set & ~job.joined_since;
    kept.tag_known = true;
    kept.flags &= static_cast<std::uint8_t>(~wire::flag::retransmit);
  }

  Sums<Buffers>& sums_;
  SyncSlots<Buffers>& sync_;
};

}  // namespace iswitch::pipeline
