// Units shared by every pure room. No clock is read here: time always comes in as a value.
#pragma once

#include <cstdint>
#include <span>

namespace iswitch {

/// Nanoseconds on a monotonic time line whose origin the driver chooses (a clock in the daemon,
/// virtual time in the simulator). Never compared across nodes.
using Time = std::int64_t;

inline constexpr Time microsecond = 1'000;
inline constexpr Time millisecond = 1'000'000;
inline constexpr Time second = 1'000'000'000;
inline constexpr Time never = INT64_MAX;

/// Read-only bytes of a frame, datagram or file; the owner outlives the view.
using Bytes = std::span<const std::uint8_t>;

}  // namespace iswitch
