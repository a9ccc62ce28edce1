// What the slots of every kind of job do alike: adding floats, keeping and sending results, sending
// sums up. When they do it is the business of aggregate_sync.h, aggregate_async.h and
// parent_results.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "switchd/pipeline/buffers.h"
#include "switchd/pipeline/classify.h"
#include "switchd/pipeline/job.h"
#include "switchd/pipeline/kernels.h"
#include "switchd/pipeline/outbox.h"
#include "wire/checksum.h"
#include "wire/serial.h"

namespace iswitch::pipeline {

template <BufferPool Buffers>
class Sums {
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;
  using SlotType = Slot<Handle>;

  Sums(Buffers& buffers, const Kernels& kernels, const ShardPlace& place, Counters& counters)
      : buffers_(buffers), kernels_(kernels), place_(place), counters_(counters) {}

  Buffers& buffers() { return buffers_; }
  Outbox<Handle>& outbox() { return outbox_; }
  std::uint32_t segment(std::uint32_t index) const { return place_.segment(index); }

  // ---- the open sum

  bool take_buffer(SlotType& slot) {
    Handle fresh = buffers_.acquire();
    if (!fresh) return false;
    slot.sum = fresh;
    slot.floats = buffers_.data(fresh);
    return true;
  }

  void open(JobType& job, SlotType& slot, const Contribution& c, Time now) {
    slot.state = SlotType::State::open;
    slot.opened_at = now;
    slot.tag = c.header().operation_tag();
    slot.threshold = slot.recovering ? std::uint16_t{0} : job.threshold;
    job.highest_round = wire::serial_latest(job.highest_round, c.header().round);
    counters_.add(Counter::aggregate_opened);
  }

  /// Adds a payload to the sum. With `last` the sum is finished too: its checksum, else 0.
  wire::PartialSum add(JobType& job, SlotType& slot, Bytes payload, bool last) {
    job.stats->add(JobCounter::added);
    job.stats->add(JobCounter::added_bytes, payload.size());
    const std::size_t count = payload.size() / sizeof(float);
    if (last && slot.bytes != 0 && count != 0)
      return kernels_.add_and_finish(slot.floats, payload.data(), count);
    if (count != 0) {
      (slot.bytes == 0 ? kernels_.open : kernels_.add)(slot.floats, payload.data(), count);
      slot.bytes = static_cast<std::uint16_t>(payload.size());
    }
    return last ? finish(slot) : 0;
  }

  /// The sum takes nothing more; its checksum.
  wire::PartialSum finish(SlotType& slot) const {
    if (slot.bytes == 0) return 0;
    return kernels_.finish(slot.floats, slot.bytes / sizeof(float));
  }

  /// Marks an open sum PARTIAL.
  void mark_forced(JobType& job, SlotType& slot) {
    slot.flags |= wire::flag::partial;
    counters_.add(Counter::aggregate_forced);
    job.stats->add(JobCounter::forced);
  }

  void count_completed() { counters_.add(Counter::aggregate_completed); }

  static std::uint16_t workers_field(std::uint32_t workers) {
    return static_cast<std::uint16_t>(std::min<std::uint32_t>(workers, 0xFFFF));
  }
  /// What is kept of a checksum.
  static std::uint16_t folded(const JobType& job, wire::PartialSum checksum) {
    return job.spec.udp_checksum ? wire::fold(checksum) : std::uint16_t{0};
  }

  // ---- results

  /// At a root: the open sum becomes the last result, without a copy, and goes to every member.
  void complete(JobType& job, std::uint32_t index, wire::PartialSum checksum) {
    SlotType& slot = job.slots.slot(index);
    Kept<Handle>& kept = job.slots.advance(index);
    if (kept.payload) buffers_.release(kept.payload);
    kept.payload = slot.sum;
    kept.members = slot.members;
    kept.tag = slot.tag;
    kept.workers = workers_field(slot.workers);
    kept.bytes = slot.bytes;
    kept.checksum = folded(job, checksum);
    kept.flags =
        static_cast<std::uint8_t>(slot.flags | static_cast<std::uint8_t>(job.spec.data_type));
    kept.place = Place::kept;
    slot.forget_sum();
    count_completed();
    send_to_all(job, index, slot.last_round, kept);
  }

  void send_to_all(JobType& job, std::uint32_t index, std::uint32_t round,
                   const Kept<Handle>& kept) {
    job.stats->add(JobCounter::results);
    if (job.members == 0) return;
    send(job, index, round, kept,
         {.mask = job.members, .copies = job.member_count, .counter = Counter::deliver_results});
  }

  /// Section 9: the newest result, or that there is none, settles the slot of those that it goes
  /// to.
  void send_settled(JobType& job, std::uint32_t index, MemberMask to) {
    job.stats->add(JobCounter::replays);
    if (to == 0) return;
    const std::uint32_t last = job.slots.slot(index).last_round;
    Kept<Handle> none;
    none.flags = static_cast<std::uint8_t>(job.spec.data_type);
    send(job, index, last, last == job.base_round ? none : job.slots.kept(index, 0),
         {.mask = to,
          .copies = static_cast<std::uint16_t>(std::popcount(to)),
          .counter = Counter::deliver_replays,
          .flags = wire::flag::settled});
  }

  /// The payload bit for bit in a buffer of our own: the frame goes back to its driver. False when
  /// there is none.
  bool copy(JobType& job, const ReceivedResult& result, bool is_newer, Kept<Handle>& fresh) {
    const Bytes payload = result.payload();
    if (!payload.empty()) {
      fresh.payload = buffers_.acquire();
      if (!fresh.payload && is_newer && forget_oldest(job, result.slot))
        fresh.payload = buffers_.acquire();
      if (!fresh.payload) return false;
      std::memcpy(buffers_.data(fresh.payload), payload.data(), payload.size());
    }
    describe(job, result, fresh);
    return true;
  }

  /// Everything of a received result but its payload's buffer, its bitmap and its tag.
  static void describe(const JobType& job, const ReceivedResult& result, Kept<Handle>& fresh) {
    if (job.spec.udp_checksum) fresh.checksum = wire::fold(wire::partial_sum(result.payload()));
    fresh.workers = result.header().member;
    fresh.bytes = static_cast<std::uint16_t>(result.payload().size());
    fresh.flags = result.flags;
    fresh.place = Place::kept;
  }

  /// Sends a kept result again, to members that the job has.
  void replay(JobType& job, std::uint32_t index, std::uint32_t age, MemberMask to) {
    job.stats->add(JobCounter::replays);
    send(job, index, job.slots.slot(index).last_round - age, job.slots.kept(index, age),
         {.mask = to,
          .copies = static_cast<std::uint16_t>(std::popcount(to)),
          .counter = Counter::deliver_replays});
  }

  /// Moves the ring on by `rounds`: the last result's place is a hole then, as those skipped.
  void advance(JobType& job, std::uint32_t index, std::uint32_t rounds) {
    SlotTable<Handle>& slots = job.slots;
    const std::uint32_t last_round = slots.slot(index).last_round + rounds;
    for (std::uint32_t i = std::min<std::uint32_t>(rounds, slots.history()); i > 0; --i) {
      Kept<Handle>& kept = slots.advance(index);
      if (kept.payload) buffers_.release(kept.payload);
      kept = {};
      kept.place = Place::hole;
      if (job.link != nullptr && !job.link->asked.empty())
        job.link->asked[slots.place_of(index, 0)] = 0;
    }
    slots.slot(index).last_round = last_round;
  }

  // ---- to the parent

  struct Upward {
    Handle payload{};
    MemberMask members = 0;
    std::uint32_t round = 0;
    std::uint32_t tag = 0;
    std::uint32_t workers = 0;
    std::uint16_t bytes = 0;
    std::uint16_t checksum = 0;
    std::uint8_t flags = 0;
  };

  void send_up(JobType& job, std::uint32_t index, const Upward& sum, bool again) {
    if (sum.payload) buffers_.share(sum.payload, 1);
    Outgoing<Handle>& out = outbox_.list[outbox_.count++];
    out.copies = 0;
    out.counter = again ? Counter::deliver_up_again : Counter::deliver_up;
    job.stats->add(again ? JobCounter::sums_up_again : JobCounter::sums_up);
    const unsigned flags = sum.flags | static_cast<unsigned>(job.spec.data_type) |
                           (again ? wire::flag::retransmit : 0u);
    out.delivery.fields.set({.job = job.spec.id,
                             .flags = static_cast<std::uint8_t>(flags),
                             .workers = workers_field(sum.workers),
                             .round = sum.round,
                             .segment = place_.segment(index),
                             .members = sum.members,
                             .payload_bytes = sum.bytes,
                             .payload_sum = sum.checksum},
                            {.member = job.link->spec.member, .operation_tag = sum.tag});
    out.delivery.payload = sum.payload;
    out.delivery.to = 1;
    out.delivery.destinations = &job.link->way_up;
    out.delivery.up = true;
  }

  /// Hands a result back to the parent; `sum.members` is the bitmap that it came with.
  void hand_up(JobType& job, std::uint32_t index, const Upward& sum, bool again) {
    send_up(job, index, sum, again);
    wire::ResultMessage& fields = outbox_.list[outbox_.count - 1].delivery.fields;
    const wire::ResultFields same = fields;
    fields.set(same);
  }

  /// Congestion that a result from the parent had met, for the next sum that goes up.
  static std::uint8_t take_echo(JobType& job) {
    const bool echo = job.link->echo;
    job.link->echo = false;
    return echo ? wire::flag::ecn_echo : std::uint8_t{0};
  }

  // ---- life

  /// Every slot as if never used, with this last round; gives back the buffers of sums and results.
  void clear(JobType& job, std::uint32_t last_round) {
    for (std::uint32_t i = 0; i < job.slots.size(); ++i) {
      SlotType& slot = job.slots.slot(i);
      if (slot.sum) buffers_.release(slot.sum);
      slot = {};
      slot.last_round = last_round;
      slot.settled_at = last_round;
      for (std::uint32_t age = 0; age < job.slots.history(); ++age) {
        Kept<Handle>& kept = job.slots.kept(i, age);
        if (kept.payload) buffers_.release(kept.payload);
        kept = {};
      }
    }
    if (job.link == nullptr) return;
    job.link->echo = false;
    std::fill(job.link->asked.begin(), job.link->asked.end(), MemberMask{0});
  }

 private:
  struct Recipients {
    MemberMask mask = 0;
    std::uint16_t copies = 0;
    Counter counter = Counter::deliver_results;
    std::uint8_t flags = 0;  ///< of these copies alone
  };

  /// Where memory is just enough for what slots hold, the result that falls out of the history
  /// makes room for the new one: nothing else would while every slot's sum waits for the parent.
  bool forget_oldest(JobType& job, std::uint32_t index) {
    Kept<Handle>& oldest = job.slots.kept(index, job.slots.history() - 1u);
    if (!oldest.payload) return false;
    buffers_.release(oldest.payload);
    oldest = {};
    oldest.place = Place::hole;
    return true;
  }

  void send(const JobType& job, std::uint32_t index, std::uint32_t round, const Kept<Handle>& kept,
            const Recipients& to) {
    if (kept.payload) buffers_.share(kept.payload, to.copies);
    Outgoing<Handle>& out = outbox_.list[outbox_.count++];
    out.copies = to.copies;
    out.counter = to.counter;
    out.delivery.fields.set({.job = job.spec.id,
                             .flags = static_cast<std::uint8_t>(kept.flags | to.flags),
                             .workers = kept.workers,
                             .round = round,
                             .segment = place_.segment(index),
                             .members = kept.members,
                             .payload_bytes = kept.bytes,
                             .payload_sum = kept.checksum});
    out.delivery.payload = kept.payload;
    out.delivery.to = to.mask;
    out.delivery.destinations = job.destinations.data();
    out.delivery.up = false;
    job.stats->add(JobCounter::copies, to.copies);
    job.stats->add(JobCounter::copied_bytes, std::uint64_t{to.copies} * kept.bytes);
  }

  Buffers& buffers_;
  Kernels kernels_;
  ShardPlace place_;
  Counters& counters_;
  Outbox<Handle> outbox_;
};

}  // namespace iswitch::pipeline
