// Sums of 16-bit words with vector registers, for the Internet checksum: what wire/checksum.cpp and
// the pipeline's kernels share. x86-64 only; each function is for callers of its own target.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "wire/checksum.h"

namespace iswitch::wire::words {

// Multiply-and-add takes 16-bit words as signed and gives sums of pairs in 32 bits: it is the one
// instruction that adds words without unpacking them. Flipping a word's top bit makes it signed and
// 2^15 smaller, which `total` puts back: it is told how many registers were added.

/// So many bytes cannot overflow, whatever they are: 2^15 words of at most 2^15 each.
inline constexpr std::size_t most_bytes = 65536;

inline PartialSum without_bias(int sum, std::size_t words) {
  return static_cast<PartialSum>(std::int64_t{sum}) + PartialSum{0x8000} * words;
}

// ---- AVX2

#define ISWITCH_AVX2 __attribute__((target("avx2")))

ISWITCH_AVX2 inline __m256i add_avx2(__m256i sum, __m256i words) {
  const __m256i biased = _mm256_xor_si256(words, _mm256_set1_epi16(INT16_MIN));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(biased, _mm256_set1_epi16(1)));
}

ISWITCH_AVX2 inline int lanes_avx2(__m256i lanes) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0b01'00'11'10));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0b10'11'00'01));
  return _mm_cvtsi128_si32(sum);
}

ISWITCH_AVX2 inline PartialSum total_avx2(__m256i sum, std::size_t registers) {
  return without_bias(lanes_avx2(sum), 16 * registers);
}

// ---- AVX-512, with the multiply-and-add that accumulates

#define ISWITCH_AVX512 __attribute__((target("avx512f,avx512bw,avx512vnni")))

inline bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vnni");
}

ISWITCH_AVX512 inline __m512i add_avx512(__m512i sum, __m512i words) {
  const __m512i biased = _mm512_xor_si512(words, _mm512_set1_epi16(INT16_MIN));
  return _mm512_dpwssd_epi32(sum, biased, _mm512_set1_epi16(1));
}

// The zero-masking forms with every lane on: g++ 12 takes the plain ones' unused operand for a read
// of an uninitialised value.
ISWITCH_AVX512 inline PartialSum total_avx512(__m512i sum, std::size_t registers) {
  const __m256i low = _mm512_maskz_extracti64x4_epi64(0xF, sum, 0);
  const __m256i high = _mm512_maskz_extracti64x4_epi64(0xF, sum, 1);
  return without_bias(lanes_avx2(_mm256_add_epi32(low, high)), 32 * registers);
}

}  // namespace iswitch::wire::words

#endif  // __x86_64__
