// Results of the parent at a child, protocol.md sections 4 and 5.
#pragma once

#include <cstring>
#include <utility>

#include "switchd/pipeline/aggregate_async.h"
#include "switchd/pipeline/aggregate_sync.h"
#include "wire/checksum.h"

namespace iswitch::pipeline {

template <BufferPool Buffers>
class ParentResults {
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;

  ParentResults(Sums<Buffers>& sums, SyncSlots<Buffers>& sync, AsyncSlots<Buffers>& async)
      : sums_(sums), sync_(sync), async_(async) {}

  Taken take(JobType& job, const ParentResult& result) {
    if (result.packet->ecn == wire::Ecn::ce) job.link->echo = true;
    const std::uint32_t round = result.header().round;
    const std::int32_t newer = wire::serial_distance(round, job.slots.slot(result.slot).last_round);
    const std::uint32_t age = newer > 0 ? 0 : 0u - static_cast<std::uint32_t>(newer);
    if (newer <= 0) {
      if (age >= job.slots.history()) return Taken::old;
      const Place place = job.slots.kept(result.slot, age).place;
      if (place == Place::unused) return Taken::old;
      if (place == Place::kept) return answer(job, result.slot, age);
    }
    Kept<Handle> fresh;
    if (!copy(job, result, newer > 0, fresh)) return Taken::no_buffer;
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
  /// The payload bit for bit in a buffer of our own: the frame goes back to its driver. False when
  /// there is none.
  bool copy(JobType& job, const ParentResult& result, bool is_newer, Kept<Handle>& fresh) {
    const Bytes payload = result.payload();
    if (!payload.empty()) {
      fresh.payload = sums_.buffers().acquire();
      if (!fresh.payload && is_newer && forget_oldest(job, result.slot))
        fresh.payload = sums_.buffers().acquire();
      if (!fresh.payload) return false;
      std::uint8_t* to = sums_.buffers().data(fresh.payload);
      std::memcpy(to, payload.data(), payload.size());
      if (job.spec.udp_checksum)
        fresh.checksum = wire::fold(wire::partial_sum({to, payload.size()}));
    }
    fresh.workers = result.header().member;
    fresh.bytes = static_cast<std::uint16_t>(payload.size());
    fresh.flags = result.flags;
    fresh.place = Place::kept;
    return true;
  }

  /// Where memory is just enough for what slots hold, the result that falls out of the history
  /// makes room for the new one: nothing else would while every slot's sum waits for the parent.
  bool forget_oldest(JobType& job, std::uint32_t index) {
    Kept<Handle>& oldest = job.slots.kept(index, job.slots.history() - 1u);
    if (!oldest.payload) return false;
    sums_.buffers().release(oldest.payload);
    oldest = {};
    oldest.place = Place::hole;
    return true;
  }

  /// What the result means for the slot's own sum; fills the bitmap and the tag. True when it
  /// acknowledges that sum.
  bool settle(JobType& job, const ParentResult& result, std::int32_t newer, Kept<Handle>& fresh) {
    const bool in_it = (result.header().set >> job.link->spec.member & 1) != 0;
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
};

}  // namespace iswitch::pipeline
