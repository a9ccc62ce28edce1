// Asynchronous jobs: membership without Resets, refilled places.
#include <catch2/catch.hpp>

#include "tests/unit/control/parent.h"

using namespace control_test;
using datapath::SlotState;

namespace {

constexpr Time ms = millisecond;

JobConfig async_config(std::uint16_t members = 3) {
  JobConfig config = job_config(1, members);
  config.mode = wire::Mode::async;
  config.base_round = 400;
  return config;
}

/// Of a switch with a parent, which gives the base_round.
JobConfig async_child_config() {
  JobConfig config = async_config(2);
  config.base_round.reset();
  return config;
}

wire::JoinBody async_join(const Client& from, MemberId wanted = wire::no_member) {
  wire::JoinBody body = join_body(from, wanted);
  body.mode = wire::Mode::async;
  return body;
}

std::vector<Client> running(Bench& bench, unsigned n = 3) {
  std::vector<Client> members;
  for (unsigned i = 0; i < n; ++i) {
    members.push_back(client(i));
    REQUIRE(bench.join(members[i], async_join(members[i], static_cast<MemberId>(i)))->status() ==
            Status::ok);
  }
  REQUIRE(bench.view().state == JobState::running);
  return members;
}

}  // namespace

TEST_CASE("an asynchronous job says so, and keeps eight results", "[control][async]") {
  Bench bench({async_config()});
  Client sync = client(9);
  const auto refused = bench.join(sync);
  CHECK(refused->status() == Status::unsupported);
  CHECK(refused->body[3] == 1);  // what it is
  auto members = running(bench);
  const auto reply = bench.join(members[0], async_join(members[0], 0));
  CHECK(reply->status() == Status::ok);
  CHECK(reply->body[3] == 1);
  CHECK(reply->history() == 8);
  CHECK(reply->base_round() == 400);
  CHECK(bench.datapath.shard(0).spec.mode == wire::Mode::async);
  CHECK(bench.datapath.shard(0).spec.history == 8);
  Bench synchronous;
  Client async = client(1);
  CHECK(synchronous.join(async, async_join(async))->status() == Status::unsupported);
}

TEST_CASE("the datapath knows each member's incarnation: pushes carry it", "[control][async]") {
  Bench bench({async_config()});
  const auto members = running(bench);
  for (const auto& member : members)
    CHECK(bench.datapath.shard(0).members.at(member.id).incarnation == member.incarnation);
}

TEST_CASE("who comes into a running asynchronous job disturbs nobody", "[control][async]") {
  Bench bench({async_config()}, 2);
  auto members = running(bench);
  Client& who = members[2];
  SECTION("restarted") { who.incarnation = 7777; }
  SECTION("after a Leave") { bench.plain(who, Action::leave); }
  SECTION("after an eviction") {
    bench.control.remove_member(1, 2, bench.now, bench.effects, {});
    bench.settle();
  }
  SECTION("in place of a silent one") {
    bench.now += 6 * second;
    for (int i = 0; i < 2; ++i) bench.plain(members[static_cast<std::size_t>(i)], Action::ping);
    who = client(11);
  }
  const auto refills = bench.datapath.shard(0).refills[2];
  const auto reply = bench.join(who, async_join(who, 2));
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->state() == JobState::running);
  CHECK(reply->base_round() == 400);
  CHECK(reply->body_member() == 2);
  for (std::uint16_t shard = 0; shard < 2; ++shard) {
    CHECK(bench.datapath.shard(shard).stops == 0);
    CHECK(bench.datapath.shard(shard).refills[2] == refills + 1);
  }
  for (int i = 0; i < 2; ++i)
    CHECK(bench.requests_to(members[static_cast<std::size_t>(i)]).empty());
  CHECK(bench.control.counters().resets == 0);
}

TEST_CASE("a Join is answered when every shard has the row, and asked again it refills nothing",
          "[control][async]") {
  Bench bench({async_config()}, 2);
  auto members = running(bench);
  Client& who = members[1];
  who.incarnation = 4321;
  bench.answering = false;
  const auto first = who.next_header(Action::join);
  bench.deliver(who, wire::write_join(first, async_join(who, 1), who.as_client()));
  bench.answer_one(0);
  CHECK_FALSE(bench.reply_to(who, first));
  // A fresh Join of the same process, before the other shard has the row.
  const auto second_one = who.next_header(Action::join);
  bench.deliver(who, wire::write_join(second_one, async_join(who, 1), who.as_client()));
  CHECK_FALSE(bench.reply_to(who, second_one));
  bench.answer_all();
  bench.answering = true;
  REQUIRE(bench.reply_to(who, second_one));
  CHECK(bench.reply_to(who, second_one)->status() == Status::ok);
  for (std::uint16_t shard = 0; shard < 2; ++shard)
    CHECK(bench.datapath.shard(shard).refills[1] == 2);  // the first Join and this one
  // And another, after it.
  bench.join(who, async_join(who, 1));
  for (std::uint16_t shard = 0; shard < 2; ++shard)
    CHECK(bench.datapath.shard(shard).refills[1] == 2);
}

TEST_CASE("a Join is answered for its own row, not for one of the same member that is gone",
          "[control][async]") {
  Bench bench({async_config()});
  auto members = running(bench);
  Client& who = members[1];
  who.incarnation = 4321;
  bench.answering = false;
  const auto join = [&] {
    const auto header = who.next_header(Action::join);
    bench.deliver(who, wire::write_join(header, async_join(who, 1), who.as_client()));
    return header;
  };
  join();
  bench.control.remove_member(1, 1, bench.now, bench.effects, {});
  bench.settle();
  join();
  bench.answer_one(0);  // the first row
  bench.answer_one(0);  // it is dropped
  const auto last = join();
  CHECK_FALSE(bench.reply_to(who, last));
  bench.answer_all();
  REQUIRE(bench.reply_to(who, last));
  CHECK(bench.datapath.shard(0).members.count(1) == 1);
}

TEST_CASE("Reset of an asynchronous job gives a new base_round", "[control][async]") {
  Bench bench({async_config()});
  auto members = running(bench);
  bench.datapath.highest[0] = 450;
  CHECK(bench.reset(members[0])->base_round() == 452);
  CHECK(bench.requests_to(members[1])[0].reset_base() == 452);
}

TEST_CASE("Help by update number: kept, to come, gone", "[control][async]") {
  Bench bench({async_config()});
  auto members = running(bench);
  bench.datapath.slots[{1, 405}] = SlotState::kept;
  bench.datapath.slots[{1, 406}] = GENERATE(SlotState::none, SlotState::open);
  bench.datapath.missing[{1, 406}] = 0b110;
  bench.datapath.slots[{1, 300}] = SlotState::gone;
  const auto before = bench.sent.size();
  CHECK(bench.help(members[0], 1, 405)->status() == Status::ok);
  const auto to_come = bench.help(members[0], 1, 406);
  CHECK(to_come->status() == Status::ok);
  CHECK(to_come->missing() == 0);
  const auto gone = bench.help(members[0], 1, 300);
  CHECK(gone->status() == Status::gone);
  CHECK(gone->missing() == (std::uint64_t{1} << 32 | 300));
  for (const auto& member : members) CHECK(bench.requests_to(member, before).empty());
}

TEST_CASE("an asynchronous child: Help goes up, and gone is everybody's", "[control][async]") {
  ChildRig rig(async_child_config());
  rig.run();
  CHECK(rig.shard().spec.child);
  CHECK(rig.shard().spec.history == 8);
  CHECK(rig.shard().parent->incarnation != 0);
  const auto before = rig.bench.sent.size();
  rig.bench.datapath.slots[{1, 406}] = GENERATE(SlotState::none, SlotState::gone, SlotState::open);
  rig.parent.statuses[Action::help] = Status::gone;
  const auto header = rig.members[0].next_header(Action::help);
  rig.bench.deliver(rig.members[0],
                    wire::write_slot_request(header, {1, 406}, rig.members[0].as_client()));
  CHECK(rig.parent.got(Action::help).size() == 1);
  rig.parent.pump();
  CHECK(rig.bench.reply_to(rig.members[0], header)->status() == Status::gone);
  // Nobody in particular is missing from an update that is to come.
  const auto then = rig.bench.sent.size();
  CHECK(rig.parent.order_help(1, 406)->status() == Status::ok);
  for (const auto& member : rig.members) CHECK(rig.bench.requests_to(member, then).empty());
  const auto other = rig.bench.to(rig.members[1], before);
  REQUIRE(other.size() == 1);
  CHECK(other[0].status() == Status::gone);
  CHECK(other[0].missing() == (std::uint64_t{1} << 32 | 406));
}

TEST_CASE("an asynchronous child that lost its place in a running job: its members join anew",
          "[control][async]") {
  ChildRig rig(async_child_config());
  rig.run();
  const auto incarnation = rig.shard().parent->incarnation;
  // Its pushes at the parent are lost or counted, nobody knows; the base_round stays as it is.
  rig.parent.forget();
  rig.parent.pass(1500 * ms);
  CHECK(rig.bench.view().members.empty());
  CHECK_FALSE(rig.shard().running);
  for (auto& member : rig.members) {
    CHECK(rig.bench.plain(member, Action::ping)->status() == Status::not_a_member);
    rig.bench.join(member, async_join(member));
  }
  rig.parent.pass(1500 * ms);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().base == parent_base);
  CHECK(rig.shard().parent->incarnation != incarnation);
  CHECK(rig.parent.resets == 0);
}

TEST_CASE("an asynchronous child gives up the push that its parent says to be gone",
          "[control][async]") {
  ChildRig rig(async_child_config());
  rig.run();
  const auto before = rig.bench.sent.size();
  rig.parent.unasked(Status::gone, std::uint64_t{1} << 32 | 406);
  rig.parent.unasked(Status::gone, std::uint64_t{0xFFFFFF} << 32 | 406);
  const auto given_up = orders_of<datapath::GiveUp>(rig.bench.datapath);
  REQUIRE(given_up.size() == 1);
  CHECK(given_up[0].segment == 1);
  CHECK(given_up[0].push == 406);
  // Its members learn by themselves what they lack.
  for (const auto& member : rig.members) CHECK(rig.bench.to(member, before).empty());
  CHECK(rig.parent.joins == 1);
  CHECK(rig.shard().stops == 0);
}

TEST_CASE("an update that is gone is told to workers; to a child switch it would mean a push",
          "[control][async]") {
  JobConfig config = async_config(3);
  config.base_round.reset();
  Bench bench({config}, parent_config());
  Parent parent(bench);
  parent.terms.mode = wire::Mode::async;
  parent.show_address();
  std::vector<Client> members;
  for (unsigned i = 0; i < 3; ++i) {
    members.push_back(client(i));
    wire::JoinBody body = async_join(members[i], static_cast<MemberId>(i));
    if (i == 2) {
      body.kind = wire::MemberKind::child_switch;
      body.shards = 1;
    }
    bench.join(members[i], body);
  }
  parent.pass(50 * millisecond);
  REQUIRE(bench.view().state == JobState::running);
  parent.statuses[Action::help] = Status::gone;
  const auto before = bench.sent.size();
  bench.help(members[0], 1, 406);
  parent.pump();
  CHECK(bench.to(members[1], before).size() == 1);
  CHECK(bench.to(members[1], before).back().status() == Status::gone);
  CHECK(bench.to(members[2], before).empty());
}

TEST_CASE("a member's push whose update is gone: it is told, nobody is asked", "[control][async]") {
  ChildRig rig(async_child_config());
  rig.run();
  rig.bench.notice(datapath::Notice::Kind::gone, rig.members[0], 3, 409);
  CHECK(rig.bench.to(rig.members[0]).back().status() == Status::gone);
  CHECK(rig.bench.to(rig.members[0]).back().missing() == (std::uint64_t{3} << 32 | 409));
  CHECK(rig.parent.got(Action::help).empty());
}

TEST_CASE("a member of an asynchronous child comes and goes without its parent's knowledge",
          "[control][async]") {
  ChildRig rig(async_child_config());
  rig.run();
  rig.members[1].incarnation = 5555;
  const auto reply = rig.bench.join(rig.members[1], async_join(rig.members[1], 1));
  CHECK(reply->status() == Status::ok);
  CHECK(reply->state() == JobState::running);
  CHECK(rig.shard().refills.at(1) == 2);
  CHECK(rig.shard().stops == 0);
  CHECK(rig.parent.got(Action::reset).empty());
}
