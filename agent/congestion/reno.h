// Slow start, then one segment a round trip; halved once a window on loss or mark (RFC 5681, 3168).
#pragma once

#include <cstdint>

#include "agent/congestion/congestion.h"

namespace iswitch::agent {

class Reno {
 public:
  static constexpr std::uint32_t initial_segments = 10;  ///< RFC 6928
  static constexpr std::uint32_t floor_segments = 2;

  explicit Reno(const CongestionLimits& limits);

  void on_acknowledgement(const Acknowledgement& acknowledgement);
  /// Halves, unless the lost segment was sent before the last halving: one a window.
  void on_loss(Time now, Time sent_at);
  /// A window that was right a moment ago is still the best guess: nothing to do.
  void on_iteration_start(Time now, std::uint64_t bytes);
  std::uint64_t window_bytes() const { return static_cast<std::uint64_t>(window_); }

 private:
  void halve(Time now);

  CongestionLimits limits_;
  double window_;  // bytes; fractions of a segment are kept, or growth would stop
  double slow_start_until_;
  Time last_halving_;
};

static_assert(CongestionControl<Reno>);

}  // namespace iswitch::agent
