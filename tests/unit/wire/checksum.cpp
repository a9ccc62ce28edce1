#include "wire/checksum.h"

#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "slow.h"

using namespace iswitch;
using namespace iswitch::wire;

namespace {

/// As a big-endian number, like the slow one.
std::uint16_t folded(PartialSum sum) { return __builtin_bswap16(fold(sum)); }

std::vector<std::uint8_t> random_bytes(std::mt19937& random, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

}  // namespace

TEST_CASE("the example of RFC 1071", "[checksum]") {
  const std::array<std::uint8_t, 8> bytes{0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7};
  CHECK(folded(partial_sum(bytes)) == 0xDDF2);
  CHECK(slow::ones_complement_sum(bytes) == 0xDDF2);
  CHECK(checksum_field(partial_sum(bytes)) ==
        static_cast<std::uint16_t>(~fold(partial_sum(bytes))));
}

TEST_CASE("every variant agrees with the slow sum at every length and alignment", "[checksum]") {
  std::mt19937 random(20240501);
  REQUIRE_FALSE(checksum_variants().empty());
  for (const ChecksumVariant& variant : checksum_variants()) {
    for (std::size_t size = 0; size <= 300; ++size) {
      const std::size_t offset = random() % 64;
      const auto bytes = random_bytes(random, offset + size);
      // Its own allocation, so that the address sanitizer sees a byte read too far.
      const std::vector<std::uint8_t> exact(bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                                            bytes.end());
      INFO(variant.name << ", " << size << " bytes at offset " << offset);
      REQUIRE(folded(variant.sum(exact)) == slow::ones_complement_sum(exact));
      REQUIRE(folded(variant.sum(Bytes(bytes).subspan(offset))) ==
              slow::ones_complement_sum(exact));
    }
    for (const std::size_t size : {1470u, 1471u, 8958u, 8959u, 65535u}) {
      const auto bytes = random_bytes(random, size);
      INFO(variant.name << ", " << size << " bytes");
      REQUIRE(folded(variant.sum(bytes)) == slow::ones_complement_sum(bytes));
    }
  }
}

TEST_CASE("carries are not lost where every word is largest", "[checksum]") {
  const std::vector<std::uint8_t> ones(65536, 0xFF);
  const std::vector<std::uint8_t> zeros(65536, 0x00);
  for (const ChecksumVariant& variant : checksum_variants()) {
    INFO(variant.name);
    CHECK(fold(variant.sum(ones)) == 0xFFFF);
    CHECK(fold(variant.sum(zeros)) == 0);
  }
}

TEST_CASE("sums of pieces add up when all but the last are even", "[checksum]") {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const auto bytes = random_bytes(random, random() % 2000);
    const std::size_t cut = bytes.empty() ? 0 : (random() % bytes.size()) & ~std::size_t{1};
    INFO(bytes.size() << " bytes cut at " << cut);
    const PartialSum pieces =
        partial_sum(Bytes(bytes).first(cut)) + partial_sum(Bytes(bytes).subspan(cut));
    REQUIRE(folded(pieces) == slow::ones_complement_sum(bytes));
  }
}

TEST_CASE("fold takes any 64-bit sum", "[checksum]") {
  CHECK(fold(0) == 0);
  CHECK(fold(0xFFFF) == 0xFFFF);
  CHECK(fold(0x10000) == 1);
  CHECK(fold(~PartialSum{0}) == 0xFFFF);
  CHECK(fold(~PartialSum{0} - 1) == 0xFFFE);
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const PartialSum sum = random();
    const auto rest = static_cast<std::uint16_t>(sum % 0xFFFF);
    CHECK(fold(sum) == (rest == 0 ? 0xFFFF : rest));
  }
}
