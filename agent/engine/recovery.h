// Decides which contributions to send again, and when. The switch has no timers (protocol.md
// section 4): a member whose result does not come retransmits.
//
// Two ways. By order, as RACK (RFC 8985): a contribution sent clearly earlier than one that has
// been answered is lost. By timeout: the oldest is sent as a probe, with exponential back-off. A
// timeout says little here, since a result waits for the slowest member, so it sends one probe, not
// a window, and leaves the congestion window alone; an answered probe then lets the order tell what
// was lost.
#pragma once

#include <cstdint>

#include "agent/engine/flight.h"
#include "agent/engine/rtt.h"
#include "wire/units.h"

namespace iswitch::agent {

class Recovery {
 public:
  Recovery(Time min_retransmit, Time max_retransmit)
      : max_retransmit_(max_retransmit), round_trip_(min_retransmit, max_retransmit) {}

  /// Nothing is outstanding any more; what was learned of the path is kept.
  void reset();
  /// A first transmission left `flight` with `outstanding` segments.
  void sent(std::uint32_t outstanding, Time now);
  /// The first result of `segment`, before it leaves the flight. Returns its round trip, 0 when it
  /// is ambiguous.
  Time acknowledged(const Segment& segment, Time now);
  /// A further copy of a result: if something was retransmitted lately it was in vain.
  void duplicate(Time now);

  /// Marks as lost what the order of answers says is lost, and tells `on_loss(segment)`.
  template <class OnLoss>
  void detect(Flight& flight, Time now, OnLoss on_loss) {
    order_deadline_ = never;
    if (each_for_itself_) return;
    for (Segment* segment = flight.first_in_flight();
         segment != nullptr && segment->order < newest_.order; segment = flight.first_in_flight()) {
      const Time limit = segment->last_sent + newest_.round_trip + reorder_window();
      if (now < limit) {
        order_deadline_ = limit;
        return;
      }
      flight.mark_lost(*segment);
      declared_lost(now);
      on_loss(*segment);
    }
  }

  /// The timeout has passed: marks the oldest as urgent. False when it has not.
  bool timed_out(Flight& flight, Time now);

  /// While the job is halted nothing is sent, so nothing can be late.
  void pause() { paused_ = true; }
  void resume(Time now);

  Time next_deadline(std::uint32_t outstanding) const;
  Time timeout() const;  ///< in force: backed off
  /// Of the first repetition.
  Time first_timeout() const;
  /// Slots of a table wait for whoever comes, for long and each for itself, so neither the usual
  /// time nor the order of answers says that one is lost: no loss is told then. But probing soon
  /// costs little, since the switch drops what it has.
  void each_for_itself(bool yes) { each_for_itself_ = yes; }
  const RoundTrip& round_trip() const { return round_trip_; }

 private:
  static constexpr unsigned most_probes = 64;
  static constexpr int soon_in_least = 8;  // each_for_itself(): the first timeout, in least trips
  static constexpr unsigned table_share = 8;  // of the outstanding slots, one in so many a timeout

  Time reorder_window() const;
  void declared_lost(Time now);
  bool probe_was_answered(const Segment& segment, Time now) const;

  Time max_retransmit_;
  RoundTrip round_trip_;
  /// The most recently sent contribution that has been answered.
  struct {
    std::uint64_t order = 0;
    Time round_trip = 0;
  } newest_;
  Time order_deadline_ = never;
  Time timer_started_ = 0;
  unsigned back_off_ = 0;                 // timeouts since the last result
  unsigned probes_ = 1;                   // sent by the next timeout
  bool retransmission_answered_ = false;  // since the last timeout, and nothing else
  std::uint64_t late_before_ = 0;         // orders outstanding at the last timeout
  bool late_sampled_ = false;
  unsigned reorder_steps_ = 1;  // of a quarter of the least round trip
  unsigned losses_until_calm_ = 0;
  Time last_loss_ = 0;
  Time last_widening_ = 0;
  bool paused_ = false;
  bool each_for_itself_ = false;
};

}  // namespace iswitch::agent
