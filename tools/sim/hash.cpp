#include "tools/sim/hash.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "tools/sim/random.h"

namespace iswitch::sim {

// Eight lanes of 64 bits, each of which takes a product of two halves (as XXH3 does): no lane waits
// for another, so that compilers turn it into vector instructions.
std::uint64_t hash_bytes(Bytes all) {
  constexpr std::size_t lanes = 8;
  std::array<std::uint64_t, lanes> sums{};
  std::array<std::uint64_t, lanes> keys{};
  for (std::size_t i = 0; i < lanes; ++i) keys[i] = mix(i);
  const auto take = [&](const std::uint8_t* bytes) {
    std::array<std::uint64_t, lanes> words{};
    std::memcpy(words.data(), bytes, sizeof words);
    for (std::size_t i = 0; i < lanes; ++i) {
      const std::uint64_t keyed = words[i] ^ keys[i];
      sums[i] += words[i] + (keyed & 0xFFFF'FFFF) * (keyed >> 32);
      keys[i] += 0x9E37'79B9'7F4A'7C15;
    }
  };
  const std::uint8_t* bytes = all.data();
  const std::size_t size = all.size();
  constexpr std::size_t stripe = lanes * sizeof(std::uint64_t);
  std::size_t at = 0;
  for (; at + stripe <= size; at += stripe) take(bytes + at);
  if (at < size) {
    std::array<std::uint8_t, stripe> rest{};
    std::memcpy(rest.data(), bytes + at, size - at);
    take(rest.data());
  }
  std::uint64_t h = size;
  for (const std::uint64_t sum : sums) h = mix(h ^ sum);
  return h;
}

}  // namespace iswitch::sim
