// The slot of an asynchronous job, protocol.md section 5, rule by rule, at a root and at a child.
#include <catch2/catch.hpp>

#include "tests/unit/pipeline/rig.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

constexpr std::uint32_t base = 0xFFFF'FFFD;  // numbers wrap in the third push

datapath::JobSpec async_job(std::uint16_t history = 8) {
  datapath::JobSpec spec = small_job();
  spec.mode = wire::Mode::async;
  spec.history = history;
  return spec;
}

struct Root : Rig {
  explicit Root(unsigned members = 2, std::uint16_t history = 8, RigConfig config = {})
      : Rig(config) {
    make_job(async_job(history), members, base);
  }
  Result only_result() {
    const auto results = take_results();
    REQUIRE(results.size() == 1);
    return results[0];
  }
  /// A push of the member with incarnation 7.
  void push(MemberId member, std::uint32_t number, float value = 1, std::uint8_t flags = 0) {
    send(Part{.member = member, .round = base + number, .floats = {value}, .flags = flags});
  }
};

struct AsyncChild : Rig {
  explicit AsyncChild(unsigned members = 2, std::uint16_t history = 8, RigConfig config = {})
      : Rig(config) {
    make_child(async_job(history), members, base);
  }
  void push(MemberId member, std::uint32_t number, float value = 1, std::uint8_t flags = 0) {
    send(Part{.member = member, .round = base + number, .floats = {value}, .flags = flags});
  }
  Up only_up() {
    const auto ups = take_ups();
    REQUIRE(ups.size() == 1);
    return ups[0];
  }
  Result only_result() {
    const auto results = take_results();
    REQUIRE(results.size() == 1);
    return results[0];
  }
};

}  // namespace

TEST_CASE("async: H distinct members complete an update; all members get it") {
  Root t(3);
  t.order(datapath::SetThreshold{2});
  t.push(0, 1, 1);
  CHECK(t.take_results().empty());
  t.push(2, 1, 10);
  Result r = t.only_result();
  CHECK(r.to == 0b111);
  CHECK(r.floats == std::vector<float>{11});
  CHECK(r.fields.round == base + 1);  // updates are numbered from base + 1
  CHECK(r.fields.workers == 2);
  CHECK(r.fields.members == 0b101);
  CHECK(r.fields.flags == 0);
  // Push numbers are the member's own: 0 goes on with 2, 1 starts with 1.
  t.push(1, 1, 100);
  t.push(0, 2, 1000);
  r = t.only_result();
  CHECK(r.fields.round == base + 2);
  CHECK(r.fields.members == 0b011);
  CHECK(r.floats == std::vector<float>{1100});
}

TEST_CASE("async: a newer push of a member that is in the sum is added and counts once") {
  Root t(3);
  t.order(datapath::SetThreshold{2});
  t.push(0, 1, 1);
  t.push(0, 2, 10);
  t.push(0, 5, 100);  // numbers may have holes
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::aggregate_added) == 3);
  t.push(1, 1, 1000);
  const Result r = t.only_result();
  CHECK(r.floats == std::vector<float>{1111});
  CHECK(r.fields.members == 0b011);
  CHECK(r.fields.workers == 4);  // pushes in it: what a mean divides by
}

TEST_CASE("async: duplicates: dropped in the open sum, else answered with what acknowledges them") {
  Root t(2);
  t.push(0, 1);
  t.push(0, 1);
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 1);
  t.push(1, 1);
  const Result first = t.only_result();
  t.push(1, 1, 1, wire::flag::retransmit);
  Result again = t.only_result();
  CHECK(again.to == 0b10);
  CHECK(again.frames.at(1) == first.frames.at(1));
  CHECK(t.count(Counter::aggregate_replayed) == 1);
  // Its next push is in the open sum: an older copy is dropped.
  t.push(1, 2);
  t.push(1, 1);
  t.push(1, 2);
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 3);
  t.push(0, 1);
  CHECK(t.only_result().frames.at(0) == first.frames.at(0));
  CHECK(t.take_notices().empty());
}

TEST_CASE("async: a push whose acknowledgement is not kept any more: its member is told") {
  Root t(2, 3);
  t.order(datapath::SetThreshold{1});
  t.push(0, 1);
  const Result first = t.only_result();
  for (std::uint32_t n = 1; n <= 2; ++n) t.push(1, n);
  t.take_results();
  t.push(0, 1);  // not the last result, but the one that it is in
  CHECK(t.only_result().frames.at(0) == first.frames.at(0));
  t.push(1, 3);
  t.take_results();
  t.push(0, 1);
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::aggregate_drop_stale) == 1);
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::gone);
  CHECK(notices[0].member == 0);
  CHECK(notices[0].segment == 0);
  CHECK(notices[0].round == base + 1);  // updates up to this one are gone
  // A copy of one that its member has pushed beyond is late, and means nothing.
  t.now += second;
  t.push(1, 1);
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 1);
  CHECK(t.take_notices().empty());
}

TEST_CASE("async: a duplicate that nothing answers yet: the member's part was cleared") {
  Root t(2);
  t.push(0, 1);
  datapath::MemberSpec again{
      .id = 0, .endpoint = endpoint_of(0), .ingress = port_of(0), .incarnation = 8};
  CHECK(t.order(datapath::PutMember{again}).ok);
  t.send({Part{.member = 0, .round = base + 1, .floats = {1}, .tag = 8}});
  CHECK(t.count(Counter::aggregate_added) == 2);
}

TEST_CASE("async: all 32 bits of the number count") {
  Root t(2);
  t.push(0, 1);
  t.push(1, 1);
  t.take_results();
  t.send(Part{.member = 0, .round = base + 1 + 0x1'0000, .floats = {5}});  // newer, and believable
  CHECK(t.count(Counter::aggregate_added) == 3);
  t.push(0, 2);  // and this one is older now
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 1);
  // A number that is too far ahead would break the order of all that comes after it.
  t.send(Part{.member = 1, .round = base + 1 + (1u << 20), .floats = {5}});
  t.take_results();
  CHECK(t.count(Counter::aggregate_added) == 4);
  t.send(Part{.member = 1, .round = base + 2 + (2u << 20), .floats = {5}});
  t.send(Part{.member = 1, .round = base + 0x7000'0000, .floats = {5}});
  CHECK(t.count(Counter::aggregate_drop_ahead) == 2);
  CHECK(t.order(datapath::Stop{}).highest_round == base + 1 + (1u << 20));
}

TEST_CASE("async: a push not newer than the base round is stale, and nobody is told") {
  Root t(2);
  t.push(0, 0);
  t.send(Part{.member = 0, .round = base - 5, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_stale) == 2);
  t.push(0, 1);
  t.push(1, 1);
  t.take_results();
  t.push(0, 0);
  CHECK(t.count(Counter::aggregate_drop_stale) == 3);
  CHECK(t.take_results().empty());
  CHECK(t.take_notices().empty());
}

TEST_CASE("async: the tag is the member's incarnation") {
  Root t(2);
  t.send(Part{.member = 0, .round = base + 1, .floats = {1}, .tag = 8});
  CHECK(t.count(Counter::aggregate_drop_incarnation) == 1);
  CHECK(t.job_count(JobCounter::incarnations) == 1);
  CHECK(t.take_notices().empty());
  t.push(0, 1);
  // Different tags in one sum are no mismatch.
  t.put(1, 1, wire::MemberKind::worker, 1, 99);
  t.send(Part{.member = 1, .round = base + 1, .floats = {1}, .tag = 99});
  CHECK(t.only_result().fields.members == 0b11);
}

TEST_CASE("async: another length is a mismatch and is not accepted; empty pushes count") {
  Root t(3);
  t.send(Part{.member = 0, .round = base + 1, .floats = {1, 2}});
  t.send(Part{.member = 1, .round = base + 1, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 1);
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::mismatch);
  CHECK(notices[0].member == 1);
  CHECK(notices[0].others == 0b001);
  t.send(Part{.member = 1, .round = base + 1, .floats = {1, 2}});
  t.send(Part{.member = 2, .round = base + 1});
  CHECK(t.only_result().floats == std::vector<float>{2, 4});
}

TEST_CASE("async: no buffer: the push is not accepted and may come again") {
  Root t(2, 8, {.buffers = 0});
  t.push(0, 1);
  CHECK(t.count(Counter::aggregate_drop_no_buffer) == 1);
  t.pool.set_capacity(5);
  t.push(0, 1);
  CHECK(t.count(Counter::aggregate_added) == 1);
}

TEST_CASE("async: PARTIAL from child switches only, ECN-ECHO from all") {
  Root t(2);
  t.put(1, 1, wire::MemberKind::child_switch, 4);
  t.send({Part{.member = 0, .round = base + 1, .floats = {1}, .flags = wire::flag::partial},
          Part{.member = 1, .round = base + 1, .floats = {1}, .workers = 6}});
  CHECK(t.only_result().fields.flags == 0);
  t.send({Part{.member = 0, .round = base + 2, .floats = {1}, .ecn = wire::Ecn::ce},
          Part{.member = 1,
               .round = base + 2,
               .floats = {1},
               .flags = wire::flag::partial,
               .workers = 6}});
  const Result r = t.only_result();
  CHECK(r.fields.flags == (wire::flag::partial | wire::flag::ecn_echo));
  CHECK(r.fields.workers == 7);
}

TEST_CASE("async: Help by update number: kept, still to come, gone") {
  Root t(2, 3);
  const auto help = [&](std::uint32_t update) {
    return t.order(datapath::Replay{.segment = 0, .round = base + update, .member = 1});
  };
  CHECK(help(0).slot == SlotState::gone);
  CHECK(help(1).slot == SlotState::none);
  t.push(0, 1);
  auto answer = help(1);  // a sum is open: nobody is asked
  CHECK(answer.slot == SlotState::none);
  CHECK(answer.missing == 0);
  t.push(1, 1);
  for (std::uint32_t n = 2; n <= 5; ++n) {
    t.push(0, n, static_cast<float>(n));
    t.push(1, n, static_cast<float>(n));
  }
  t.take_results();
  CHECK(help(6).slot == SlotState::none);
  CHECK(help(2).slot == SlotState::gone);
  for (std::uint32_t n = 3; n <= 5; ++n) {
    CHECK(help(n).slot == SlotState::kept);
    const Result r = t.only_result();
    CHECK(r.to == 0b10);
    CHECK(r.fields.round == base + n);
    CHECK(r.floats == std::vector<float>{2 * static_cast<float>(n)});
  }
  CHECK(t.order(datapath::Replay{0, base + 5, 63}).slot == SlotState::kept);
  CHECK(t.take_results().empty());
}

TEST_CASE("async: Force completes whatever is open; age too") {
  Rig t;
  datapath::JobSpec spec = async_job();
  spec.force_after = 10 * millisecond;
  t.make_job(spec, 3, base);
  CHECK(t.order(datapath::Force{0, 12345}).slot == SlotState::none);
  t.send(Part{.member = 0, .round = base + 1, .floats = {1}});
  const auto forced = t.order(datapath::Force{0, 12345});
  CHECK(forced.slot == SlotState::open);
  CHECK(forced.missing == 0b110);
  auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.flags == wire::flag::partial);
  CHECK(results[0].fields.members == 0b001);
  CHECK(t.order(datapath::Force{0, base + 1}).slot == SlotState::none);
  CHECK(t.order(datapath::Force{4, base + 1}).slot == SlotState::none);
  t.send(Part{.member = 1, .round = base + 1, .floats = {1}});
  t.now += 10 * millisecond;
  t.housekeep();
  results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.round == base + 2);
  CHECK(results[0].fields.flags == wire::flag::partial);
}

TEST_CASE("async: DropMember: every remaining member's part completes, the leaver's stays") {
  Root t(3);
  t.push(2, 1, 100);
  t.order(datapath::DropMember{2});
  CHECK(t.take_results().empty());
  t.push(0, 1, 1);
  CHECK(t.take_results().empty());  // 1 is missing still
  t.order(datapath::DropMember{1});
  const Result r = t.only_result();
  CHECK(r.floats == std::vector<float>{101});
  CHECK(r.to == 0b001);
  t.push(2, 2);
  CHECK(t.count(Counter::classify_drop_not_a_member) == 1);
}

TEST_CASE("async: a place filled again: bits cleared, parts stay, numbers start again") {
  Root t(3);
  const auto refill = [&](MemberId member, std::uint32_t incarnation) {
    t.put(member, 1, wire::MemberKind::worker, 1, incarnation);
  };
  for (MemberId m = 0; m < 3; ++m) t.push(m, 1, 1);
  t.take_results();
  t.push(2, 2, 100);
  refill(2, 8);
  auto listed = t.order(datapath::ListSlots{9}).open;
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].members == 0);
  CHECK(listed[0].workers == 1);
  // A late copy of the one before is not added.
  t.push(2, 2, 100);
  CHECK(t.count(Counter::aggregate_drop_incarnation) == 1);
  // In the kept result its bit is somebody else's no more.
  CHECK(t.order(datapath::Replay{0, base + 1, 2}).slot == SlotState::kept);
  CHECK(t.only_result().fields.members == 0b011);
  // The new one's first push has number base + 1 and is none of the old one's copies.
  t.send(Part{.member = 2, .round = base + 1, .floats = {1000}, .tag = 8});
  CHECK(t.count(Counter::aggregate_added) == 5);
  CHECK(t.take_results().empty());
  // The old part counts towards H: two more are enough.
  t.push(0, 2, 1);
  Result r = t.only_result();
  CHECK(r.floats == std::vector<float>{1101});
  CHECK(r.fields.members == 0b101);
  CHECK(r.fields.workers == 3);
  // Left and joined again: the same.
  t.push(0, 3, 1);
  t.order(datapath::DropMember{0});
  refill(0, 8);
  t.push(1, 2, 1);
  CHECK(t.take_results().empty());
  t.send(Part{.member = 2, .round = base + 2, .floats = {1}, .tag = 8});
  r = t.only_result();
  CHECK(r.floats == std::vector<float>{3});
  CHECK(r.fields.members == 0b110);
  // The same incarnation again changes nothing but the address.
  t.push(1, 3, 1);
  refill(1, 7);
  t.push(1, 3, 1);
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 1);
  CHECK(t.order(datapath::ListSlots{9}).open[0].members == 0b010);
}

TEST_CASE("async: a place filled again under an explicit threshold counts as well") {
  Root t(4);
  t.order(datapath::SetThreshold{2});
  t.push(3, 1, 1);
  t.put(3, 1, wire::MemberKind::worker, 1, 8);
  t.send(Part{.member = 3, .round = base + 1, .floats = {10}, .tag = 8});
  const Result r = t.only_result();
  CHECK(r.floats == std::vector<float>{11});
  CHECK(r.fields.members == 0b1000);
}

TEST_CASE("async: Stop and Start: everything as if never used") {
  Root t(2);
  CHECK(t.order(datapath::Stop{}).highest_round == base - 1);
  CHECK(t.order(datapath::Start{base}).ok);
  t.push(0, 1);
  t.push(1, 1);
  t.push(0, 2);
  t.push(0, 3);
  CHECK(t.order(datapath::Stop{}).highest_round == base + 3);
  CHECK(t.pool.in_use() == 0);
  t.take_results();
  const std::uint32_t next = base + 1000;
  t.order(datapath::Start{next});
  t.push(0, 4);
  CHECK(t.count(Counter::aggregate_drop_stale) == 1);
  CHECK(t.order(datapath::Replay{0, base + 1, 0}).slot == SlotState::gone);
  t.send({Part{.member = 0, .round = next + 1, .floats = {1}},
          Part{.member = 1, .round = next + 1, .floats = {1}}});
  CHECK(t.only_result().fields.round == next + 1);
  // An update is a number seen too.
  t.order(datapath::SetThreshold{1});
  for (std::uint32_t n = 2; n < 6; ++n)
    t.send({Part{.member = 0, .round = next + n, .floats = {1}},
            Part{.member = 1, .round = next + n, .floats = {1}}});
  CHECK(t.order(datapath::Stop{}).highest_round == next + 9);
}

// ---- at a child

TEST_CASE("async child: a full sum goes up as one push; the next goes on collecting") {
  AsyncChild t(3);
  t.order(datapath::SetThreshold{2});
  t.push(0, 1, 1);
  t.push(1, 1, 10);
  Up up = t.only_up();
  CHECK(up.header.round == base + 1);  // this switch's own push number
  CHECK(up.header.operation_tag() == parent_spec().incarnation);
  CHECK(up.header.member == id_at_parent);
  CHECK(up.header.workers() == 2);
  CHECK(up.header.flags == 0);
  CHECK(up.floats == std::vector<float>{11});
  // Beyond H while that one waits.
  t.push(2, 1, 100);
  t.push(0, 2, 1000);
  t.push(1, 2, 10000);
  CHECK(t.take_ups().empty());
  CHECK(t.take_results().empty());
  auto listed = t.order(datapath::ListSlots{9}).open;
  REQUIRE(listed.size() == 2);
  CHECK(listed[0].waiting);
  CHECK(listed[0].members == 0b011);
  CHECK(listed[0].missing == 0b100);
  CHECK_FALSE(listed[1].waiting);
  CHECK(listed[1].members == 0b111);
  CHECK(t.order(datapath::ListSlots{1}).open.size() == 1);
  CHECK(t.pool.in_use() == 2);

  // A result without this switch: to all, acknowledging nobody; the push goes on waiting.
  t.send(Down{.round = base + 1, .floats = {5}, .members = 0b11});
  Result r = t.only_result();
  CHECK(r.to == 0b111);
  CHECK(r.fields.members == 0);
  CHECK(t.take_ups().empty());
  // One with it acknowledges the members of that push, and the next sum goes up.
  t.send(Down{.round = base + 2, .floats = {6}});
  r = t.only_result();
  CHECK(r.fields.round == base + 2);
  CHECK(r.fields.members == 0b011);
  CHECK(r.fields.workers == 9);
  up = t.only_up();
  CHECK(up.header.round == base + 2);
  CHECK(up.header.workers() == 3);
  CHECK(up.floats == std::vector<float>{11100});
  CHECK(t.count(Counter::aggregate_completed) == 2);
  t.send(Down{.round = base + 3, .floats = {6}});
  CHECK(t.only_result().fields.members == 0b111);
  CHECK(t.order(datapath::ListSlots{9}).open.empty());
  CHECK(t.pool.in_use() == 3);  // the kept results
}

TEST_CASE("async child: an acknowledgement with less than H collected lets nothing go up") {
  AsyncChild t(2);
  t.push(0, 1);
  t.push(1, 1);
  t.take_ups();
  t.push(0, 2, 5);
  t.send(Down{.round = base + 1, .floats = {5}});
  CHECK(t.take_ups().empty());
  t.push(1, 2, 6);
  const Up up = t.only_up();
  CHECK(up.floats == std::vector<float>{11});
  CHECK(up.header.round == base + 2);
}

TEST_CASE("async child: a duplicate sends up what waits; then as at a root") {
  AsyncChild t(2);
  t.push(0, 1);
  t.push(1, 1);
  const Up first = t.only_up();
  t.push(0, 1);
  Up again = t.only_up();
  CHECK(again.header.flags == wire::flag::retransmit);
  again.header.flags = 0;
  CHECK(again.header == first.header);
  CHECK(again.floats == first.floats);
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 1);  // no result yet to answer with
  t.send(Down{.round = base + 1, .floats = {5}, .members = 0});
  t.take_results();
  t.push(0, 1);
  CHECK(t.take_ups().size() == 1);
  CHECK(t.take_results().empty());  // no result acknowledges it yet
  t.push(0, 2);
  t.push(0, 2);
  CHECK(t.take_ups().size() == 1);
  CHECK(t.take_results().empty());  // it is in the open sum
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 3);
  t.push(0, 0);
  CHECK(t.take_ups().empty());  // stale
}

TEST_CASE("async child: copies and late results; a hole acknowledges when it is filled") {
  AsyncChild t(1, 3);
  t.push(0, 1);
  t.only_up();
  t.push(0, 2);
  t.send(Down{.round = base + 2, .floats = {2}, .members = 0b1});  // base + 1, with us, was lost
  CHECK(t.only_result().fields.members == 0);
  CHECK(t.order(datapath::Replay{0, base + 1, 0}).slot == SlotState::gone);
  CHECK(t.take_ups().empty());
  t.send(Down{.round = base + 1, .floats = {1}});
  Result r = t.only_result();
  CHECK(r.fields.round == base + 1);
  CHECK(r.fields.members == 0b1);
  CHECK(t.only_up().header.round == base + 2);
  // A copy of it acknowledges nothing: it is about the push before.
  t.send(Down{.round = base + 1, .floats = {1}});
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::parent_drop_again) == 1);
  CHECK(t.order(datapath::ListSlots{9}).open.size() == 1);
  t.send(Down{.round = base + 6, .floats = {1}, .members = 0});
  t.take_results();
  t.send(Down{.round = base + 3, .floats = {1}});  // beyond the history of 3
  CHECK(t.count(Counter::parent_drop_old) == 1);
  CHECK(t.order(datapath::ListSlots{9}).open.size() == 1);
  t.send(Down{.round = base + 4, .floats = {1}});
  CHECK(t.only_result().fields.members == 0b1);
  CHECK(t.order(datapath::ListSlots{9}).open.empty());
  t.send(Down{.round = base, .floats = {1}});
  CHECK(t.count(Counter::parent_drop_old) == 2);
}

TEST_CASE("async child: a push whose update is gone waits no longer") {
  AsyncChild t(2, 3);
  t.order(datapath::SetThreshold{1});
  t.push(0, 1);
  t.push(1, 1);
  CHECK(t.take_ups().size() == 1);
  const auto give_up = [&](std::uint32_t push) { t.order(datapath::GiveUp{0, base + push}); };
  give_up(2);  // about another push
  give_up(0);
  CHECK(t.take_ups().empty());
  give_up(1);
  CHECK(t.take_results().empty());
  const Up next = t.only_up();  // what has been collected meanwhile
  CHECK(next.header.round == base + 2);
  // Its member is told: its push is in no result that is kept.
  t.push(0, 1);
  t.take_ups();
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::gone);
  CHECK(notices[0].member == 0);
  t.send(Down{.round = base + 4, .floats = {4}});
  CHECK(t.only_result().fields.members == 0b10);
  give_up(2);  // nothing waits
  CHECK(t.take_ups().empty());
  CHECK(t.pool.in_use() == 1);
}

TEST_CASE("async: a child switch is told which of its pushes is gone") {
  Root t(2, 2);
  t.put(1, 1, wire::MemberKind::child_switch, 1, 7);
  t.order(datapath::SetThreshold{1});
  t.send(Part{.member = 1, .round = base + 1, .floats = {1}, .workers = 3});
  for (std::uint32_t n = 1; n <= 2; ++n) t.push(0, n);
  t.take_results();
  t.send(Part{.member = 1, .round = base + 1, .floats = {1}, .workers = 3});
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::gone);
  CHECK(notices[0].round == base + 1);
  CHECK(t.take_results().empty());
}

TEST_CASE("async child: a bit of this switch with nothing outstanding acknowledges nobody") {
  AsyncChild t(2, 8);
  t.push(0, 1);
  t.send(Down{.round = base + 1, .floats = {1}});
  CHECK(t.only_result().fields.members == 0);
  t.push(1, 1, 2);
  CHECK(t.only_up().floats == std::vector<float>{3});  // the open sum is untouched
}

TEST_CASE("async child: a place filled again has no part in the waiting push") {
  AsyncChild t(2);
  t.push(0, 1);
  t.push(1, 1);
  t.take_ups();
  t.put(1, 1, wire::MemberKind::worker, 1, 8);
  t.send(Down{.round = base + 1, .floats = {2}});
  CHECK(t.only_result().fields.members == 0b01);
}

TEST_CASE("async child: Force: now, or as soon as the parent has answered") {
  AsyncChild t(3);
  CHECK(t.order(datapath::Force{0, 0}).slot == SlotState::none);
  t.push(0, 1);
  CHECK(t.order(datapath::Force{0, 0}).slot == SlotState::open);
  CHECK(t.only_up().header.flags == wire::flag::partial);
  CHECK(t.order(datapath::Force{0, 0}).slot == SlotState::waiting);
  t.push(1, 1);
  CHECK(t.order(datapath::Force{0, 0}).slot == SlotState::waiting);
  CHECK(t.order(datapath::Force{0, 0}).slot == SlotState::waiting);
  CHECK(t.count(Counter::aggregate_forced) == 2);
  CHECK(t.take_ups().empty());
  t.send(Down{.round = base + 1, .floats = {1}});
  const Up up = t.only_up();
  CHECK(up.header.flags == wire::flag::partial);
  CHECK(up.header.workers() == 1);
  // What is full already is no forced sum.
  for (MemberId m = 0; m < 3; ++m) t.push(m, 5);
  CHECK(t.order(datapath::Force{0, 0}).slot == SlotState::waiting);
  t.send(Down{.round = base + 2, .floats = {1}});
  CHECK(t.only_up().header.flags == 0);
}

TEST_CASE("async child: age forces open sums once, also behind one that waits") {
  Rig t;
  datapath::JobSpec spec = async_job();
  spec.force_after = 10 * millisecond;
  t.make_child(spec, 2, base);
  const auto push = [&](MemberId m, std::uint32_t n) {
    t.send(Part{.member = m, .round = base + n, .floats = {1}});
  };
  push(0, 1);
  t.now += 10 * millisecond;
  t.housekeep();
  CHECK(t.take_ups().size() == 1);
  push(0, 2);
  t.now += 10 * millisecond;
  for (int i = 0; i < 5; ++i) t.housekeep();
  CHECK(t.take_ups().empty());
  CHECK(t.count(Counter::aggregate_forced) == 2);
  t.send(Down{.round = base + 1, .floats = {1}});
  const auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.flags == wire::flag::partial);
}

TEST_CASE("async child: leaving members let the open sum go up, Stop gives everything back") {
  AsyncChild t(3);
  t.push(0, 1);
  t.push(1, 1);
  CHECK(t.take_ups().empty());
  t.order(datapath::DropMember{2});
  CHECK(t.only_up().header.workers() == 2);
  t.push(0, 2);
  t.order(datapath::DropMember{1});
  CHECK(t.take_ups().empty());  // one waits
  t.send(Down{.round = base + 1, .floats = {1}});
  CHECK(t.only_up().header.workers() == 1);
  t.push(0, 3);
  CHECK(t.pool.in_use() == 3);
  t.order(datapath::Stop{});
  CHECK(t.pool.in_use() == 0);
  t.order(datapath::Start{base + 100});
  t.send(Part{.member = 0, .round = base + 101, .floats = {1}});
  CHECK(t.only_up().header.round == base + 101);  // push numbers start after the base again
}

TEST_CASE("async child: no buffer for a result: the push goes on waiting") {
  AsyncChild t(1, 1, {.buffers = 1});
  t.push(0, 1);
  t.only_up();
  t.send(Down{.round = base + 1, .floats = {1}});
  CHECK(t.count(Counter::parent_drop_no_buffer) == 1);
  CHECK(t.take_results().empty());
  t.pool.set_capacity(2);
  t.push(0, 1);
  CHECK(t.take_ups().size() == 1);
  t.send(Down{.round = base + 1, .floats = {1}});
  CHECK(t.only_result().fields.members == 0b1);
}

TEST_CASE("async child: a duplicate leaves two frames, a whole burst of them") {
  AsyncChild t(2);
  t.order(datapath::SetThreshold{1});
  t.push(1, 1);
  t.send(Down{.round = base + 1, .floats = {1}});
  t.push(0, 1);
  t.take_ups();
  t.take_results();
  // Of a member that is not in the waiting push: that goes up again, and its own result comes back.
  t.send(
      std::vector<Part>(pipeline::max_burst, Part{.member = 1, .round = base + 1, .floats = {1}}));
  CHECK(t.take_ups().size() == pipeline::max_burst);
  CHECK(t.take_results().size() == pipeline::max_burst);
}

TEST_CASE("async child: with memory just enough for the slots a result finds room") {
  AsyncChild t(1, 2, {.buffers = 4});
  for (std::uint32_t n = 1; n <= 2; ++n) {
    t.push(0, n);
    t.send(Down{.round = base + n, .floats = {1}});
  }
  t.push(0, 3);
  t.push(0, 4);
  t.take_ups();
  t.take_results();
  CHECK(t.pool.in_use() == 4);  // two results, a push that waits, an open sum
  t.send(Down{.round = base + 3, .floats = {7}});
  CHECK(t.only_result().floats == std::vector<float>{7});
  CHECK(t.only_up().header.round == base + 4);
  CHECK(t.order(datapath::Replay{0, base + 1, 0}).slot == SlotState::gone);
  CHECK(t.order(datapath::Replay{0, base + 2, 0}).slot == SlotState::kept);
}
