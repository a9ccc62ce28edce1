// The memory of what is kept of results.
#include "agent/engine/kept.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "wire/pages.h"

using namespace iswitch;
using namespace iswitch::agent;

namespace {

constexpr std::uint32_t slots = 512;
constexpr std::uint32_t segment = 8192;
constexpr std::size_t bytes = std::size_t{slots} * segment;

/// Pages of the kept results' memory that are not in use, of those that hold nothing else.
std::size_t missing(KeptResults& kept) {
  const std::uint8_t* const first = kept.payload_of(*kept.newest(0)).data();
  const auto into = reinterpret_cast<std::uintptr_t>(first) % smallest_page;
  const std::uint8_t* const page = first + (into == 0 ? 0 : smallest_page - into);
  std::vector<unsigned char> states(bytes / smallest_page - 1);
  REQUIRE(mincore(const_cast<std::uint8_t*>(page), states.size() * smallest_page, states.data()) ==
          0);
  return static_cast<std::size_t>(
      std::count_if(states.begin(), states.end(), [](unsigned char s) { return (s & 1) == 0; }));
}

KeptResults one_kept(const std::vector<std::uint8_t>& payload) {
  KeptResults kept;
  REQUIRE(kept.begin(slots, 1, segment));
  kept.keep(0, 0, wire::Header{}, payload);
  return kept;
}

}  // namespace

TEST_CASE("memory of kept results is in use when it is asked for, and keeps what is there") {
  const std::vector<std::uint8_t> payload(segment, 3);
  KeptResults kept = one_kept(payload);
  REQUIRE(missing(kept) > 0);
  kept.use_pages(bytes - 1);  // more than is wanted at once
  CHECK(missing(kept) > 0);
  kept.use_pages(bytes);
  CHECK(missing(kept) == 0);
  const Bytes there = kept.payload_of(*kept.find(0, 0));
  CHECK(std::equal(there.begin(), there.end(), payload.begin(), payload.end()));

  KeptResults none;
  none.use_pages(bytes);
  CHECK_FALSE(none.there());
}
