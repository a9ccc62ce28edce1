#include "switchd/pipeline/kernels.h"

#include <array>
#include <cstring>

#include "wire/checksum_words.h"

namespace iswitch::pipeline {
namespace {

using wire::PartialSum;

// ---- plain C++, for any processor; the compiler vectorises it with the baseline's registers

float load(const std::uint8_t* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

void store(std::uint8_t* p, float value) { std::memcpy(p, &value, sizeof value); }

void open_scalar(std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store(sum + 4 * i, 0.0f + load(part + 4 * i));
}

void add_scalar(std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    store(sum + 4 * i, load(sum + 4 * i) + load(part + 4 * i));
}

PartialSum finish_scalar(std::uint8_t* sum, std::size_t count) {
  PartialSum checksum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, sum + 4 * i, sizeof bits);
    const bool is_nan = (bits & 0x7FFF'FFFF) > 0x7F80'0000;
    bits = is_nan ? canonical_nan : bits;
    std::memcpy(sum + 4 * i, &bits, sizeof bits);
    checksum += bits;
  }
  return checksum;
}

PartialSum add_and_finish_scalar(std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
  add_scalar(sum, part, count);
  return finish_scalar(sum, count);
}

constexpr Kernels scalar_kernels{"scalar", &open_scalar, &add_scalar, &finish_scalar,
                                 &add_and_finish_scalar};

#if defined(__x86_64__)

namespace words = wire::words;

// ---- AVX2. The tail goes through masked loads and stores, which touch nothing they leave out.

ISWITCH_AVX2 inline __m256i tail_mask_avx2(std::size_t left) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left)), lane);
}

ISWITCH_AVX2 inline __m256 canonical_avx2(__m256 v) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(canonical_nan));
  return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

ISWITCH_AVX2 inline const float* floats_avx2(const std::uint8_t* p) {
  return reinterpret_cast<const float*>(p);
}
ISWITCH_AVX2 inline float* floats_avx2(std::uint8_t* p) { return reinterpret_cast<float*>(p); }

ISWITCH_AVX2 void open_avx2(std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
  const __m256 zero = _mm256_setzero_ps();
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_store_ps(floats_avx2(sum + 4 * i),
                    _mm256_add_ps(zero, _mm256_loadu_ps(floats_avx2(part + 4 * i))));
  }
  if (i == count) return;
  const __m256i mask = tail_mask_avx2(count - i);
  _mm256_maskstore_ps(floats_avx2(sum + 4 * i), mask,
                      _mm256_add_ps(zero, _mm256_maskload_ps(floats_avx2(part + 4 * i), mask)));
}

ISWITCH_AVX2 void add_avx2(std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 v = _mm256_loadu_ps(floats_avx2(part + 4 * i));
    _mm256_store_ps(floats_avx2(sum + 4 * i),
                    _mm256_add_ps(_mm256_load_ps(floats_avx2(sum + 4 * i)), v));
  }
  if (i == count) return;
  const __m256i mask = tail_mask_avx2(count - i);
  const __m256 v = _mm256_maskload_ps(floats_avx2(part + 4 * i), mask);
  const __m256 old = _mm256_maskload_ps(floats_avx2(sum + 4 * i), mask);
  _mm256_maskstore_ps(floats_avx2(sum + 4 * i), mask, _mm256_add_ps(old, v));
}

/// Stores eight canonical floats and adds their words to the checksum.
ISWITCH_AVX2 inline __m256i put_avx2(std::uint8_t* at, __m256 v, __m256i checksum) {
  const __m256 canonical = canonical_avx2(v);
  _mm256_store_ps(floats_avx2(at), canonical);
  return words::add_avx2(checksum, _mm256_castps_si256(canonical));
}

// Two checksums at a time, since each waits for its last addition.
ISWITCH_AVX2 PartialSum finish_avx2(std::uint8_t* sum, std::size_t count) {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = even;
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    std::uint8_t* s = sum + 4 * i;
    even = put_avx2(s, _mm256_load_ps(floats_avx2(s)), even);
    odd = put_avx2(s + 32, _mm256_load_ps(floats_avx2(s + 32)), odd);
  }
  for (; i < count; i += 8) {
    std::uint8_t* s = sum + 4 * i;
    const __m256i mask = tail_mask_avx2(count - i);
    const __m256 v = canonical_avx2(_mm256_maskload_ps(floats_avx2(s), mask));
    _mm256_maskstore_ps(floats_avx2(s), mask, v);
    even = words::add_avx2(even, _mm256_castps_si256(v));
  }
  return words::total_avx2(_mm256_add_epi32(even, odd), (count + 7) / 8);
}

ISWITCH_AVX2 PartialSum add_and_finish_avx2(std::uint8_t* sum, const std::uint8_t* part,
                                            std::size_t count) {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = even;
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    std::uint8_t* s = sum + 4 * i;
    const std::uint8_t* p = part + 4 * i;
    even = put_avx2(
        s, _mm256_add_ps(_mm256_load_ps(floats_avx2(s)), _mm256_loadu_ps(floats_avx2(p))), even);
    odd = put_avx2(
        s + 32,
        _mm256_add_ps(_mm256_load_ps(floats_avx2(s + 32)), _mm256_loadu_ps(floats_avx2(p + 32))),
        odd);
  }
  for (; i < count; i += 8) {
    std::uint8_t* s = sum + 4 * i;
    const __m256i mask = tail_mask_avx2(count - i);
    const __m256 old = _mm256_maskload_ps(floats_avx2(s), mask);
    const __m256 v =
        canonical_avx2(_mm256_add_ps(old, _mm256_maskload_ps(floats_avx2(part + 4 * i), mask)));
    _mm256_maskstore_ps(floats_avx2(s), mask, v);
    even = words::add_avx2(even, _mm256_castps_si256(v));
  }
  return words::total_avx2(_mm256_add_epi32(even, odd), (count + 7) / 8);
}

constexpr Kernels avx2_kernels{"avx2", &open_avx2, &add_avx2, &finish_avx2, &add_and_finish_avx2};

// ---- AVX-512

ISWITCH_AVX512 inline __mmask16 tail_mask_avx512(std::size_t left) {
  return static_cast<__mmask16>(left >= 16 ? 0xFFFFu : (1u << left) - 1);
}

ISWITCH_AVX512 inline __m512 canonical_avx512(__m512 v) {
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(canonical_nan));
  return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
}

ISWITCH_AVX512 void open_avx512(std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
  const __m512 zero = _mm512_setzero_ps();
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16)
    _mm512_store_ps(sum + 4 * i, _mm512_add_ps(zero, _mm512_loadu_ps(part + 4 * i)));
  if (i == count) return;
  const __mmask16 mask = tail_mask_avx512(count - i);
  _mm512_mask_store_ps(sum + 4 * i, mask,
                       _mm512_add_ps(zero, _mm512_maskz_loadu_ps(mask, part + 4 * i)));
}

ISWITCH_AVX512 void add_avx512(std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_store_ps(sum + 4 * i,
                    _mm512_add_ps(_mm512_load_ps(sum + 4 * i), _mm512_loadu_ps(part + 4 * i)));
  }
  if (i == count) return;
  const __mmask16 mask = tail_mask_avx512(count - i);
  const __m512 old = _mm512_maskz_load_ps(mask, sum + 4 * i);
  _mm512_mask_store_ps(sum + 4 * i, mask,
                       _mm512_add_ps(old, _mm512_maskz_loadu_ps(mask, part + 4 * i)));
}

/// Stores sixteen canonical floats and adds their words to the checksum.
ISWITCH_AVX512 inline __m512i put_avx512(std::uint8_t* at, __m512 v, __m512i checksum) {
  const __m512 canonical = canonical_avx512(v);
  _mm512_store_ps(at, canonical);
  return words::add_avx512(checksum, _mm512_castps_si512(canonical));
}

ISWITCH_AVX512 inline __m512 added_avx512(const std::uint8_t* sum, const std::uint8_t* part) {
  return _mm512_add_ps(_mm512_load_ps(sum), _mm512_loadu_ps(part));
}

// Several checksums at a time, since each waits for its last addition.
ISWITCH_AVX512 PartialSum finish_avx512(std::uint8_t* sum, std::size_t count) {
  __m512i even = _mm512_setzero_si512();
  __m512i odd = even;
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    std::uint8_t* s = sum + 4 * i;
    even = put_avx512(s, _mm512_load_ps(s), even);
    odd = put_avx512(s + 64, _mm512_load_ps(s + 64), odd);
  }
  for (; i < count; i += 16) {
    std::uint8_t* s = sum + 4 * i;
    const __mmask16 mask = tail_mask_avx512(count - i);
    const __m512 v = canonical_avx512(_mm512_maskz_load_ps(mask, s));
    _mm512_mask_store_ps(s, mask, v);
    even = words::add_avx512(even, _mm512_castps_si512(v));
  }
  return words::total_avx512(_mm512_add_epi32(even, odd), (count + 15) / 16);
}

ISWITCH_AVX512 PartialSum add_and_finish_avx512(std::uint8_t* sum, const std::uint8_t* part,
                                                std::size_t count) {
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  std::size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    std::uint8_t* s = sum + 4 * i;
    const std::uint8_t* p = part + 4 * i;
    a = put_avx512(s, added_avx512(s, p), a);
    b = put_avx512(s + 64, added_avx512(s + 64, p + 64), b);
    c = put_avx512(s + 128, added_avx512(s + 128, p + 128), c);
    d = put_avx512(s + 192, added_avx512(s + 192, p + 192), d);
  }
  for (; i + 16 <= count; i += 16)
    a = put_avx512(sum + 4 * i, added_avx512(sum + 4 * i, part + 4 * i), a);
  if (i < count) {
    std::uint8_t* s = sum + 4 * i;
    const __mmask16 mask = tail_mask_avx512(count - i);
    const __m512 v = canonical_avx512(
        _mm512_add_ps(_mm512_maskz_load_ps(mask, s), _mm512_maskz_loadu_ps(mask, part + 4 * i)));
    _mm512_mask_store_ps(s, mask, v);
    b = words::add_avx512(b, _mm512_castps_si512(v));
  }
  return words::total_avx512(_mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d)),
                             (count + 15) / 16);
}

constexpr Kernels avx512_kernels{"avx512", &open_avx512, &add_avx512, &finish_avx512,
                                 &add_and_finish_avx512};

#endif  // __x86_64__

struct Variants {
  std::array<Kernels, 3> list{scalar_kernels, scalar_kernels, scalar_kernels};
  std::size_t count = 1;

  Variants() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) list[count++] = avx2_kernels;
    if (words::runs_avx512()) list[count++] = avx512_kernels;
#endif
  }
};

const Variants& variants() {
  static const Variants found;
  return found;
}

}  // namespace

std::span<const Kernels> kernel_variants() { return {variants().list.data(), variants().count}; }

const Kernels& best_kernels() { return kernel_variants().back(); }

bool float_environment_is_right() {
#if defined(__x86_64__)
  constexpr unsigned denormals_are_zero = 0x0040;
  constexpr unsigned exceptions_masked = 0x1F80;
  constexpr unsigned rounding = 0x6000;
  constexpr unsigned flush_to_zero = 0x8000;
  const unsigned mxcsr = _mm_getcsr();
  return (mxcsr & (denormals_are_zero | rounding | flush_to_zero)) == 0 &&
         (mxcsr & exceptions_masked) == exceptions_masked;
#else
  // No such register to read: try. Volatile, or the compiler would compute with its own rules.
  volatile float smallest = 1.0e-45f;
  volatile float one = 1.0f;
  volatile float half_ulp = 5.9604645e-8f;
  return smallest + smallest != 0.0f && one + half_ulp == 1.0f && one - half_ulp / 2 == 1.0f;
#endif
}

}  // namespace iswitch::pipeline
