// What sources of refused contributions are told, and how often.
#include <catch2/catch.hpp>

#include "tests/unit/control/harness.h"

using namespace control_test;
using Kind = datapath::Notice::Kind;

namespace {

std::uint64_t operation(std::uint32_t segment, std::uint32_t round) {
  return std::uint64_t{segment} << 32 | round;
}

void check_unasked(const Sent& sent, Status status) {
  CHECK(sent.is_reply);
  CHECK(sent.action == Action::ping);
  CHECK(sent.request_id == 0);
  CHECK(sent.status() == status);
}

}  // namespace

TEST_CASE("a stranger's contribution: status 2 to where it came from", "[control][notice]") {
  auto config = job_config();
  config.key.assign(16, 3);
  Bench bench({config});
  Client stranger = client(6);
  stranger.id = 3;
  bench.notice(Kind::not_a_member, stranger, 5, 6);
  REQUIRE(bench.sent.size() == 1);
  check_unasked(bench.sent[0], Status::not_a_member);
  CHECK(bench.sent[0].member == 3);
  CHECK(bench.sent[0].to == stranger.endpoint);
  CHECK(bench.sent[0].port == stranger.ingress);
  CHECK(bench.sent[0].missing() == 0);
  CHECK(wire::tag_is_right(config.key, bench.sent[0].datagram, stranger.endpoint.ip,
                           stranger.endpoint.udp_port));
  stranger.job = 44;  // a job that is no more
  bench.notice(Kind::not_a_member, stranger);
  check_unasked(bench.sent.back(), Status::not_a_member);
  CHECK(bench.sent.back().job == 44);
}

TEST_CASE("a notice about somebody who has joined since is dropped", "[control][notice]") {
  Bench bench;
  auto members = bench.joined(2);
  const std::size_t before = bench.sent.size();
  bench.notice(Kind::not_a_member, members[0]);
  CHECK(bench.sent.size() == before);
  Client wrong_id = members[0];
  wrong_id.id = 1;
  bench.notice(Kind::not_a_member, wrong_id);
  REQUIRE(bench.sent.size() == before + 1);
  check_unasked(bench.sent.back(), Status::not_a_member);
}

TEST_CASE("a contribution to a forming job: status 0, to a halted one: 8", "[control][notice]") {
  Bench bench;
  Client a = client(0);
  Client b = client(1);
  bench.join(a);
  bench.notice(Kind::not_running, a);
  check_unasked(bench.sent.back(), Status::ok);
  CHECK(bench.sent.back().state() == JobState::forming);
  CHECK(bench.sent.back().base_round() == first_base);
  bench.join(b);
  bench.plain(a, Action::halt);
  bench.notice(Kind::not_running, b);
  check_unasked(bench.sent.back(), Status::halted);
  CHECK(bench.sent.back().state() == JobState::halted);
  CHECK(bench.sent.back().body_member() == 1);
  // During a clearing nobody is told anything: the Reset says it.
  bench.plain(a, Action::resume);
  bench.answering = false;
  bench.reset(a);
  bench.now += second;  // no rate limit in the way
  const std::size_t before = bench.sent.size();
  bench.notice(Kind::not_running, a);
  // Of contributions under the old base_round, which the datapath has left already.
  bench.notice(Kind::gone, a, 9, first_base + 3);
  bench.notice(Kind::mismatch, b, 9, first_base + 3, 0b01);
  CHECK(bench.sent.size() == before);
  bench.answer_all();
  bench.notice(Kind::not_running, a);  // raised before, late: the state of now
  CHECK(bench.sent.back().status() == Status::ok);
  CHECK(bench.sent.back().base_round() == first_base + 2);
}

TEST_CASE("a Help that comes while the slots are cleared is not told that its result is gone",
          "[control][notice]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.answering = false;
  bench.reset(members[0]);
  bench.datapath.slots[{9, first_base}] = datapath::SlotState::gone;  // cleared: nothing is kept
  bench.help(members[1], 9, first_base);
  bench.answer_all();
  for (const Sent& sent : bench.sent) CHECK_FALSE((sent.is_reply && sent.status() == Status::gone));
  CHECK(bench.plain(members[1], Action::ping)->base_round() == first_base + 2);
  bench.answering = true;
  CHECK(bench.help(members[1], 9, first_base)->status() == Status::gone);
}

TEST_CASE("a stale contribution whose result is not kept: status 7 and which",
          "[control][notice]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.notice(Kind::gone, members[1], 9, first_base + 3);
  check_unasked(bench.sent.back(), Status::gone);
  CHECK(bench.sent.back().to == members[1].endpoint);
  CHECK(bench.sent.back().missing() == operation(9, first_base + 3));
}

TEST_CASE("a mismatch: status 11 to its sender and to the members in the sum",
          "[control][notice]") {
  Bench bench({job_config(1, 4)});
  auto members = bench.joined(4);
  const std::size_t before = bench.sent.size();
  bench.notice(Kind::mismatch, members[2], 9, first_base + 3, 0b0111);
  REQUIRE(bench.sent.size() == before + 3);
  for (const int told : {0, 1, 2}) {
    const auto got = bench.to(members[static_cast<std::size_t>(told)], before);
    REQUIRE(got.size() == 1);
    check_unasked(got[0], Status::mismatch);
    CHECK(got[0].missing() == operation(9, first_base + 3));
    CHECK(got[0].body_member() == told);
  }
}

TEST_CASE("at once for the first in a second, at most ten a second to one of them",
          "[control][notice]") {
  Bench bench;
  auto members = bench.joined(2);
  const std::size_t before = bench.sent.size();
  std::vector<Time> sent_at;
  for (Time t = 0; t < 5 * second; t += millisecond) {
    bench.now = start_time + t;
    const std::size_t count = bench.sent.size();
    bench.notice(Kind::gone, members[0], 1, first_base);
    if (bench.sent.size() > count) sent_at.push_back(bench.now);
  }
  REQUIRE(sent_at.size() > 10);
  CHECK(sent_at.front() == start_time);
  for (std::size_t i = 10; i < sent_at.size(); ++i) CHECK(sent_at[i] - sent_at[i - 10] >= second);
  CHECK(bench.sent.size() - before == sent_at.size());
  CHECK(bench.control.counters().notices_limited == 5000 - sent_at.size());
  CHECK(bench.control.counters().notices_sent == sent_at.size());
  // The other member and other sources are not limited by this one.
  bench.notice(Kind::gone, members[1], 1, first_base);
  CHECK(bench.sent.size() - before == sent_at.size() + 1);
  // After a quiet second, at once again.
  bench.now += second;
  const std::size_t quiet = bench.sent.size();
  bench.notice(Kind::gone, members[0], 1, first_base);
  CHECK(bench.sent.size() == quiet + 1);
}

TEST_CASE("nonces of unasked-for replies only grow, at one instant and over time",
          "[control][notice]") {
  Bench bench({job_config(1, 8)});
  auto members = std::vector<Client>{};
  for (unsigned i = 0; i < 7; ++i) {
    members.push_back(client(i));
    bench.join(members.back());
  }
  std::uint64_t last = 0;
  for (int round = 0; round < 3; ++round) {
    for (const auto& member : members) {
      bench.notice(Kind::not_running, member);
      CHECK(bench.sent.back().nonce > last);
      last = bench.sent.back().nonce;
    }
    bench.now += second;
  }
  CHECK(last >= (start_unix_seconds + 2) * 1'000'000);
}

TEST_CASE("notices about nobody are ignored", "[control][notice]") {
  Bench bench;
  Client nobody = client(3);
  nobody.id = 1;
  for (const auto kind : {Kind::not_running, Kind::gone, Kind::mismatch}) {
    nobody.job = 1;
    bench.notice(kind, nobody, 1, 1, ~datapath::MemberMask{0});
    nobody.job = 12;
    bench.notice(kind, nobody, 1, 1, ~datapath::MemberMask{0});
  }
  CHECK(bench.sent.empty());
}
