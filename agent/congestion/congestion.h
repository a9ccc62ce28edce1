// What the engine tells a congestion control, and what it asks of it. Time and bytes go in, a
// window comes out; nothing here reads a clock or knows a segment's position.
#pragma once

#include <concepts>
#include <cstdint>

#include "wire/units.h"

namespace iswitch::agent {

struct CongestionLimits {
  std::uint32_t segment_bytes = 0;     ///< a full segment: the unit of growth
  std::uint64_t max_window_bytes = 0;  ///< slots and receive buffer; growth beyond it means nothing
};

/// The first copy of a segment's result (protocol.md section 8).
struct Acknowledgement {
  Time now = 0;
  Time sent_at = 0;         ///< when the contribution was last sent
  std::uint32_t bytes = 0;  ///< of the segment, whether or not the contribution was sent empty
  std::uint64_t in_flight_before = 0;  ///< bytes, this segment included
  bool marked = false;                 ///< ECN-ECHO, or Congestion Experienced on the result itself
  /// Waiting for the slowest member included: only its minimum says something about the network. 0:
  /// unknown, since the contribution was sent more than once.
  Time round_trip = 0;
};

/// What every algorithm offers. `window_bytes` is the most gradient bytes that may be in flight.
template <class T>
concept CongestionControl = requires(T control, const T& view,
                                     const Acknowledgement& acknowledgement, Time time,
                                     std::uint64_t bytes) {
  control.on_acknowledgement(acknowledgement);
  control.on_loss(time, time);              // now, when the lost segment had been sent
  control.on_iteration_start(time, bytes);  // now, bytes of the iteration (0: not known)
  { view.window_bytes() } -> std::same_as<std::uint64_t>;
};

}  // namespace iswitch::agent
