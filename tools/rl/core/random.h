// Random numbers that are the same on every machine and standard library for one seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace iswitch::rl {

/// SplitMix64: one 64-bit state, good enough for exploration noise, and cheap to keep one per
/// environment.
class Random {
 public:
  Random() = default;
  /// Streams of different (seed, purpose, index) are independent of each other.
  Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t index)
      : state_(mix(mix(mix(seed) + purpose) + index)) {}

  std::uint64_t bits() {
    state_ += golden;
    return mix(state_);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// In [0, bound); bound > 0. The bias is below 2^-32 for the bounds used here.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(((bits() >> 32) * bound) >> 32);
  }
  /// Standard normal (Box and Muller, the second value kept).
  double normal() {
    if (spare_) {
      spare_ = false;
      return spare_value_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    const double angle = 2.0 * std::numbers::pi * uniform();
    spare_ = true;
    spare_value_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

 private:
  static constexpr std::uint64_t golden = 0x9E3779B97F4A7C15U;
  static constexpr std::uint64_t mix(std::uint64_t value) {
    value += golden;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
    return value ^ (value >> 31);
  }

  std::uint64_t state_ = 0;
  bool spare_ = false;
  double spare_value_ = 0.0;
};

}  // namespace iswitch::rl
