#include "agent/engine/recovery.h"

#include <algorithm>

namespace iswitch::agent {

void Recovery::reset() {
  newest_ = {};
  order_deadline_ = never;
  back_off_ = 0;
  probes_ = 1;
  retransmission_answered_ = false;
}

void Recovery::sent(std::uint32_t outstanding, Time now) {
  if (outstanding == 1) {
    timer_started_ = now;
    back_off_ = 0;
  }
}

Time Recovery::acknowledged(const Segment& segment, Time now) {
  timer_started_ = now;
  back_off_ = 0;
  const Time elapsed = now - segment.last_sent;
  const bool unambiguous = !segment.retransmitted;
  if (unambiguous || probe_was_answered(segment, now)) {
    if (segment.order > newest_.order) newest_ = {segment.order, elapsed};
  }
  retransmission_answered_ = !unambiguous;
  if (!unambiguous) return 0;
  if (segment.order >= late_before_) {
    round_trip_.sample(elapsed, now);
  } else if (!late_sampled_) {
    // Outstanding at a timeout: most likely a member was late. One sample for all of them and a
    // bounded one: a single wait of seconds must not spoil the estimate, a longer path must raise
    // it.
    late_sampled_ = true;
    round_trip_.sample(std::min(elapsed, 2 * round_trip_.timeout()), now);
  }
  return elapsed;
}

bool Recovery::probe_was_answered(const Segment& segment, Time now) const {
  // Close to the least round trip after the retransmission: its answer. Any other time: perhaps the
  // late member's contribution, which says nothing about what was lost.
  const Time least = round_trip_.least();
  const Time elapsed = now - segment.last_sent;
  return least != 0 && elapsed >= least - least / 8 && elapsed <= 2 * least + reorder_window();
}

void Recovery::duplicate(Time now) {
  const Time calm = std::max<Time>(round_trip_.smoothed(), millisecond);
  if (last_loss_ == 0 || now - last_loss_ > 2 * calm || now - last_widening_ < calm) return;
  reorder_steps_ = std::min(reorder_steps_ + 1, 16U);
  losses_until_calm_ = 16;
  last_widening_ = now;
}

void Recovery::declared_lost(Time now) {
  last_loss_ = now;
  if (losses_until_calm_ != 0 && --losses_until_calm_ == 0) reorder_steps_ = 1;
}

Time Recovery::reorder_window() const {
  const Time step = std::max(round_trip_.least() / 4, 50 * microsecond);
  return std::min(step * reorder_steps_, std::max(round_trip_.smoothed(), step));
}

bool Recovery::timed_out(Flight& flight, Time now) {
  if (paused_ || flight.outstanding() == 0 || now < timer_started_ + timeout()) return false;
  // Only when probes have been answered since is it worth sending more of them at once; while a
  // member computes, one a timeout is enough.
  probes_ = retransmission_answered_ ? std::min(2 * probes_, most_probes) : 1;
  retransmission_answered_ = false;
  if (back_off_ == 0) late_sampled_ = false;
  ++back_off_;
  late_before_ = flight.orders();
  timer_started_ = now;
  // In a stream everything waits for the front. Slots of a table wait for nothing but their own
  // answers, so each must have its turn.
  const unsigned share = flight.is_table() ? flight.outstanding() / table_share : 0;
  flight.probe(std::max(probes_, std::min(share, most_probes)));
  return true;
}

void Recovery::resume(Time now) {
  paused_ = false;
  timer_started_ = now;
  back_off_ = 0;
}

Time Recovery::first_timeout() const {
  const Time usual = round_trip_.timeout();
  if (!each_for_itself_ || round_trip_.least() == 0) return usual;
  return std::min(usual,
                  std::max(round_trip_.min_retransmit(), soon_in_least * round_trip_.least()));
}

Time Recovery::timeout() const {
  Time timeout = first_timeout();
  for (unsigned i = 0; i < back_off_ && timeout < max_retransmit_; ++i) timeout *= 2;
  return std::min(timeout, std::max(max_retransmit_, round_trip_.timeout()));
}

Time Recovery::next_deadline(std::uint32_t outstanding) const {
  if (paused_ || outstanding == 0) return never;
  return std::min(order_deadline_, timer_started_ + timeout());
}

}  // namespace iswitch::agent
