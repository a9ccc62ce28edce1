// Reset, Halt and Resume passed on to every member until it has answered.
#include <catch2/catch.hpp>

#include "tests/unit/control/harness.h"

using namespace control_test;

TEST_CASE("what is passed on carries the member's id, a request id and a right tag",
          "[control][pass]") {
  auto config = job_config(1, 2);
  config.key.assign(16, 0x5A);
  Bench bench({config});
  auto members = bench.joined(2, 1, config.key);
  bench.reset(members[0]);
  for (const auto& member : members) {
    const auto got = bench.requests_to(member);
    REQUIRE(got.size() == 1);
    CHECK(got[0].action == Action::reset);
    CHECK(got[0].member == member.id);
    CHECK(got[0].request_id != 0);
    CHECK(got[0].nonce >= start_unix_seconds * 1'000'000);
    CHECK(got[0].to == member.endpoint);
    CHECK(got[0].port == member.ingress);
    CHECK(wire::tag_is_right(config.key, got[0].datagram, switch_address().rules.ip,
                             switch_address().rules.udp_port));
  }
}

TEST_CASE("repeated after 50 ms, doubling to a second, until answered", "[control][pass]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.plain(members[0], Action::halt);
  const Time sent_at = bench.now;
  bench.member_reply(members[0], bench.requests_to(members[0]).front());
  std::vector<Time> times{0};
  while (bench.control.next_deadline() != never && times.size() < 9) {
    const Time due = bench.control.next_deadline();
    bench.at(due - 1);
    CHECK(bench.requests_to(members[1]).size() == times.size());
    bench.at(due);
    CHECK(bench.requests_to(members[1]).size() == times.size() + 1);
    times.push_back(due - sent_at);
  }
  const std::vector<Time> expected{0, 50, 150, 350, 750, 1550, 2550, 3550, 4550};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(times[i] == expected[i] * millisecond);
  const auto all = bench.requests_to(members[1]);
  for (const auto& one : all) CHECK(one.datagram == all.front().datagram);  // a repetition
  CHECK(bench.requests_to(members[0]).size() == 1);
  bench.member_reply(members[1], all.front());
  CHECK(bench.control.next_deadline() == never);
  bench.at(bench.now + 10 * second);
  CHECK(bench.requests_to(members[1]).size() == all.size());
}

TEST_CASE("a member that leaves or is evicted is asked no more", "[control][pass]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.plain(members[0], Action::halt);
  bench.member_reply(members[0], bench.requests_to(members[0]).front());
  const auto asked = bench.requests_to(members[1]).size();
  SECTION("leaves") { bench.plain(members[1], Action::leave); }
  SECTION("is evicted") {
    bench.control.remove_member(1, 1, bench.now, bench.effects, {});
    bench.settle();
  }
  CHECK(bench.control.next_deadline() == never);
  bench.at(bench.now + 5 * second);
  CHECK(bench.requests_to(members[1]).size() == asked);
}

TEST_CASE("a newer request never loses the older one's meaning", "[control][pass]") {
  Bench bench;
  auto members = bench.joined(2);
  const auto newest = [&](const Client& member) { return bench.requests_to(member).back(); };

  SECTION("Reset, then Halt: the Halt follows the Reset's answer") {
    bench.reset(members[0]);
    bench.plain(members[0], Action::halt);
    REQUIRE(bench.requests_to(members[1]).size() == 1);
    bench.member_reply(members[1], newest(members[1]));
    REQUIRE(bench.requests_to(members[1]).size() == 2);
    CHECK(newest(members[1]).action == Action::halt);
    bench.member_reply(members[1], newest(members[1]));
    bench.at(bench.now + second);
    CHECK(bench.requests_to(members[1]).size() == 2);
  }
  SECTION("Halt, then Reset: the Reset goes first, the Halt is said again") {
    bench.plain(members[0], Action::halt);
    bench.reset(members[0]);
    REQUIRE(bench.requests_to(members[1]).size() == 2);
    CHECK(newest(members[1]).action == Action::reset);
    bench.member_reply(members[1], newest(members[1]));
    CHECK(newest(members[1]).action == Action::halt);
  }
  SECTION("Reset, then Reset: only the newer one matters") {
    bench.reset(members[0]);
    const auto older = newest(members[1]);
    bench.reset(members[0]);
    CHECK(newest(members[1]).reset_base() == first_base + 4);
    CHECK(newest(members[1]).nonce > older.nonce);
    bench.member_reply(members[1], older);  // its answer to the older one, late
    bench.at(bench.now + 50 * millisecond);
    CHECK(newest(members[1]).reset_base() == first_base + 4);
    CHECK(bench.requests_to(members[1]).size() == 3);
    bench.member_reply(members[1], newest(members[1]));
    bench.at(bench.now + 5 * second);
    CHECK(bench.requests_to(members[1]).size() == 3);
  }
  SECTION("Halt unanswered, then Resume: the Resume is said, for the Halt may have arrived") {
    bench.plain(members[0], Action::halt);
    bench.plain(members[0], Action::resume);
    CHECK(newest(members[1]).action == Action::resume);
    bench.member_reply(members[1], newest(members[1]));
    bench.at(bench.now + 5 * second);
    CHECK(newest(members[1]).action == Action::resume);
    CHECK(bench.requests_to(members[1]).size() == 2);
  }
}

TEST_CASE("only the awaited reply counts", "[control][pass]") {
  auto config = job_config(1, 2);
  config.key.assign(20, 7);
  Bench bench({config});
  auto members = bench.joined(2, 1, config.key);
  bench.plain(members[0], Action::halt);
  const Sent request = bench.requests_to(members[1]).front();
  const auto ignored = bench.control.counters().ignored;
  Client from = members[1];
  Sent claimed = request;
  SECTION("another request id") { ++claimed.request_id; }
  SECTION("another nonce") { ++claimed.nonce; }
  SECTION("another action") { claimed.action = Action::resume; }
  SECTION("another job") { claimed.job = 5; }
  SECTION("a wrong tag") { from.key[0] ^= 1; }
  SECTION("another place") { ++from.endpoint.udp_port; }
  bench.member_reply(from, claimed);
  CHECK(bench.control.counters().ignored == ignored + 1);
  bench.at(bench.now + 50 * millisecond);
  CHECK(bench.requests_to(members[1]).size() == 2);
}

TEST_CASE("an answer counts whatever its status, but a replayed nonce is tried anew",
          "[control][pass]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.plain(members[0], Action::halt);
  const Sent first = bench.requests_to(members[1]).front();
  bench.member_reply(members[1], first, Status::replayed_nonce);
  bench.at(bench.now + 50 * millisecond);
  REQUIRE(bench.requests_to(members[1]).size() == 2);
  const Sent second_try = bench.requests_to(members[1]).back();
  CHECK(second_try.nonce > first.nonce);
  CHECK(second_try.action == Action::halt);
  bench.member_reply(members[1], second_try, Status::not_a_member);
  bench.at(bench.now + 5 * second);
  CHECK(bench.requests_to(members[1]).size() == 2);
}

TEST_CASE("a joiner hears of a Reset or Halt under way by its reply alone", "[control][pass]") {
  Bench bench({job_config(1, 3)});
  auto members = bench.joined(3);
  bench.plain(members[2], Action::leave);
  bench.plain(members[0], Action::halt);
  Client late = client(8);
  const std::size_t before = bench.sent.size();
  const auto reply = bench.join(late);
  CHECK(reply->state() == JobState::halted);
  CHECK(bench.requests_to(late, before).empty());
  // But if it asked for something before the clearing was over, that reply told it the old state.
  bench.answering = false;
  late.incarnation = 1;
  bench.join(late);
  CHECK(bench.plain(late, Action::ping)->base_round() == first_base + 2);
  bench.answer_all();
  REQUIRE(bench.requests_to(late, before).size() == 1);
  CHECK(bench.requests_to(late, before)[0].reset_base() == first_base + 4);
}

TEST_CASE("a member told of a forming job hears of its Halt", "[control][pass]") {
  Bench bench;
  Client a = client(0);
  bench.join(a);
  bench.plain(a, Action::halt);
  REQUIRE(bench.requests_to(a).size() == 1);
  CHECK(bench.requests_to(a)[0].action == Action::halt);
}
