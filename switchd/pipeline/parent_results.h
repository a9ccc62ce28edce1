// Results of the parent at a child, protocol.md sections 4 and 5.
#pragma once

#include <utility>

#include "switchd/pipeline/aggregate_async.h"
#include "switchd/pipeline/aggregate_sync.h"
#include "switchd/pipeline/handed_back.h"

namespace iswitch::pipeline {

template <BufferPool Buffers>
class ParentResults {
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;

  ParentResults(Sums<Buffers>& sums, SyncSlots<Buffers>& sync, AsyncSlots<Buffers>& async,
                HandedBack<Buffers>& handed_back)
      : sums_(sums), sync_(sync), async_(async), handed_back_(handed_back) {}

  Taken take(JobType& job, const ReceivedResult& result) {
    if (result.packet->ecn == wire::Ecn::ce) job.link->echo = true;
    if (job.slots.slot(result.slot).state == Slot<Handle>::State::unsettled)
      return take_unsettled(job, result);
    const std::uint32_t round = result.header().round;
    const std::int32_t newer = wire::serial_distance(round, job.slots.slot(result.slot).last_round);
    const std::uint32_t age = newer > 0 ? 0 : 0u - static_cast<std::uint32_t>(newer);
    if (newer <= 0) {
      if (age >= job.slots.history()) return Taken::old;
      const Place place = job.slots.kept(result.slot, age).place;
      if (place == Place::unused) return Taken::old;
      if (place == Place::kept) return answer(job, result.slot, age);
      // A worker of this switch has it, and knows who is in it.
      if (job.async != nullptr && is_up_to(job, result, job.async->own_newest[result.slot]))
        return Taken::old;
    }
    Kept<Handle> fresh;
    if (!sums_.copy(job, result, newer > 0, fresh)) return Taken::no_buffer;
    const bool acknowledged = settle(job, result, newer, fresh);
    if (newer > 0) {
      sums_.advance(job, result.slot, static_cast<std::uint32_t>(newer));
      job.highest_round = wire::serial_latest(job.highest_round, round);
    }
    Kept<Handle>& kept = job.slots.kept(result.slot, age);
    kept = fresh;
    sums_.send_to_all(job, result.slot, round, kept);
    if (acknowledged && job.async != nullptr) async_.leave_if_met(job, result.slot);
    return Taken::taken;
  }

 private:
  /// The parent's newest settles the slot, and nothing else does (section 9).
  Taken take_unsettled(JobType& job, const ReceivedResult& result) {
    using Keeping = typename HandedBack<Buffers>::Keeping;
    const bool asked_for = (job.slots.slot(result.slot).members & job.members) == 0;
    const bool settles = (result.header().flags & wire::flag::settled) != 0;
    if (!asked_for || !settles) return Taken::old;
    const Keeping keeping = handed_back_.keep(job, result, false, is_whole(job, result));
    if (keeping == Keeping::no_buffer) return Taken::no_buffer;
    if (keeping == Keeping::fresh && !in_doubt(job, result))
      HandedBack<Buffers>::leave_empty(job.slots.kept(result.slot, 0));
    handed_back_.settle(job, result.slot);
    return Taken::taken;
  }

  /// Of an update from before the restart: whether who of this switch's members is in it is not
  /// known. Nobody is, where the parent knows that this switch is not.
  static bool in_doubt(const JobType& job, const ReceivedResult& result) {
    const wire::Header& header = result.header();
    return (header.flags & wire::flag::retransmit) != 0 ||
           (header.set >> job.link->spec.member & 1) != 0;
  }

  /// Whether a sum of this switch is in such an update, for all that is known.
  static bool is_whole(const JobType& job, const ReceivedResult& result) {
    const wire::Header& header = result.header();
    const bool named = (header.flags & wire::flag::retransmit) == 0;
    const bool bit = (header.set >> job.link->spec.member & 1) != 0;
    return bit && (named || job.link->spec.waited_for_all);
  }

  /// Of a job that went on with its stream: an update that is not newer than `newest`.
  static bool is_up_to(const JobType& job, const ReceivedResult& result, std::uint32_t newest) {
    return job.resumed && job.async != nullptr &&
           AsyncSlots<Buffers>::is_up_to(job.slots.slot(result.slot), result.header().round,
                                         newest);
  }

  /// What the result means for the slot's own sum; fills the bitmap and the tag. True when it
  /// acknowledges that sum.
  bool settle(JobType& job, const ReceivedResult& result, std::int32_t newer, Kept<Handle>& fresh) {
    const bool in_it = (result.header().set >> job.link->spec.member & 1) != 0;
    if (newer <= 0 && is_up_to(job, result, job.slots.slot(result.slot).settled_at)) {
      // Its bitmap is about pushes from before.
      if (in_doubt(job, result))
        HandedBack<Buffers>::leave_unnamed(job, fresh, is_whole(job, result));
      return false;
    }
    if (job.async != nullptr) return async_.acknowledge(job, result.slot, in_it, fresh);
    if (newer > 0) return sync_.close(job, result.slot, in_it && newer == 1, fresh);
    fresh.tag_known = false;  // an older round, whose own sum was closed unanswered
    return false;
  }

  /// It is kept already. Members whose contribution was passed up have waited for this.
  Taken answer(JobType& job, std::uint32_t index, std::uint32_t age) {
    if (job.async != nullptr) return Taken::again;
    const MemberMask asked =
        std::exchange(job.link->asked[job.slots.place_of(index, age)], MemberMask{0}) & job.members;
    if (asked == 0) return Taken::again;
    sums_.replay(job, index, age, asked);
    return Taken::answered;
  }

  Sums<Buffers>& sums_;
  SyncSlots<Buffers>& sync_;
  AsyncSlots<Buffers>& async_;
  HandedBack<Buffers>& handed_back_;
};

}  // namespace iswitch::pipeline
