// What is under way and when it goes again: outstanding contributions, their recovery and the
// congestion control that bounds them. Knows neither operations nor what a position means.
#pragma once

#include <cstdint>
#include <variant>

#include "agent/congestion/algorithm.h"
#include "agent/engine/engine.h"
#include "agent/engine/flight.h"
#include "agent/engine/recovery.h"

namespace iswitch::agent {

/// What a contribution says.
struct Contribution {
  wire::MemberId member = wire::no_member;
  std::uint32_t round = 0;
  std::uint32_t segment = 0;
  std::uint32_t tag = 0;
  std::uint16_t shards = 1;
  Bytes payload;
};

class InFlight {
 public:
  InFlight(const EngineOptions& options, Statistics& statistics)
      : options_(options),
        statistics_(statistics),
        recovery_(options.min_retransmit, options.max_retransmit),
        congestion_(Reno({})) {}

  /// After flight().reset...(): a new epoch on what was learned of the path.
  void begin(std::uint32_t segment_bytes, std::uint32_t most_segments, Time now);
  /// The switch has forgotten all of it: what is outstanding goes again.
  void again(Time now);
  void stop();
  void pause();
  void resume(Time now);
  bool paused() const { return paused_; }

  Flight& flight() { return flight_; }
  const Flight& flight() const { return flight_; }
  const RoundTrip& round_trip() const { return recovery_.round_trip(); }
  Time first_timeout() const { return recovery_.first_timeout(); }

  bool fits_window(std::uint64_t bytes) const;
  /// `besides`: outstanding ones that do not count.
  bool full(std::uint32_t besides = 0) const {
    return flight_.outstanding() >= most_segments_ + besides;
  }
  void iteration(std::uint64_t bytes, Time now);
  /// `position` has been sent for the first time.
  void sent(Time now) { recovery_.sent(flight_.outstanding(), now); }
  /// The first copy of the result of an outstanding position has been taken.
  void acknowledge(std::uint64_t position, bool marked, Time now);
  /// A result came again.
  void duplicate(Time now) { recovery_.duplicate(now); }

  /// What goes again now; null when nothing does. The caller has it sent.
  Segment* due();
  const Segment* due() const;
  /// Congestion Experienced was seen: the next contribution says so.
  void echo_mark() { echo_mark_ = true; }
  /// A datagram of data: head, port and ToS of it.
  void address(const wire::Header& header, std::uint16_t shards, Outgoing& out) const;
  /// The datagram of a segment that is sent now.
  void write(const Segment& segment, const Contribution& contribution, Outgoing& out);

  void tick(Time now);
  Time next_deadline() const;
  void describe(Statistics& statistics) const;

 private:
  void detect(Time now);

  const EngineOptions& options_;
  Statistics& statistics_;
  Flight flight_;
  Recovery recovery_;
  CongestionAlgorithm congestion_;
  std::uint32_t segment_bytes_ = 0;
  std::uint32_t most_segments_ = 1;
  bool paused_ = false;
  bool echo_mark_ = false;
};

}  // namespace iswitch::agent
