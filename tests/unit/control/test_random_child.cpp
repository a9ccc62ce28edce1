// A child between members and a parent by seed, and its checkers against what is broken on purpose.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/control/random_child.h"

using namespace control_test;

namespace {

constexpr int steps = 500;
constexpr std::uint64_t seeds = 150;

template <class Breaking>
bool bites(const std::string& words, Breaking breaking) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    RandomChild run(seed);
    breaking(run);
    for (const std::string& one : run.run(steps))
      if (one.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a child by seed: at rest it agrees with its parent and its members",
          "[control][random]") {
  std::map<std::string, int> met;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    RandomChild run(seed);
    const auto wrongs = run.run(steps);
    INFO("seed " << seed);
    if (!wrongs.empty()) FAIL(wrongs.size() << " wrong, first: " << wrongs.front());
    for (const auto& [what, times] : run.met) met[what] += times;
  }
  for (const char* what :
       {"the parent resets", "the parent halts or resumes", "the parent restarts",
        "the parent restarts with its clock behind", "the parent evicts the child",
        "the parent falls silent", "the parent leaves", "the parent forms", "a worker restarts",
        "a worker leaves", "reset: ok", "reset: parent not ready", "halt: ok", "resume: ok",
        "halt: parent not ready", "Resets that went up", "ended running", "ended halted"}) {
    CAPTURE(what, met[what]);
    CHECK(met[what] > 10);
  }
}

TEST_CASE("the checkers of a child's random runs bite", "[control][checker]") {
  CHECK(bites("tag", [](RandomChild& run) {
    run.tamper = [](Sent& sent) {
      sent.datagram.back() ^= 1;
      return true;
    };
  }));
  CHECK(bites("a nonce that does not grow", [](RandomChild& run) {
    run.tamper = [](Sent& sent) {
      if (!sent.is_reply) sent.nonce = sent.request_id == 0 ? 0 : 1'000'000'000 - sent.request_id;
      return true;
    };
  }));
  CHECK(bites("the parent never had", [](RandomChild& run) {
    run.tamper = [](Sent& sent) {
      if (sent.is_reply) sent.body[26] ^= 0x40;
      return true;
    };
  }));
  CHECK(bites("before every shard does", [](RandomChild& run) {
    run.tamper = [](Sent& sent) {
      // A newcomer is told to run whether the job does or not.
      if (sent.is_reply && sent.action == Action::join) sent.body[2] = 1;
      return true;
    };
  }));
}
