// The pieces by themselves: replay guard, rate limiter, orders on their way, config.
#include <catch2/catch.hpp>

#include "switchd/control/orders.h"
#include "switchd/control/rate_limiter.h"
#include "switchd/control/replay_guard.h"
#include "tests/unit/control/harness.h"

using namespace control_test;
using control::OrderBook;
using control::Outcome;
using control::Place;
using control::RateLimiter;
using control::ReplayGuard;

namespace {

Place place(std::uint32_t n) { return {{n}, 1, 0}; }
wire::ControlHeader request(std::uint64_t nonce, Action action = Action::halt) {
  return {action, 1, 0, 1, nonce};
}

}  // namespace

TEST_CASE("places differ by each of their three parts", "[control][parts]") {
  const Place base{{1}, 2, 3};
  CHECK(base.key() != Place{{2}, 2, 3}.key());
  CHECK(base.key() != Place{{1}, 3, 3}.key());
  CHECK(base.key() != Place{{1}, 2, 4}.key());
  CHECK(Place{{0xFFFF'FFFF}, 0xFFFF, 0xFFFF}.key() == UINT64_MAX);
}

TEST_CASE("the replay guard is bounded and forgets who was silent longest", "[control][parts]") {
  ReplayGuard guard(4);
  using Verdict = ReplayGuard::Verdict;
  for (std::uint32_t n = 0; n < 4; ++n) guard.begin(place(n), request(10));
  CHECK(guard.check(place(0), request(10)).verdict == Verdict::in_progress);  // used: kept
  guard.begin(place(9), request(10));
  CHECK(guard.check(place(1), request(10)).verdict == Verdict::fresh);  // forgotten
  CHECK(guard.check(place(0), request(9)).verdict == Verdict::refused);
  CHECK(guard.finish(place(1), request(10), Status::ok));  // still to be answered
  CHECK(guard.finish(place(0), request(10), Status::bad_value));
  const auto finding = guard.check(place(0), request(10));
  CHECK(finding.verdict == Verdict::answered);
  CHECK(finding.status == Status::bad_value);
  guard.begin(place(0), request(11));
  CHECK_FALSE(guard.finish(place(0), request(10), Status::ok));
}

TEST_CASE("a flood of strangers does not make a job forget its members' nonces for ever",
          "[control][parts]") {
  // What is forgotten is at least 1024 sources old: a member's own next request is fresh again.
  Bench bench({job_config(1, 1)});
  auto members = bench.joined(1);
  for (unsigned n = 1; n <= 3000; ++n) {
    Client stranger = client(n % 200);
    stranger.endpoint.ip.value += n * 256;
    CHECK(bench.join(stranger)->status() == Status::job_full);
  }
  CHECK(bench.plain(members[0], Action::halt)->status() == Status::ok);
}

TEST_CASE("the rate limiter lets another status through and counts a second exactly",
          "[control][parts]") {
  RateLimiter limiter;
  CHECK(limiter.allow(place(1), Status::gone, 0));
  CHECK_FALSE(limiter.allow(place(1), Status::gone, 99 * millisecond));
  CHECK(limiter.allow(place(1), Status::mismatch, 99 * millisecond));
  CHECK(limiter.allow(place(1), Status::gone, 100 * millisecond));
  CHECK(limiter.allow(place(2), Status::gone, 100 * millisecond));
  int sent = 0;
  for (Time t = 0; t < second; t += 10 * millisecond)
    for (std::uint16_t status = 0; status <= 11; ++status)
      sent += limiter.allow(place(3), static_cast<Status>(status), t) ? 1 : 0;
  CHECK(sent == 10);
  CHECK(limiter.allow(place(3), Status::ok, second));
}

TEST_CASE("an order is done when all shards have answered, in whatever order", "[control][parts]") {
  OrderBook book(3);
  control::Effects effects;
  const control::Turn turn{0, effects};
  int first = 0;
  int second_done = 0;
  Outcome outcome;
  book.send(1, datapath::Stop{}, turn, [&](const Outcome& given, const control::Turn&) {
    ++first;
    outcome = given;
  });
  book.send(1, datapath::Stop{}, turn,
            [&](const Outcome&, const control::Turn&) { ++second_done; });
  REQUIRE(effects.orders.size() == 2);
  CHECK(effects.orders[0].number == 1);
  CHECK(effects.orders[1].number == 2);
  datapath::Answer answer;
  for (const std::uint16_t shard : {2, 0, 1}) {
    answer.number = 2;
    answer.shard = shard;
    CHECK(book.answered(answer, turn));
  }
  CHECK(second_done == 1);
  CHECK(first == 0);
  answer.number = 1;
  answer.shard = 1;
  answer.highest_round = 0xFFFF'FFF0;
  CHECK(book.answered(answer, turn));
  CHECK_FALSE(book.answered(answer, turn));
  answer.shard = 0;
  answer.highest_round = 5;  // later, over the wrap
  answer.slot = datapath::SlotState::open;
  answer.missing = 6;
  CHECK(book.answered(answer, turn));
  answer.shard = 2;
  answer.highest_round = 0xFFFF'FFFF;
  answer.slot = datapath::SlotState::not_mine;
  answer.missing = 0;
  answer.ok = false;
  CHECK(book.answered(answer, turn));
  CHECK(first == 1);
  CHECK(outcome.highest_round == 5);
  CHECK(outcome.slot == datapath::SlotState::open);
  CHECK(outcome.missing == 6);
  CHECK_FALSE(outcome.ok);
}

TEST_CASE("history: 1, or 8 where sums may complete without everybody", "[control][parts]") {
  auto config = job_config(1, 4);
  CHECK(control::history_in_force(config) == 1);
  config.threshold = 4;
  CHECK(control::history_in_force(config) == 1);
  config.threshold = 3;
  CHECK(control::history_in_force(config) == 8);
  config.threshold = 0;
  config.force_after = second;
  CHECK(control::history_in_force(config) == 8);
  config.force_after = 0;
  config.mode = wire::Mode::async;
  CHECK(control::history_in_force(config) == 8);
  config.history = 3;
  CHECK(control::history_in_force(config) == 3);
}

TEST_CASE("a job's config is checked field by field", "[control][parts]") {
  CHECK(control::job_config_errors(job_config()).empty());
  auto bad = job_config(1, 0);
  bad.slots = 0;
  bad.segment_bytes = 8960;
  bad.threshold = 1;
  bad.history = 0;
  bad.key.assign(15, 0);
  bad.force_after = -1;
  bad.member_timeout = 0;
  const auto errors = control::job_config_errors(bad);
  CHECK(errors.size() == 8);
  for (const auto& error : errors) CHECK(error.find("must be") != std::string::npos);
  // Such a job is there to be seen, but never ordered.
  Bench bench({bad, job_config(2, 1)});
  CHECK_FALSE(bench.view(1).fault.empty());
  CHECK(orders_of<datapath::Install>(bench.datapath).size() == 1);
  bad = job_config(3, 200);
  Bench second_bench({bad});
  Client a = client(0, 3);
  a.id = 150;
  CHECK(second_bench.join(a)->status() == Status::unsupported);
  a.id = 150;
  CHECK(second_bench.plain(a, Action::ping)->status() == Status::not_a_member);
  second_bench.control.heard(3, 150, 1);
}

TEST_CASE("the reader of frames bites", "[control][checker]") {
  Bench bench({job_config(1, 1)});
  Client a = client(0);
  bench.control.on_frame(
      frame_of(a, wire::write_join(a.next_header(Action::join), join_body(a), a.as_client())),
      bench.now, bench.effects);
  for (std::uint64_t number = 1; bench.effects.frames.empty() && number < 10; ++number) {
    datapath::Answer answer;
    answer.number = number;
    bench.control.on_answer(answer, bench.now, bench.effects);
  }
  REQUIRE(bench.effects.frames.size() == 1);
  const auto good = bench.effects.frames[0].bytes;
  CHECK(frame_fault(good).empty());
  for (std::size_t byte = 6; byte < good.size(); ++byte) {
    auto broken = good;
    broken[byte] ^= 0x04;
    CAPTURE(byte);
    CHECK_FALSE(frame_fault(broken).empty());
  }
}
