// The kernels, bit for bit, against binary32 addition done in integers: independent of the host's
// floating-point unit, its mode bits and the compiler.
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "switchd/pipeline/kernels.h"
#include "wire/checksum.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace iswitch;
using pipeline::canonical_nan;
using pipeline::Kernels;

namespace {

bool is_nan(std::uint32_t bits) { return (bits & 0x7FFF'FFFF) > 0x7F80'0000; }

struct Exact {
  // value = (-1)^negative * significand * 2^(exponent - 150), significand below 2^24
  bool negative;
  std::uint32_t exponent;  // at least 1
  std::uint64_t significand;
};

Exact unpack(std::uint32_t bits) {
  const std::uint32_t exponent = bits >> 23 & 0xFF;
  const std::uint32_t fraction = bits & 0x7F'FFFF;
  return {bits >> 31 != 0, exponent == 0 ? 1 : exponent,
          exponent == 0 ? fraction : fraction | 0x80'0000u};
}

/// Round to nearest even of significand * 2^(exponent - 150 - 32), sticky already in bit 0.
std::uint32_t pack(bool negative, std::int64_t exponent, std::uint64_t significand) {
  // Bring the leading one to bit 55 (23 + 32), or as far as the subnormal exponent lets it.
  while (significand >= std::uint64_t{1} << 56) {
    significand = significand >> 1 | (significand & 1);
    ++exponent;
  }
  while (significand < std::uint64_t{1} << 55 && exponent > 1) {
    significand <<= 1;
    --exponent;
  }
  const std::uint64_t rest = significand & 0xFFFF'FFFF;
  std::uint64_t kept = significand >> 32;
  const std::uint64_t half = 0x8000'0000;
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  if (kept == 0x100'0000) {
    kept >>= 1;
    ++exponent;
  }
  const std::uint32_t sign = negative ? 0x8000'0000u : 0;
  if (exponent >= 255) return sign | 0x7F80'0000;
  if (kept < 0x80'0000) return sign | static_cast<std::uint32_t>(kept);  // subnormal or zero
  return sign | static_cast<std::uint32_t>(exponent) << 23 |
         (static_cast<std::uint32_t>(kept) & 0x7F'FFFF);
}

/// a + b with every NaN the canonical one.
std::uint32_t reference_add(std::uint32_t a, std::uint32_t b) {
  if (is_nan(a) || is_nan(b)) return canonical_nan;
  const bool a_infinite = (a & 0x7FFF'FFFF) == 0x7F80'0000;
  const bool b_infinite = (b & 0x7FFF'FFFF) == 0x7F80'0000;
  if (a_infinite && b_infinite) return a == b ? a : canonical_nan;
  if (a_infinite) return a;
  if (b_infinite) return b;

  Exact x = unpack(a);
  Exact y = unpack(b);
  if (x.exponent < y.exponent) std::swap(x, y);
  const std::uint32_t shift = x.exponent - y.exponent;
  const std::uint64_t big = x.significand << 32;
  std::uint64_t small = y.significand << 32;
  if (shift >= 60) {
    small = small != 0 ? 1 : 0;
  } else if (shift > 0) {
    const bool lost = (small & ((std::uint64_t{1} << shift) - 1)) != 0;
    small = small >> shift | (lost ? 1 : 0);
  }
  if (x.negative == y.negative) return pack(x.negative, x.exponent, big + small);
  if (big == small) return 0;  // +0 when rounding to nearest
  if (big > small) return pack(x.negative, x.exponent, big - small);
  return pack(y.negative, x.exponent, small - big);
}

std::uint32_t canonical(std::uint32_t bits) { return is_nan(bits) ? canonical_nan : bits; }

/// Bytes at a chosen distance behind a 64-byte boundary, surrounded by a pattern.
class Buffer {
 public:
  explicit Buffer(std::size_t floats, std::size_t offset = 0)
      : size_(4 * floats), offset_(64 + offset), bytes_(size_ + 192 + 64, 0xA5) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    offset_ += (64 - address % 64) % 64;
  }
  std::uint8_t* data() { return bytes_.data() + offset_; }
  void set(const std::vector<std::uint32_t>& values) {
    if (!values.empty()) std::memcpy(data(), values.data(), size_);
  }
  std::vector<std::uint32_t> get() {
    std::vector<std::uint32_t> values(size_ / 4);
    if (!values.empty()) std::memcpy(values.data(), data(), size_);
    return values;
  }
  bool surroundings_untouched() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < offset_ || i >= offset_ + size_) && bytes_[i] != 0xA5) return false;
    }
    return true;
  }

 private:
  std::size_t size_;
  std::size_t offset_;
  std::vector<std::uint8_t> bytes_;
};

/// One addition of two vectors through every kernel against the reference; the number of elements
/// that differ.
std::size_t differences(const Kernels& k, const std::vector<std::uint32_t>& first,
                        const std::vector<std::uint32_t>& second, std::size_t offset = 0) {
  Buffer a(first.size(), offset);
  Buffer b(first.size(), offset + 1);
  Buffer sum(first.size());
  Buffer fused(first.size());
  a.set(first);
  b.set(second);
  k.open(sum.data(), a.data(), first.size());
  k.open(fused.data(), a.data(), first.size());
  k.add(sum.data(), b.data(), first.size());
  std::size_t wrong = 0;
  const auto before = sum.get();
  std::vector<std::uint32_t> expected(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    expected[i] = reference_add(reference_add(0, first[i]), second[i]);
    wrong += canonical(before[i]) != expected[i] ? 1 : 0;
  }
  const wire::PartialSum checksum = k.finish(sum.data(), first.size());
  const wire::PartialSum fused_checksum = k.add_and_finish(fused.data(), b.data(), first.size());
  wrong += sum.get() != expected ? 1 : 0;
  wrong += fused.get() != expected ? 1 : 0;
  std::uint64_t words = 0;
  for (const std::uint32_t word : expected) words += (word & 0xFFFF) + (word >> 16);
  wrong += wire::fold(checksum) != wire::fold(words) ? 1 : 0;
  wrong += wire::fold(fused_checksum) != wire::fold(words) ? 1 : 0;
  wrong += a.get() != first || b.get() != second ? 1 : 0;
  for (const Buffer* buffer : {&a, &b, &sum, &fused})
    wrong += buffer->surroundings_untouched() ? 0 : 1;
  return wrong;
}

std::vector<std::uint32_t> grid() {
  std::vector<std::uint32_t> exponents;
  for (const auto& [from, to] : {std::pair{0u, 3u},
                                 {22u, 28u},
                                 {100u, 104u},
                                 {125u, 129u},
                                 {150u, 153u},
                                 {230u, 230u},
                                 {252u, 255u}}) {
    for (std::uint32_t e = from; e <= to; ++e) exponents.push_back(e);
  }
  const std::array<std::uint32_t, 12> fractions{0,         1,         2,         3,
                                                0x3F'FFFF, 0x40'0000, 0x40'0001, 0x55'5555,
                                                0x2A'AAAA, 0x7F'FFFD, 0x7F'FFFE, 0x7F'FFFF};
  std::vector<std::uint32_t> values;
  for (const std::uint32_t e : exponents) {
    for (const std::uint32_t f : fractions) {
      for (const std::uint32_t s : {0u, 1u}) values.push_back(s << 31 | e << 23 | f);
    }
  }
  return values;
}

}  // namespace

TEST_CASE("the reference adder knows the named cases") {
  const auto add = [](std::uint32_t a, std::uint32_t b) { return reference_add(a, b); };
  CHECK(add(0x3F800000, 0x3F800000) == 0x40000000);
  CHECK(add(0x00000001, 0x00000001) == 0x00000002);  // subnormals kept
  CHECK(add(0x007FFFFF, 0x00000001) == 0x00800000);  // subnormal to normal
  CHECK(add(0x00800000, 0x80000001) == 0x007FFFFF);  // and back
  CHECK(add(0x7F7FFFFF, 0x7F7FFFFF) == 0x7F800000);
  CHECK(add(0x7F7FFFFF, 0x73000000) == 0x7F800000);  // a half ulp, to even: overflow
  CHECK(add(0x7F7FFFFF, 0x72FFFFFF) == 0x7F7FFFFF);  // less than half an ulp
  CHECK(add(0x7E000000, 0x7F7FFFFD) == 0x7F800000);  // the carry overflows before rounding
  CHECK(add(0x80000000, 0x80000000) == 0x80000000);
  CHECK(add(0x80000000, 0x00000000) == 0x00000000);
  CHECK(add(0x3F800000, 0xBF800000) == 0x00000000);
  CHECK(add(0x7F800000, 0xFF800000) == canonical_nan);
  CHECK(add(0x7F800000, 0x3F800000) == 0x7F800000);
  CHECK(add(0x7F800001, 0x00000000) == canonical_nan);
  CHECK(add(0x4B800000, 0x3F800000) == 0x4B800000);  // 2^24 + 1: tie to even
  CHECK(add(0x4B800001, 0x3F800000) == 0x4B800002);
}

TEST_CASE("every kernel variant exists once and the best is the last") {
  const auto variants = pipeline::kernel_variants();
  REQUIRE(!variants.empty());
  CHECK(std::string(variants.front().name) == "scalar");
  CHECK(std::string(pipeline::best_kernels().name) == variants.back().name);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) CHECK(std::string(variants.back().name) == "avx512");
#endif
}

TEST_CASE("addition over the exponent grid is bit-exact") {
  const auto values = grid();
  CHECK(values.size() == 30 * 12 * 2);
  for (const Kernels& k : pipeline::kernel_variants()) {
    INFO(k.name);
    std::size_t wrong = 0;
    for (const std::uint32_t a : values)
      wrong += differences(k, std::vector<std::uint32_t>(values.size(), a), values);
    CHECK(wrong == 0);
  }
}

TEST_CASE("addition of random operands is bit-exact") {
  constexpr unsigned seed = 20240607;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  constexpr std::size_t size = 2000;
  for (const Kernels& k : pipeline::kernel_variants()) {
    INFO(k.name);
    std::size_t wrong = 0;
    for (unsigned round = 0; round < 100; ++round) {
      std::vector<std::uint32_t> a(size);
      std::vector<std::uint32_t> b(size);
      for (std::size_t i = 0; i < size; ++i) {
        a[i] = static_cast<std::uint32_t>(random());
        b[i] = static_cast<std::uint32_t>(random());
        const std::uint32_t e = a[i] >> 23 & 0xFF;
        switch (round % 4) {
          case 0:  // uniform
            break;
          case 1:  // exponents within 30
            b[i] = (b[i] & 0x807F'FFFF) | ((e + 255 + b[i] % 61 - 30) % 255) << 23;
            break;
          case 2:  // near cancellation
            b[i] = (a[i] ^ 0x8000'0000) + b[i] % 64 - 32;
            break;
          default:  // near the subnormal border
            a[i] = (a[i] & 0x807F'FFFF) | (a[i] >> 9 & 3) << 23;
            b[i] = (b[i] & 0x807F'FFFF) | (b[i] >> 9 & 3) << 23;
        }
      }
      wrong += differences(k, a, b);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("every length, every alignment of the payload") {
  std::mt19937 random(5);
  for (const Kernels& k : pipeline::kernel_variants()) {
    INFO(k.name);
    std::size_t wrong = 0;
    for (std::size_t length = 0; length <= 360; ++length) {
      std::vector<std::uint32_t> a(length);
      std::vector<std::uint32_t> b(length);
      for (std::size_t i = 0; i < length; ++i) {
        a[i] = static_cast<std::uint32_t>(random());
        b[i] = static_cast<std::uint32_t>(random());
      }
      wrong += differences(k, a, b, length % 64);
    }
    const std::vector<std::uint32_t> jumbo(2232, 0x3F80'0000);
    for (std::size_t offset = 0; offset < 64; ++offset)
      wrong += differences(k, jumbo, jumbo, offset);
    CHECK(wrong == 0);
  }
}

TEST_CASE("the comparison would see a wrong bit, a wrong checksum and a write too far") {
  static const Kernels& right = pipeline::best_kernels();
  const std::vector<std::uint32_t> ones(19, 0x3F80'0000);
  CHECK(differences(right, ones, ones) == 0);
  Kernels wrong = right;
  wrong.add = [](std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
    right.add(sum, part, count);
    sum[4 * count - 4] ^= 1;  // the last element's last bit
  };
  CHECK(differences(wrong, ones, ones) != 0);
  wrong = right;
  wrong.finish = [](std::uint8_t* sum, std::size_t count) { return right.finish(sum, count) + 1; };
  CHECK(differences(wrong, ones, ones) != 0);
  wrong = right;
  wrong.open = [](std::uint8_t* sum, const std::uint8_t* part, std::size_t count) {
    right.open(sum, part, count);
    sum[4 * count] = 0;
  };
  CHECK(differences(wrong, ones, ones) != 0);
}

TEST_CASE("the float environment is told apart") {
  CHECK(pipeline::float_environment_is_right());
#if defined(__x86_64__)
  const unsigned saved = _mm_getcsr();
  const auto with = [&](unsigned mxcsr) {
    _mm_setcsr(mxcsr);
    const bool right = pipeline::float_environment_is_right();
    _mm_setcsr(saved);
    return right;
  };
  CHECK_FALSE(with(saved | 0x8000));    // flush to zero
  CHECK_FALSE(with(saved | 0x0040));    // denormals are zero
  CHECK_FALSE(with(saved | 0x2000));    // round down
  CHECK_FALSE(with(saved | 0x6000));    // truncate
  CHECK_FALSE(with(saved & ~0x0080u));  // trap invalid operations
  CHECK(with(saved | 0x003F));          // exception flags are only history
#endif
}
