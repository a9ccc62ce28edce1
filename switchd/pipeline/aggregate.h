// Third stage: the slots of a shard's jobs. Which rules hold for a slot is its job's mode.
#pragma once

#include <vector>

#include "switchd/pipeline/aggregate_async.h"
#include "switchd/pipeline/aggregate_sync.h"
#include "switchd/pipeline/handed_back.h"
#include "switchd/pipeline/parent_results.h"
#include "switchd/pipeline/rows.h"
#include "switchd/pipeline/sums.h"

namespace iswitch::pipeline {

template <BufferPool Buffers>
class Aggregator {
 public:
  using Handle = typename Buffers::Handle;
  using JobType = Job<Handle>;
  using SlotType = Slot<Handle>;
  using State = typename SlotType::State;

  Aggregator(Buffers& buffers, const Kernels& kernels, const ShardPlace& place, Counters& counters)
      : sums_(buffers, kernels, place, counters) {}
  Aggregator(const Aggregator&) = delete;
  Aggregator& operator=(const Aggregator&) = delete;

  Outbox<Handle>& outbox() { return sums_.outbox(); }

  /// One contribution; what it completes or asks for again is put into the outbox.
  Row contribute(JobType& job, const Contribution& c, Time now) {
    if (!is_async(job)) return sync_.contribute(job, c, now);
    const Row row = async_.contribute(job, c, now);
    if (row == Row::unsettled) handed_back_.ask_again(job, c.slot);
    return row;
  }

  /// One result of the parent, at a child.
  Taken take(JobType& job, const ReceivedResult& result) {
    return parent_results_.take(job, result);
  }
  /// One that a member hands back.
  Row take_back(JobType& job, const ReceivedResult& result) {
    return handed_back_.take(job, result);
  }

  /// Members already in the sum that a mismatching contribution was for.
  MemberMask members_of_round(JobType& job, const Contribution& c) const {
    if (is_async(job)) return job.slots.slot(c.slot).members;
    return sync_.members_of_round(job, c);
  }

  // ---- orders

  /// State of one round or update of a slot.
  datapath::SlotState state_of(JobType& job, std::uint32_t index, std::uint32_t round) const {
    return is_async(job) ? async_.state_of(job, index, round) : sync_.state_of(job, index, round);
  }

  /// Completes an open sum now, marked PARTIAL; what it was before that. In an asynchronous job
  /// whatever is open.
  datapath::SlotState force(JobType& job, std::uint32_t index, std::uint32_t round) {
    if (is_async(job)) return async_.force(job, index);
    const datapath::SlotState state = sync_.state_of(job, index, round);
    if (state == datapath::SlotState::open) {
      if (job.slots.slot(index).recovering) return datapath::SlotState::none;
      sync_.force_open(job, index);
    }
    return state;
  }

  /// The same for a sum that has been open for too long.
  void force_if_older(JobType& job, std::uint32_t index, Time oldest) {
    const SlotType& slot = job.slots.slot(index);
    if (slot.state != State::open || slot.opened_at > oldest || slot.recovering) return;
    if (!is_async(job)) return sync_.force_open(job, index);
    if (!async_.is_met(job, slot)) async_.force(job, index);
  }

  /// Completes an open sum if that needs nobody any more (a member has gone).
  void complete_if_met(JobType& job, std::uint32_t index) {
    if (is_async(job)) {
      handed_back_.settle_if_all_said(job, index);
      return async_.leave_if_met(job, index);
    }
    sync_.complete_if_met(job, index);
  }

  /// A sum that waits for the parent goes there again. (In an asynchronous job no state_of says so:
  /// Help is about updates there, and nobody asks for one that is still to come.)
  void send_up_again(JobType& job, std::uint32_t index) { sync_.send_up_again(job, index); }

  /// At an asynchronous child: the parent looks for an update that is kept here.
  void hand_up(JobType& job, std::uint32_t index, std::uint32_t update) {
    // Until the parent has settled the slot, what comes there is taken for the newest.
    const bool settled = job.slots.slot(index).state != Slot<Handle>::State::unsettled;
    if (is_async(job) && settled) handed_back_.hand_up(job, index, update);
  }

  /// At an asynchronous child: a push that is in an update which is not kept any more.
  void give_up_waiting(JobType& job, std::uint32_t index, std::uint32_t push) {
    if (is_async(job) && job.link != nullptr) async_.give_up_waiting(job, index, push);
  }

  /// The result that a contribution came too late for (Row::gone).
  std::uint32_t gone_round(const JobType& job, const Contribution& c) const {
    return is_async(job) ? async_.gone_round(job, c) : c.header().round;
  }

  /// Sends a kept result to one member.
  void replay(JobType& job, std::uint32_t index, std::uint32_t round, wire::MemberId member) {
    sums_.replay(job, index, job.slots.slot(index).last_round - round, MemberMask{1} << member);
  }

  /// The row of `member` is another's from now on, or nobody's. May throw bad_alloc, before
  /// anything has changed.
  void refill(JobType& job, wire::MemberId member) {
    if (is_async(job)) async_.refill(job, member);
  }
  void forget(JobType& job, wire::MemberId member) {
    if (is_async(job)) async_.forget(job, member);
  }

  /// Every slot as if never used since `base_round`; all buffers are given back.
  void clear(JobType& job, std::uint32_t base_round) {
    sums_.clear(job, is_async(job) ? base_round : base_round - 1);
    if (is_async(job)) async_.clear(job, base_round);
  }

  /// The same, and then the slots as they are in a stream that goes on.
  void resume(JobType& job, std::uint32_t base_round) {
    clear(job, base_round);
    handed_back_.expect(job);
  }

  /// Appends what is open and what waits for the parent.
  void list(const JobType& job, std::uint32_t index, std::vector<datapath::OpenSlot>& to) const {
    const SlotType& slot = job.slots.slot(index);
    if (is_async(job) && job.link != nullptr) {
      const OutstandingPush<Handle>& push = job.async->outstanding[index];
      if (push.waiting) {
        to.push_back({.segment = sums_.segment(index),
                      .round = push.number,
                      .opened_at = push.opened_at,
                      .members = push.members,
                      .missing = job.members & ~push.members,
                      .workers = push.workers,
                      .bytes = push.bytes,
                      .waiting = true});
      }
    }
    if (slot.state == State::idle) return;
    to.push_back({.segment = sums_.segment(index),
                  .round = slot.last_round + 1,
                  .opened_at = slot.opened_at,
                  .members = members_in(slot, job.members),
                  .missing = job.members & ~members_in(slot, job.members),
                  .workers = slot.workers,
                  .bytes = slot.bytes,
                  .waiting = slot.state == State::waiting});
  }

 private:
  /// Who has done their part. Of a result handed back that waits, one has for all.
  static MemberMask members_in(const SlotType& slot, MemberMask all) {
    if (slot.handed) return all;
    return slot.state == State::unsettled ? all & ~slot.members : slot.members;
  }

  static bool is_async(const JobType& job) { return job.spec.mode == wire::Mode::async; }

  Sums<Buffers> sums_;
  SyncSlots<Buffers> sync_{sums_};
  AsyncSlots<Buffers> async_{sums_};
  HandedBack<Buffers> handed_back_{sums_, sync_};
  ParentResults<Buffers> parent_results_{sums_, sync_, async_, handed_back_};
};

}  // namespace iswitch::pipeline
