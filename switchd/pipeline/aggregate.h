// Third stage: the slot of a synchronous job, protocol.md section 4.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "switchd/pipeline/buffers.h"
#include "switchd/pipeline/classify.h"
#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/frame.h"
#include "switchd/pipeline/job.h"
#include "switchd/pipeline/kernels.h"
#include "wire/serial.h"

namespace iswitch::pipeline {

/// A result on its way to deliver. It holds a share of its payload, since the slot may complete
/// again, and let go of the payload, before the sink is called.
template <class Handle>
struct Outgoing {
  Delivery<Handle> delivery;
  std::uint16_t copies = 0;
  bool again = false;  ///< a kept result for one member
};

/// In order; a burst or an order's step makes at most one for each contribution.
template <class Handle>
struct Outbox {
  std::array<Outgoing<Handle>, max_burst> list{};
  std::size_t count = 0;
};

/// Which row of section 4's table a contribution fell under.
enum class Row : std::uint8_t {
  kept,      ///< answered with the kept result
  mismatch,  ///< kept or open, and another operation tag or length
  duplicate,
  added,  ///< to an open sum, or opening one
  ahead,
  stale,
  no_buffer,  ///< no row of the table: payload memory is exhausted
};

/// Where a row is counted, and whom it is told to.
struct RowAccount {
  Counter counter;
  JobCounter job_counter;
};
inline constexpr std::array<RowAccount, 7> row_accounts{{
    {Counter::aggregate_replayed, JobCounter::replayed},
    {Counter::aggregate_drop_mismatch, JobCounter::mismatches},
    {Counter::aggregate_drop_duplicate, JobCounter::duplicates},
    {Counter::aggregate_added, JobCounter::added},
    {Counter::aggregate_drop_ahead, JobCounter::ahead},
    {Counter::aggregate_drop_stale, JobCounter::stale},
    {Counter::aggregate_drop_no_buffer, JobCounter::no_buffer},
}};
inline constexpr const RowAccount& account_of(Row row) {
  return row_accounts[static_cast<std::size_t>(row)];
}

template <BufferPool Buffers>
class Aggregator {
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;
  using SlotType = Slot<Handle>;

  Aggregator(Buffers& buffers, const Kernels& kernels, const ShardPlace& place, Counters& counters)
      : buffers_(buffers), kernels_(kernels), place_(place), counters_(counters) {}

  Outbox<Handle>& outbox() { return outbox_; }

  /// One contribution; what it completes or asks for again is put into the outbox.
  Row contribute(JobType& job, const Contribution& c, Time now) {
    SlotType& slot = job.slots.slot(c.slot);
    // Serial distance: 2^31 counts as older.
    const wire::Header& header = c.header();
    const std::int32_t newer = wire::serial_distance(header.round, slot.last_round);
    if (newer <= 0) return contribute_old(job, c, 0u - static_cast<std::uint32_t>(newer));
    // An open sum's round is always last_round + 1. (A slot that waits for its parent comes first
    // here: late or again.)
    if (newer > 1) return refuse_ahead(job, c, newer);
    const std::size_t bytes = c.payload().size();
    if (slot.state == SlotType::State::open) {
      if ((slot.members >> header.member & 1) != 0) return Row::duplicate;
      const bool other_length = bytes != 0 && slot.bytes != 0 && bytes != slot.bytes;
      if (header.operation_tag() != slot.tag || other_length) return Row::mismatch;
    }
    if (bytes != 0 && slot.bytes == 0 && !take_buffer(slot)) return Row::no_buffer;
    if (slot.state == SlotType::State::idle) open(job, slot, c, now);
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

  // ---- orders

  /// Completes an open sum now, marked PARTIAL.
  void force(JobType& job, std::uint32_t index) {
    SlotType& slot = job.slots.slot(index);
    slot.flags |= wire::flag::partial;
    counters_.add(Counter::aggregate_forced);
    job.stats->add(JobCounter::forced);
    complete(job, index, finished_checksum(slot));
  }

  /// Completes an open sum if that needs nobody any more (a member has gone).
  void complete_if_met(JobType& job, std::uint32_t index) {
    SlotType& slot = job.slots.slot(index);
    if (slot.state != SlotType::State::open || !is_met(job, slot, slot.members, slot.contributions))
      return;
    complete(job, index, finished_checksum(slot));
  }

  /// State of one round of a slot, for Force and Replay.
  datapath::SlotState state_of(JobType& job, std::uint32_t index, std::uint32_t round) const {
    const SlotType& slot = job.slots.slot(index);
    const std::uint32_t age = slot.last_round - round;
    if (age < job.slots.history() && job.slots.kept(index, age).valid)
      return datapath::SlotState::kept;
    if (!wire::serial_newer(round, slot.last_round)) return datapath::SlotState::gone;
    if (slot.state == SlotType::State::open && round == slot.last_round + 1)
      return datapath::SlotState::open;
    return datapath::SlotState::none;
  }

  /// Sends a kept result to one member.
  void replay(JobType& job, std::uint32_t index, std::uint32_t round, wire::MemberId member) {
    const std::uint32_t age = job.slots.slot(index).last_round - round;
    job.stats->add(JobCounter::replays);
    send(job, index, round, job.slots.kept(index, age),
         {.mask = MemberMask{1} << member, .copies = 1, .again = true});
  }

  /// Every slot as if never used, its last round before `base_round`; all buffers are given back.
  void clear(JobType& job, std::uint32_t base_round) {
    for (std::uint32_t i = 0; i < job.slots.size(); ++i) {
      SlotType& slot = job.slots.slot(i);
      if (slot.sum) buffers_.release(slot.sum);
      slot = {};
      slot.last_round = base_round - 1;
      for (std::uint32_t age = 0; age < job.slots.history(); ++age) {
        Kept<Handle>& kept = job.slots.kept(i, age);
        if (kept.payload) buffers_.release(kept.payload);
        kept = {};
      }
    }
  }

 private:
  /// How far ahead a round may be to be believed when Reset asks for the highest round seen.
  static constexpr std::int32_t believable = 1 << 20;

  Row contribute_old(JobType& job, const Contribution& c, std::uint32_t age) {
    if (age >= job.slots.history()) return Row::stale;
    const Kept<Handle>& kept = job.slots.kept(c.slot, age);
    if (!kept.valid) return Row::stale;
    if (kept.tag != c.header().operation_tag()) return Row::mismatch;
    replay(job, c.slot, c.header().round, c.header().member);
    return Row::kept;
  }

  Row refuse_ahead(JobType& job, const Contribution& c, std::int32_t newer) {
    if (newer <= believable)
      job.highest_round = wire::serial_latest(job.highest_round, c.header().round);
    return Row::ahead;
  }

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
    slot.threshold = job.threshold;
    job.highest_round = wire::serial_latest(job.highest_round, c.header().round);
    counters_.add(Counter::aggregate_opened);
  }

  void add(JobType& job, SlotType& slot, const Contribution& c) {
    const wire::Header& header = c.header();
    const Bytes payload = c.payload();
    const MemberMask members = slot.members | MemberMask{1} << header.member;
    const auto contributions = static_cast<std::uint16_t>(slot.contributions + 1);
    const bool completes = is_met(job, slot, members, contributions);
    slot.members = members;
    slot.contributions = contributions;
    slot.workers += header.workers();
    slot.flags |= c.carried;
    job.stats->add(JobCounter::added);
    job.stats->add(JobCounter::added_bytes, payload.size());

    const std::size_t count = payload.size() / sizeof(float);
    if (completes && slot.bytes != 0 && count != 0) {
      complete(job, c.slot, kernels_.add_and_finish(slot.floats, payload.data(), count));
      return;
    }
    if (count != 0) {
      (slot.bytes == 0 ? kernels_.open : kernels_.add)(slot.floats, payload.data(), count);
      slot.bytes = static_cast<std::uint16_t>(payload.size());
    }
    if (completes) complete(job, c.slot, finished_checksum(slot));
  }

  /// The threshold in force is never above the number of members.
  static bool is_met(const Admission& job, const SlotType& slot, MemberMask members,
                     std::uint16_t contributions) {
    if (slot.threshold == 0) return (job.members & ~members) == 0;
    return contributions >= std::min(slot.threshold, job.member_count);
  }

  wire::PartialSum finished_checksum(SlotType& slot) const {
    if (slot.bytes == 0) return 0;
    return kernels_.finish(slot.floats, slot.bytes / sizeof(float));
  }

  /// The open sum becomes the last result, without a copy, and goes to every member.
  void complete(JobType& job, std::uint32_t index, wire::PartialSum checksum) {
    SlotType& slot = job.slots.slot(index);
    Kept<Handle>& kept = job.slots.advance(index);
    if (kept.payload) buffers_.release(kept.payload);
    kept.payload = slot.sum;
    kept.members = slot.members;
    kept.tag = slot.tag;
    kept.workers = static_cast<std::uint16_t>(std::min<std::uint32_t>(slot.workers, 0xFFFF));
    kept.bytes = slot.bytes;
    kept.checksum = job.spec.udp_checksum ? wire::fold(checksum) : std::uint16_t{0};
    kept.flags =
        static_cast<std::uint8_t>(slot.flags | static_cast<std::uint8_t>(job.spec.data_type));
    kept.valid = true;

    slot.state = SlotType::State::idle;
    slot.sum = {};
    slot.floats = nullptr;
    slot.members = 0;
    slot.contributions = 0;
    slot.workers = 0;
    slot.bytes = 0;
    slot.flags = 0;

    counters_.add(Counter::aggregate_completed);
    job.stats->add(JobCounter::results);
    if (job.members == 0) return;
    send(job, index, slot.last_round, kept,
         {.mask = job.members, .copies = job.member_count, .again = false});
  }

  struct Recipients {
    MemberMask mask = 0;
    std::uint16_t copies = 0;
    bool again = false;
  };

  void send(const JobType& job, std::uint32_t index, std::uint32_t round, const Kept<Handle>& kept,
            const Recipients& to) {
    if (kept.payload) buffers_.share(kept.payload, 1);
    Outgoing<Handle>& out = outbox_.list[outbox_.count++];
    out.copies = to.copies;
    out.again = to.again;
    out.delivery.fields.set({.job = job.spec.id,
                             .flags = kept.flags,
                             .workers = kept.workers,
                             .round = round,
                             .segment = place_.segment(index),
                             .members = kept.members,
                             .payload_bytes = kept.bytes,
                             .payload_sum = kept.checksum});
    out.delivery.payload = kept.payload;
    out.delivery.to = to.mask;
    out.delivery.destinations = job.destinations.data();
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
