#include "wire/serial.h"

#include <catch2/catch.hpp>

using namespace iswitch::wire;

TEST_CASE("serial numbers compare across their wrap", "[serial]") {
  CHECK(serial_newer(1, 0));
  CHECK_FALSE(serial_newer(0, 1));
  CHECK_FALSE(serial_newer(7, 7));
  CHECK(serial_newer(0, 0xFFFFFFFF));
  CHECK(serial_newer(5, 0xFFFFFFF0));
  CHECK_FALSE(serial_newer(0xFFFFFFF0, 5));
  CHECK(serial_newer(0x80000000, 0x7FFFFFFF));
  CHECK(serial_newer(0x7FFFFFFF, 0));
  CHECK_FALSE(serial_newer(0x80000001, 0));
}

TEST_CASE("a distance is the number of steps, whichever side of the wrap", "[serial]") {
  const std::uint32_t start =
      GENERATE(0u, 1u, 0x7FFFFFFEu, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFEu, 0xFFFFFFFFu);
  const std::int32_t steps = GENERATE(0, 1, 2, 1000, 0x7FFFFFFF);
  const std::uint32_t later = start + static_cast<std::uint32_t>(steps);
  INFO(start << " + " << steps);
  CHECK(serial_distance(later, start) == steps);
  CHECK(serial_distance(start, later) == -steps);
  CHECK(serial_newer(later, start) == (steps > 0));
  CHECK(serial_latest(later, start) == later);
  CHECK(serial_latest(start, later) == later);
}

TEST_CASE("the distance RFC 1982 leaves undefined counts as older, both ways", "[serial]") {
  CHECK_FALSE(serial_newer(0x80000000, 0));
  CHECK_FALSE(serial_newer(0, 0x80000000));
  CHECK_FALSE(serial_newer(0x80000005, 5));
}
