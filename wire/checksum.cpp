#include "wire/checksum.h"

#include <array>
#include <atomic>
#include <cstring>

namespace iswitch::wire {
namespace {

/// The size % 8 bytes at the end, as if zeros followed.
inline std::uint64_t last_word(Bytes bytes) {
  const std::size_t left = bytes.size() % 8;
  if (left == 0) return 0;
  std::uint64_t word = 0;
  if (bytes.size() >= sizeof word) {  // a copy of known length, what was summed already shifted out
    std::memcpy(&word, bytes.data() + bytes.size() - sizeof word, sizeof word);
    return word >> 8 * (sizeof word - left);
  }
  for (std::size_t i = 0; i < left; ++i) word |= std::uint64_t{bytes[i]} << 8 * i;
  return word;
}

// 32-bit words into 64-bit lanes: no carry to look after below 2^32 words. Written so that the
// compiler vectorises it for the target of the function it is inlined into.
[[gnu::always_inline]] inline PartialSum sum_words(Bytes bytes) {
  const std::size_t words = bytes.size() / 8;
  PartialSum low = 0;
  PartialSum high = 0;
#if !defined(__clang__)  // which interleaves by itself, and better without
#pragma GCC unroll 4
#endif
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + 8 * i, sizeof word);
    low += word & 0xFFFF'FFFF;
    high += word >> 32;
  }
  const std::uint64_t last = last_word(bytes);
  return low + high + (last & 0xFFFF'FFFF) + (last >> 32);
}

PartialSum sum_plain(Bytes bytes) { return sum_words(bytes); }

#if defined(__x86_64__)
// g++ would keep to 256 bits; clang knows no such option and needs none.
#if defined(__clang__)
#define ISWITCH_AVX512 "avx512f,avx512bw,avx512vl,avx512dq"
#else
#define ISWITCH_AVX512 "avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"
#endif

[[gnu::target("avx2")]] PartialSum sum_avx2(Bytes bytes) { return sum_words(bytes); }
[[gnu::target(ISWITCH_AVX512)]] PartialSum sum_avx512(Bytes bytes) { return sum_words(bytes); }
#endif

struct Variants {
  std::array<ChecksumVariant, 3> list{{{"plain", &sum_plain}, {}, {}}};
  std::size_t count = 1;

  Variants() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) list[count++] = {"avx2", &sum_avx2};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      list[count++] = {"avx512", &sum_avx512};
#endif
  }
};

const Variants& variants() {
  static const Variants found;
  return found;
}

// Right from the first instruction of the program, fast from static initialisation on; written only
// then, read by every thread.
constinit std::atomic<PartialSum (*)(Bytes)> best{&sum_plain};

[[maybe_unused]] const bool chosen = [] {
  const auto found = checksum_variants();
  best.store(found.back().sum, std::memory_order_relaxed);
  return true;
}();

}  // namespace

std::span<const ChecksumVariant> checksum_variants() {
  return {variants().list.data(), variants().count};
}

PartialSum partial_sum(Bytes bytes) { return best.load(std::memory_order_relaxed)(bytes); }

}  // namespace iswitch::wire
