// This member's side of the stream of segments (protocol.md section 3): which position goes into
// which slot and round, what may be sent now, what a result belongs to.
#pragma once

#include <cstdint>

#include "agent/engine/engine.h"
#include "agent/engine/in_flight.h"
#include "agent/engine/operations.h"

namespace iswitch::agent {

class Stream {
 public:
  Stream(const EngineOptions& options, Operations& operations, Statistics& statistics);

  /// A new epoch: position 0 in round job.base_round. Cuts what waits in the operations.
  void begin(const wire::ReplyBody& job, wire::MemberId member, Time now);
  /// The switch has restarted and the stream goes on: positions stay, rounds count from
  /// job.base_round, and what is outstanding goes again. Positions below `seen` have been seen by
  /// some member.
  void go_on(const wire::ReplyBody& job, wire::MemberId member, std::uint64_t seen, Time now);
  /// Nothing is outstanding and nothing is sent any more, until begin().
  void stop();
  /// Begun, and nothing of it given to the stream yet.
  bool untouched() const { return active_ && end_ == 0; }
  bool active() const { return active_; }
  bool paused() const { return in_flight_.paused(); }
  /// An operation was added.
  void more(Time now);

  void pause() { in_flight_.pause(); }
  void resume(Time now) { in_flight_.resume(now); }

  /// Where a result belongs.
  enum class Found : std::uint8_t { outstanding, duplicate, unknown };
  struct Place {
    Found found = Found::unknown;
    std::uint64_t position = 0;
  };
  Place find(std::uint32_t round, std::uint32_t segment) const;
  const Segment& segment(std::uint64_t position) const { return flight().at(position); }
  /// The first copy of the result of an outstanding position has been taken.
  void acknowledge(std::uint64_t position, bool marked, Time now) {
    in_flight_.acknowledge(position, marked, now);
  }
  void duplicate(Time now) { in_flight_.duplicate(now); }
  /// Congestion Experienced was seen: the next contribution says so.
  void echo_mark() { in_flight_.echo_mark(); }

  /// The contribution goes again at once. Nothing when it is not outstanding.
  void resend(std::uint64_t position);

  /// The oldest outstanding contribution; null when there is none.
  const Segment* oldest() const {
    return flight().outstanding() == 0 ? nullptr : &flight().at(flight().head());
  }
  // What is said of it where it goes on (protocol.md section 9).
  std::uint32_t origin() const { return origin_; }
  std::uint32_t slots() const { return slots_; }
  std::uint32_t segment_bytes() const { return segment_bytes_; }
  std::uint32_t base_round() const { return base_round_; }
  /// The first position without a result, and one after the last with one (at least the first).
  std::uint64_t position() const { return flight().head(); }
  std::uint64_t end_of_results() const;
  /// No round is newer that was used or seen.
  std::uint32_t newest_round() const;

  std::uint32_t round_of(std::uint64_t position) const;
  std::uint32_t slot_of(std::uint64_t position) const;

  bool ready() const;  ///< transmit() has something to give now
  bool transmit(Outgoing& out, Time now);
  void tick(Time now) {
    if (active_) in_flight_.tick(now);
  }
  Time next_deadline() const { return active_ ? in_flight_.next_deadline() : never; }
  const RoundTrip& round_trip() const { return in_flight_.round_trip(); }
  void describe(Statistics& statistics) const { in_flight_.describe(statistics); }

 private:
  const Flight& flight() const { return in_flight_.flight(); }
  /// The next position may go for the first time.
  bool fresh_may_go() const;
  std::uint32_t bytes_at(const Operation& operation, std::uint64_t position) const;
  void write(const Segment& segment, Outgoing& out);

  const EngineOptions& options_;
  Operations& operations_;
  InFlight in_flight_;

  bool active_ = false;
  wire::MemberId member_ = wire::no_member;
  std::uint32_t rank_ = 0;
  std::uint32_t slots_ = 1;
  std::uint32_t base_round_ = 0;
  std::uint32_t origin_ = 0;  // base_round of begin()
  std::uint64_t seen_ = 0;    // go_on()
  std::uint32_t segment_bytes_ = 0;
  std::uint16_t shards_ = 1;
  std::uint32_t range_ = 1;    // head + range_ bounds what is sent: at most `slots`
  std::uint64_t end_ = 0;      // position after the last one cut
  std::uint64_t sending_ = 0;  // index of the operation that the next new position belongs to
};

}  // namespace iswitch::agent
