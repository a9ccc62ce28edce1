// How often one source may be told something unasked: at once for the first in a second, at most
// ten a second, and the same thing at most once in 100 ms, so that one status cannot drown another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "switchd/control/lru_table.h"
#include "switchd/control/place.h"
#include "wire/control.h"
#include "wire/units.h"

namespace iswitch::control {

class RateLimiter {
 public:
  static constexpr std::size_t default_capacity = 1024;
  static constexpr unsigned per_second = 10;
  static constexpr Time same_status_gap = second / per_second;
  explicit RateLimiter(std::size_t capacity = default_capacity) : sources_(capacity) {}

  /// True: send it, and it is counted as sent.
  bool allow(const Place& source, wire::Status status, Time now);

 private:
  static constexpr Time long_ago = INT64_MIN / 4;
  static constexpr std::size_t statuses = static_cast<std::size_t>(wire::Status::mismatch) + 1;
  struct Source {
    Source();
    std::array<Time, per_second> sent;        ///< ring of the last ten times
    std::array<Time, statuses> sent_of_each;  ///< last time by status
    unsigned oldest = 0;                      ///< in `sent`
  };
  LruTable<Source> sources_;
};

}  // namespace iswitch::control
