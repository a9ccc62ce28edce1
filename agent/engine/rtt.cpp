#include "agent/engine/rtt.h"

#include <algorithm>
#include <cstdlib>

namespace iswitch::agent {

void RoundTrip::sample(Time round_trip, Time now) {
  round_trip = std::max<Time>(round_trip, 1);
  if (smoothed_ == 0) {
    smoothed_ = round_trip;
    variation_ = round_trip / 2;
  } else {
    variation_ += (std::abs(smoothed_ - round_trip) - variation_) / 4;
    smoothed_ += (round_trip - smoothed_) / 8;
  }
  if (least_ != 0 && now - bucket_started_ < bucket) {
    least_ = std::min(least_, round_trip);
    return;
  }
  least_before_ = now - bucket_started_ < 2 * bucket ? least_ : 0;
  least_ = round_trip;
  bucket_started_ = now;
}

Time RoundTrip::timeout() const {
  // Before the first sample nothing is known: ten times the least, as LANs differ by that much.
  if (smoothed_ == 0) return std::min(10 * min_retransmit_, max_retransmit_);
  const Time granularity = 100 * microsecond;
  return std::clamp(smoothed_ + std::max(4 * variation_, granularity), min_retransmit_,
                    std::max(min_retransmit_, max_retransmit_));
}

}  // namespace iswitch::agent
