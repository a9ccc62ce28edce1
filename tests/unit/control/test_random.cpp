// Random sequences by seed, and each of their checkers against something broken on purpose.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/control/random_run.h"

using namespace control_test;

namespace {

constexpr int steps = 600;
constexpr std::uint64_t seeds = 150;

bool has(const std::vector<std::string>& wrongs, const std::string& words) {
  return std::any_of(wrongs.begin(), wrongs.end(),
                     [&](const std::string& one) { return one.find(words) != std::string::npos; });
}

/// Whether some seed shows `words` when each run is broken by `breaking`.
template <class Breaking>
bool bites(const std::string& words, Breaking breaking) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    RandomRun run(seed);
    breaking(run);
    if (has(run.run(steps), words)) return true;
  }
  return false;
}

bool is_answer(const Sent& sent, Action action) {
  return sent.is_reply && sent.request_id != 0 && sent.action == action;
}

}  // namespace

TEST_CASE("random sequences keep every promise", "[control][random]") {
  std::map<std::string, int> met;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    RandomRun run(seed);
    const auto wrongs = run.run(steps);
    INFO("seed " << seed);
    if (!wrongs.empty()) FAIL(wrongs.size() << " wrong, first: " << wrongs.front());
    for (const auto& [what, times] : run.met) met[what] += times;
  }
  for (const char* what : {"join: ok",
                           "join: job full",
                           "join: bad value",
                           "leave: ok",
                           "reset: ok",
                           "set_threshold: ok",
                           "set_threshold: bad value",
                           "force_broadcast: ok",
                           "force_broadcast: bad value",
                           "help: ok",
                           "halt: ok",
                           "resume: ok",
                           "ping: ok",
                           "resets",
                           "asynchronous Joins",
                           "absorbed",
                           "at once: replayed nonce",
                           "at once: not a member",
                           "at once: ok",
                           "evicted by the operator",
                           "evicted for silence",
                           "repeated by the switch",
                           "passed on: reset",
                           "passed on: halt",
                           "passed on: resume",
                           "ended running",
                           "ended halted",
                           "ended forming",
                           "agents compared at rest"}) {
    CAPTURE(what, met[what]);
    CHECK(met[what] > 20);
  }
}

TEST_CASE("the checkers of random sequences bite", "[control][checker]") {
  CHECK(bites("answered", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      if (is_answer(sent, Action::halt)) sent.body[1] = 5;
      return true;
    };
  }));
  CHECK(bites("never answered", [](RandomRun& run) {
    run.tamper = [](Sent& sent) { return !is_answer(sent, Action::reset); };
  }));
  CHECK(bites("does not grow", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      if (!sent.is_reply) sent.nonce = 7 + sent.request_id % 2;
      return true;
    };
  }));
  CHECK(bites("two things under one nonce", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      if (!sent.is_reply) sent.nonce = 7;
      return true;
    };
  }));
  CHECK(bites("before every shard has it", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      if (is_answer(sent, Action::join)) sent.body[27] ^= 0x40;
      return true;
    };
  }));
  CHECK(bites("older base_round", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      if (is_answer(sent, Action::ping)) sent.body[25] ^= 0x01;
      return true;
    };
  }));
  CHECK(bites("tag", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      sent.datagram.back() ^= 1;
      return true;
    };
  }));
  CHECK(bites("members now", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      if (sent.is_reply) ++sent.body[9];
      return true;
    };
  }));
  CHECK(bites("nobody waits for", [](RandomRun& run) {
    run.tamper = [](Sent& sent) {
      if (is_answer(sent, Action::leave)) ++sent.nonce;
      return true;
    };
  }));
  CHECK(bites("does not know its base_round", [](RandomRun& run) { run.members_forget = true; }));
}
