// Round-trip estimation: smoothed time and retransmission timeout (RFC 6298), and the least time
// seen lately. All of it includes waiting for the slowest member; only the minimum does not.
#pragma once

#include <cstdint>

#include "wire/units.h"

namespace iswitch::agent {

class RoundTrip {
 public:
  RoundTrip(Time min_retransmit, Time max_retransmit)
      : min_retransmit_(min_retransmit), max_retransmit_(max_retransmit) {}

  /// Only from contributions sent once (Karn): a retransmitted one does not tell what was answered.
  void sample(Time round_trip, Time now);

  Time min_retransmit() const { return min_retransmit_; }
  Time smoothed() const { return smoothed_; }
  Time timeout() const;
  /// Least of the last 5 to 10 seconds; 0 before the first sample.
  Time least() const {
    return least_ < least_before_ || least_before_ == 0 ? least_ : least_before_;
  }

 private:
  Time min_retransmit_;
  Time max_retransmit_;
  Time smoothed_ = 0;
  Time variation_ = 0;
  // Two buckets of `bucket` each, so that a path that became longer is noticed.
  static constexpr Time bucket = 5 * second;
  Time least_ = 0;
  Time least_before_ = 0;
  Time bucket_started_ = 0;
};

}  // namespace iswitch::agent
