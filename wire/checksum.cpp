#include "wire/checksum.h"

#include <array>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace iswitch::wire {
namespace {

/// Fewer than 8 bytes, as if zeros followed.
PartialSum sum_tail(const std::uint8_t* p, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, p, size);
  return (word & 0xFFFF'FFFF) + (word >> 32);
}

// 32-bit words into 64-bit lanes: no carry to look after below 2^32 words, and the compiler
// vectorises it with whatever the baseline has.
PartialSum sum_scalar(Bytes bytes) {
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  PartialSum low = 0;
  PartialSum high = 0;
  for (; left >= 8; left -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, sizeof word);
    low += word & 0xFFFF'FFFF;
    high += word >> 32;
  }
  if (left > 0) low += sum_tail(p, left);
  return low + high;
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) PartialSum sum_avx2(Bytes bytes) {
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  const __m256i low_half = _mm256_set1_epi64x(0xFFFF'FFFF);
  __m256i low = _mm256_setzero_si256();
  __m256i high = _mm256_setzero_si256();
  __m256i low2 = _mm256_setzero_si256();
  __m256i high2 = _mm256_setzero_si256();
  for (; left >= 64; left -= 64, p += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
    low = _mm256_add_epi64(low, _mm256_and_si256(a, low_half));
    high = _mm256_add_epi64(high, _mm256_srli_epi64(a, 32));
    low2 = _mm256_add_epi64(low2, _mm256_and_si256(b, low_half));
    high2 = _mm256_add_epi64(high2, _mm256_srli_epi64(b, 32));
  }
  alignas(32) std::array<std::uint64_t, 4> lanes;
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes.data()),
                     _mm256_add_epi64(_mm256_add_epi64(low, high), _mm256_add_epi64(low2, high2)));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] + sum_scalar({p, left});
}

__attribute__((target("avx512f,avx512bw"))) PartialSum sum_avx512(Bytes bytes) {
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  const __m512i low_half = _mm512_set1_epi64(0xFFFF'FFFF);
  __m512i low = _mm512_setzero_si512();
  __m512i high = _mm512_setzero_si512();
  __m512i low2 = _mm512_setzero_si512();
  __m512i high2 = _mm512_setzero_si512();
  for (; left >= 128; left -= 128, p += 128) {
    const __m512i a = _mm512_loadu_si512(p);
    const __m512i b = _mm512_loadu_si512(p + 64);
    low = _mm512_add_epi64(low, _mm512_and_si512(a, low_half));
    high = _mm512_add_epi64(high, _mm512_srli_epi64(a, 32));
    low2 = _mm512_add_epi64(low2, _mm512_and_si512(b, low_half));
    high2 = _mm512_add_epi64(high2, _mm512_srli_epi64(b, 32));
  }
  // At most two masked loads instead of a scalar tail; masked-off bytes are not touched.
  while (left > 0) {
    const std::size_t taken = left < 64 ? left : 64;
    const __mmask64 mask = ~std::uint64_t{0} >> (64 - taken);
    const __m512i a = _mm512_maskz_loadu_epi8(mask, p);
    low = _mm512_add_epi64(low, _mm512_and_si512(a, low_half));
    high = _mm512_add_epi64(high, _mm512_srli_epi64(a, 32));
    p += taken;
    left -= taken;
  }
  return static_cast<PartialSum>(_mm512_reduce_add_epi64(
      _mm512_add_epi64(_mm512_add_epi64(low, high), _mm512_add_epi64(low2, high2))));
}

#endif

struct Variants {
  std::array<ChecksumVariant, 3> list{{{"scalar", &sum_scalar}, {}, {}}};
  std::size_t count = 1;

  Variants() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) list[count++] = {"avx2", &sum_avx2};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
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
constinit std::atomic<PartialSum (*)(Bytes)> best{&sum_scalar};

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
