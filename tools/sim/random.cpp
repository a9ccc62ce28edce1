#include "tools/sim/random.h"

#include <bit>

namespace iswitch::sim {

Random::Random(std::uint64_t seed) : seed_(seed) {
  std::uint64_t x = seed;
  for (auto& word : state_) {
    word = mix(x);
    x += 0x9E37'79B9'7F4A'7C15;
  }
}

Random Random::fork(std::uint64_t stream) const { return Random(mix(seed_ ^ mix(stream))); }

std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::below(std::uint64_t n) {
  const std::uint64_t threshold = (0 - n) % n;  // 2^64 mod n values would be drawn once too often
  while (true) {
    const std::uint64_t x = next();
    if (x >= threshold) return x % n;
  }
}

std::int64_t Random::between(std::int64_t low, std::int64_t high) {
  const auto width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (width == 0) return static_cast<std::int64_t>(next());
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + below(width));
}

double Random::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

bool Random::chance(double p) { return p > 0 && unit() < p; }

Time Random::exponential(Time mean) {
  // Each failed descending run adds one whole unit; the first number of the successful run is the
  // fraction.
  for (std::int64_t whole = 0;; ++whole) {
    const double first = unit();
    double last = first;
    bool odd = true;
    while (true) {
      const double u = unit();
      if (u >= last) break;
      last = u;
      odd = !odd;
    }
    if (odd) return whole * mean + static_cast<Time>(first * static_cast<double>(mean));
  }
}

Time Random::around(Time mean, double spread) {
  return static_cast<Time>(static_cast<double>(mean) * (1.0 + spread * (2.0 * unit() - 1.0)));
}

}  // namespace iswitch::sim
