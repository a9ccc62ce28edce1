// Serial-number arithmetic on 32 bits (RFC 1982): rounds and update numbers wrap.
#pragma once

#include <cstdint>

namespace iswitch::wire {

/// a - b as a signed distance; the undefined distance 2^31 counts as older.
inline constexpr std::int32_t serial_distance(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b);
}
inline constexpr bool serial_newer(std::uint32_t a, std::uint32_t b) {
  return serial_distance(a, b) > 0;
}
inline constexpr std::uint32_t serial_latest(std::uint32_t a, std::uint32_t b) {
  return serial_newer(a, b) ? a : b;
}

}  // namespace iswitch::wire
