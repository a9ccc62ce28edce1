#include "wire/checksum.h"

#include <array>
#include <atomic>
#include <cstring>

#include "wire/checksum_words.h"

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

// 32-bit words into 64-bit lanes: no carry to look after below 2^32 words. The compiler vectorises
// it with the baseline's registers.
PartialSum sum_plain(Bytes bytes) {
  const std::size_t words = bytes.size() / 8;
  PartialSum low = 0;
  PartialSum high = 0;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + 8 * i, sizeof word);
    low += word & 0xFFFF'FFFF;
    high += word >> 32;
  }
  const std::uint64_t last = last_word(bytes);
  return low + high + (last & 0xFFFF'FFFF) + (last >> 32);
}

#if defined(__x86_64__)

template <PartialSum (*sum)(Bytes)>
PartialSum sum_all(Bytes bytes) {
  PartialSum total = 0;
  for (; bytes.size() > words::most_bytes; bytes = bytes.subspan(words::most_bytes))
    total += sum(bytes.first(words::most_bytes));
  return total + sum(bytes);
}

ISWITCH_AVX2 inline __m256i load_avx2(const std::uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Four sums at a time, since each waits for its last addition.
ISWITCH_AVX2 PartialSum sum_avx2(Bytes bytes) {
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  __m256i c = a;
  __m256i d = a;
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 128; left -= 128, p += 128) {
    a = words::add_avx2(a, load_avx2(p));
    b = words::add_avx2(b, load_avx2(p + 32));
    c = words::add_avx2(c, load_avx2(p + 64));
    d = words::add_avx2(d, load_avx2(p + 96));
  }
  for (; left >= 32; left -= 32, p += 32) a = words::add_avx2(a, load_avx2(p));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
  return words::total_avx2(sum, bytes.size() / 32) + sum_plain({p, left});
}

ISWITCH_AVX512 PartialSum sum_avx512(Bytes bytes) {
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 256; left -= 256, p += 256) {
    a = words::add_avx512(a, _mm512_loadu_si512(p));
    b = words::add_avx512(b, _mm512_loadu_si512(p + 64));
    c = words::add_avx512(c, _mm512_loadu_si512(p + 128));
    d = words::add_avx512(d, _mm512_loadu_si512(p + 192));
  }
  for (; left >= 64; left -= 64, p += 64) a = words::add_avx512(a, _mm512_loadu_si512(p));
  // What the mask leaves out is not read, and zero.
  if (left > 0)
    b = words::add_avx512(b, _mm512_maskz_loadu_epi8((std::uint64_t{1} << left) - 1, p));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
  return words::total_avx512(sum, (bytes.size() + 63) / 64);
}
#endif

struct Variants {
  std::array<ChecksumVariant, 3> list{{{"plain", &sum_plain}, {}, {}}};
  std::size_t count = 1;

  Variants() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) list[count++] = {"avx2", &sum_all<sum_avx2>};
    if (words::runs_avx512()) list[count++] = {"avx512", &sum_all<sum_avx512>};
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
