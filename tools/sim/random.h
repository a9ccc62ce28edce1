// Seeded random numbers that are the same on every machine: xoshiro256** seeded by splitmix64, and
// distributions made of integer operations and exact float comparisons (those of <random> differ
// between libraries, and so do log() and exp()).
#pragma once

#include <array>
#include <cstdint>

#include "wire/units.h"

namespace iswitch::sim {

/// A 64-bit mixer (splitmix64's finaliser): a good hash of an integer.
inline constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E37'79B9'7F4A'7C15;
  x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9;
  x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EB;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed);

  /// An independent generator that depends on this one's seed and `stream` alone, not on how many
  /// numbers were drawn, so that one part's draws never shift another part's.
  Random fork(std::uint64_t stream) const;

  std::uint64_t next();
  /// Uniform in [0, n); n > 0.
  std::uint64_t below(std::uint64_t n);
  /// Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high);
  /// Uniform in [0, 1), 53 bits.
  double unit();
  /// True with probability p; draws nothing when p is not above 0.
  bool chance(double p);
  /// Exponentially distributed with this mean (von Neumann's method: comparisons only).
  Time exponential(Time mean);
  /// Uniform in mean * [1 - spread, 1 + spread].
  Time around(Time mean, double spread);

 private:
  std::uint64_t seed_;
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace iswitch::sim
