// The C interface, used from C.
#include <catch2/catch.hpp>

#include "tests/unit/agent/c_rank.h"
#include "tests/unit/agent/ranks.h"

using namespace iswitch::test;

TEST_CASE("ranks in C reduce, broadcast, meet and learn who is missing") {
  constexpr std::size_t ranks = 3;
  TestSwitch on({.jobs = {job_of(ranks)}});
  const int caller_driven = GENERATE(0, 1);
  CHECK(on_each(ranks, [&](std::size_t rank) -> std::string {
          const char* problem = c_rank(on.address().c_str(), static_cast<int>(rank),
                                       static_cast<int>(ranks), caller_driven);
          return problem == nullptr ? "" : problem;
        }) == well);
}

TEST_CASE("misuse from C is an error value") {
  TestSwitch on({.jobs = {job_of(1)}});
  const char* problem = c_misuse(on.address().c_str());
  CHECK(std::string(problem == nullptr ? "" : problem) == well);
}
