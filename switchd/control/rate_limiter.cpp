#include "switchd/control/rate_limiter.h"

namespace iswitch::control {

RateLimiter::Source::Source() {
  sent.fill(long_ago);
  sent_of_each.fill(long_ago);
}

bool RateLimiter::allow(const Place& place, wire::Status status, Time now) {
  Source& source = sources_.get(place.key());
  Time& same = source.sent_of_each.at(static_cast<std::size_t>(status));
  Time& tenth_last = source.sent.at(source.oldest);
  if (now - tenth_last < second || now - same < same_status_gap) return false;
  tenth_last = now;
  same = now;
  source.oldest = (source.oldest + 1) % per_second;
  return true;
}

}  // namespace iswitch::control
