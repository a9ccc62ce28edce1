#include "agent/congestion/reno.h"

#include <algorithm>
#include <limits>

namespace iswitch::agent {

Reno::Reno(const CongestionLimits& limits)
    : limits_(limits),
      window_(std::min(static_cast<double>(initial_segments) * limits.segment_bytes,
                       static_cast<double>(limits.max_window_bytes))),
      slow_start_until_(static_cast<double>(limits.max_window_bytes)),
      last_halving_(std::numeric_limits<Time>::min()) {}

void Reno::on_acknowledgement(const Acknowledgement& acknowledgement) {
  if (acknowledgement.marked) {
    if (acknowledgement.sent_at > last_halving_) halve(acknowledgement.now);
    return;
  }
  // A window that is not used says nothing about the network, so it does not grow (RFC 7661).
  const double used = static_cast<double>(acknowledgement.in_flight_before);
  const double acknowledged = acknowledgement.bytes;
  if (window_ < slow_start_until_) {
    if (2 * used < window_) return;
    window_ = std::min(window_ + acknowledged, std::max(slow_start_until_, window_));
  } else {
    if (used + limits_.segment_bytes <= window_) return;
    window_ += limits_.segment_bytes * acknowledged / window_;
  }
  window_ = std::min(window_, static_cast<double>(limits_.max_window_bytes));
}

void Reno::on_loss(Time now, Time sent_at) {
  if (sent_at > last_halving_) halve(now);
}

void Reno::on_iteration_start(Time /*now*/, std::uint64_t /*bytes*/) {}

void Reno::halve(Time now) {
  const double floor = static_cast<double>(floor_segments) * limits_.segment_bytes;
  window_ = std::max(window_ / 2, floor);
  slow_start_until_ = window_;
  last_halving_ = now;
}

}  // namespace iswitch::agent
