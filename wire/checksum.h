// The Internet checksum (RFC 1071), in pieces, so that a shared payload is summed only once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/units.h"

namespace iswitch::wire {

/// One's-complement sum of 16-bit words in memory order (not byte-swapped), unfolded. Sums of
/// pieces may be added when each piece but the last has an even length.
using PartialSum = std::uint64_t;

PartialSum partial_sum(Bytes bytes);

/// One way to compute partial_sum. All agree after fold(); partial_sum is the last one of the list.
struct ChecksumVariant {
  const char* name = nullptr;
  PartialSum (*sum)(Bytes) = nullptr;
};
/// Those that this processor can run, plainest first (for tests and benchmarks).
std::span<const ChecksumVariant> checksum_variants();

/// Folds to 16 bits, in memory order, not complemented. Adding a number to itself with its halves
/// exchanged leaves the halves' sum, end-around carry included, in the upper half.
inline constexpr std::uint16_t fold(PartialSum sum) {
  const auto words = static_cast<std::uint32_t>((sum + std::rotl(sum, 32)) >> 32);
  return static_cast<std::uint16_t>((words + std::rotl(words, 16)) >> 16);
}

/// The field's value in memory order (store with memcpy, not as big-endian).
inline constexpr std::uint16_t checksum_field(PartialSum sum) {
  return static_cast<std::uint16_t>(~fold(sum));
}

}  // namespace iswitch::wire
