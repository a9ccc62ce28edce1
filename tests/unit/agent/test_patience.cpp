// How a wait is spent, in a time of the test's own: a core, what else runs on it, and when
// something comes.
#include <catch2/catch.hpp>
#include <random>

#include "agent/patience.h"

using namespace iswitch;
using agent::Patience;

namespace {

constexpr Time a_look = 100;
constexpr Time an_offer = 500;  // that nobody takes

struct Wait {
  unsigned looks = 0, offers = 0, sleeps = 0;
  Time own = 0;  // before the sleep, if it came to one
  Time until_sleep = 0;
};

class Core {
 public:
  explicit Core(Time now = 1'000'000'000) : now_(now) { patience_.begin(now_); }

  /// Something comes `after` so long; an offered core comes back after `taken`; one who sleeps
  /// is not waited for (`blocks`: it comes that much later otherwise).
  Wait wait(Time after, Time taken, Time blocks = 0) {
    Wait wait;
    const Time begin = now_;
    for (;;) {
      now_ += a_look;
      const bool held_up = blocks > 0 && wait.sleeps == 0 && now_ < begin + blocks;
      if (now_ >= begin + after && !held_up) break;
      switch (patience_.after_look(now_)) {
        case Patience::Next::look:
          ++wait.looks;
          break;
        case Patience::Next::offer: {
          ++wait.offers;
          const Time took = taken > 0 ? taken : an_offer;
          now_ += took;
          patience_.offered(took);
          break;
        }
        case Patience::Next::sleep:
          if (wait.sleeps++ == 0) wait.until_sleep = now_ - begin;
          now_ = std::max(now_, begin + after);
          break;
      }
    }
    wait.own = wait.sleeps > 0 ? wait.until_sleep : now_ - begin;
    patience_.found(now_);
    return wait;
  }

  Time now() const { return now_; }
  Patience& patience() { return patience_; }

 private:
  Time now_;
  Patience patience_;
};

}  // namespace

TEST_CASE("who has a core of its own looks, and hardly calls the kernel") {
  Core core;
  for (unsigned i = 0; i < 100; ++i) core.wait(10 * microsecond, 0);
  for (unsigned i = 0; i < 100; ++i) {
    const Wait wait = core.wait(10 * microsecond, 0);
    CHECK(wait.sleeps == 0);
    CHECK(wait.offers <= 2);
    CHECK(wait.looks >= 70);
  }
  const Wait shorter = core.wait(3 * microsecond, 0);
  CHECK(shorter.offers == 0);
}

TEST_CASE("where others of the group want the core they have it, for each look one time") {
  Core core;
  for (unsigned i = 0; i < 100; ++i) core.wait(10 * microsecond, 0);  // alone before
  core.wait(100 * microsecond, 20 * microsecond);
  for (unsigned i = 0; i < 100; ++i) {
    const Wait wait = core.wait(100 * microsecond, 20 * microsecond);
    CHECK(wait.sleeps == 0);
    CHECK(wait.looks == 0);
    CHECK(wait.offers == 5);
  }
}

TEST_CASE(
    "where only sleeping lets others go on it is a sleep at once, tried otherwise now and then") {
  Core core;
  const auto held_up = [&core] { return core.wait(15 * microsecond, 0, 3 * millisecond); };
  const Wait first = held_up();
  CHECK(first.sleeps > 0);
  CHECK(first.until_sleep >= Patience::most_own);
  CHECK(first.until_sleep < Patience::most_own + 5 * microsecond);
  for (unsigned i = 0; i < 10; ++i) held_up();
  Time lost = 0;
  unsigned at_once = 0;
  for (unsigned i = 0; i < 640; ++i) {
    const Wait wait = held_up();
    REQUIRE(wait.sleeps > 0);
    lost += wait.until_sleep;
    at_once += wait.until_sleep == a_look ? 1 : 0;
  }
  CHECK(at_once >= 560);
  CHECK(at_once < 640);  // it was tried
  CHECK(lost < 640 * 2 * microsecond);

  SECTION("and no longer when they have gone") {
    unsigned slept = 0;
    for (unsigned i = 0; i < 64; ++i) slept += core.wait(10 * microsecond, 0).sleeps > 0 ? 1 : 0;
    CHECK(slept > 0);
    for (unsigned i = 0; i < 200; ++i) CHECK(core.wait(10 * microsecond, 0).sleeps == 0);
  }
}

TEST_CASE("one short wait in three does not pay for the others") {
  Core core;
  Time lost = 0;
  for (unsigned i = 0; i < 600; ++i) {
    const Wait wait = i % 3 == 0 ? core.wait(2 * microsecond, 0)
                                 : core.wait(15 * microsecond, 0, 3 * millisecond);
    if (i >= 60) lost += wait.own;
  }
  CHECK(lost < 540 * 6 * microsecond);
}

TEST_CASE("who computes on the core for long is not offered it again and again") {
  Core core;
  for (unsigned i = 0; i < 8; ++i) core.wait(20 * microsecond, 4 * millisecond);
  unsigned offers = 0;
  for (unsigned i = 0; i < 60; ++i) offers += core.wait(20 * microsecond, 4 * millisecond).offers;
  CHECK(offers <= 8);
}

TEST_CASE("whatever offers bring, a wait becomes a sleep in time") {
  std::mt19937_64 random(7);
  Core core;
  for (unsigned i = 0; i < 20'000; ++i) {
    const Time taken = random() % 3 == 0 ? 0 : static_cast<Time>(random() % (400 * microsecond));
    const Time after = static_cast<Time>(random() % (5 * millisecond));
    const Wait wait = core.wait(after, taken);
    if (wait.sleeps == 0) {
      CHECK(after <= Patience::most + taken + microsecond);
    } else {
      CHECK(wait.until_sleep <= Patience::most + taken + microsecond);
    }
  }
}
