// Results that members hand back after a restart, protocol.md section 9, each row of its tables by
// hand-made frames.
#include <catch2/catch.hpp>

#include "tests/unit/pipeline/rig.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

constexpr std::uint32_t base = 0xFFFF'FFFE;  // rounds wrap
constexpr std::uint8_t partial = wire::flag::partial;
constexpr std::uint8_t retransmit = wire::flag::retransmit;
constexpr std::uint8_t settled = wire::flag::settled;

/// What member m hands back.
Down back(MemberId m, std::uint32_t round, std::uint32_t segment, std::vector<float> floats,
          MemberMask members = 0b11, std::uint16_t workers = 2) {
  Down down;
  down.round = round;
  down.segment = segment;
  down.floats = std::move(floats);
  down.members = members;
  down.workers = workers;
  down.source = endpoint_of(m);
  down.ingress = port_of(m);
  return down;
}
Down nothing(MemberId m, std::uint32_t segment = 0) { return back(m, base, segment, {}, 0, 0); }

/// Four slots; goes on at E = 6, F = 9: positions 6 (slot 2, round 1), 7 (slot 3, round 1) and 8
/// (slot 0, round 2) are those that somebody may have. Rounds count from base.
constexpr datapath::Resumption at{6, 9};

struct Root : Rig {
  explicit Root(std::uint16_t threshold = 0, RigConfig config = {}) : Rig(config) {
    REQUIRE(order(datapath::Install{small_job()}).ok);
    put(0);
    put(1);
    order(datapath::SetThreshold{threshold});
    REQUIRE(order(datapath::Start{base, at}).ok);
  }
  Counter ending(const Down& down) {
    std::array<std::uint64_t, pipeline::counter_count> before{};
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = count(static_cast<Counter>(i));
    send(down);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto counter = static_cast<Counter>(i);
      if (pipeline::counter_is_terminal(counter) && count(counter) != before[i]) return counter;
    }
    return Counter::count_;
  }
};

}  // namespace

TEST_CASE("resumed: the last round of a slot is that of the last position below E") {
  Root t(1);
  // Position 9 is slot 1, round 2: not below F, so a threshold of one is enough.
  t.send(Part{.member = 0, .round = base + 2, .segment = 1, .floats = {1}});
  CHECK(t.take_results().size() == 1);
  // Two rounds on each slot are ahead.
  for (const std::uint32_t segment : {2u, 3u})
    t.send(Part{.member = 0, .round = base + 2, .segment = segment, .floats = {1}});
  t.send(Part{.member = 0, .round = base + 3, .segment = 0, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_ahead) == 3);
  // Positions 6, 7 and 8 are below F: all members, whatever the threshold.
  const std::pair<std::uint32_t, std::uint32_t> below[] = {{2, 1}, {3, 1}, {0, 2}};
  for (const auto& [segment, round] : below) {
    t.send(Part{.member = 0, .round = base + round, .segment = segment, .floats = {1}});
    CHECK(t.take_results().empty());
    t.send(Part{.member = 1, .round = base + round, .segment = segment, .floats = {2}});
    const auto results = t.take_results();
    REQUIRE(results.size() == 1);
    CHECK(results[0].floats == std::vector<float>{3});
    CHECK(results[0].to == 0b11);
  }
  // And then the threshold again.
  t.send(Part{.member = 1, .round = base + 2, .segment = 2, .floats = {1}});
  CHECK(t.take_results().size() == 1);
}

TEST_CASE("resumed: what is below F is not forced") {
  Rig t;
  datapath::JobSpec spec = small_job();
  spec.force_after = second;
  REQUIRE(t.order(datapath::Install{spec}).ok);
  t.put(0);
  t.put(1);
  REQUIRE(t.order(datapath::Start{base, at}).ok);
  t.send(Part{.member = 0, .round = base + 1, .segment = 2, .floats = {1}});
  t.send(Part{.member = 0, .round = base + 2, .segment = 1, .floats = {1}});
  CHECK(t.order(datapath::Force{2, base + 1}).slot == SlotState::none);
  CHECK(t.take_results().empty());
  t.now += 5 * second;
  for (int i = 0; i < 4; ++i) t.housekeep();
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.segment == 1);
}

TEST_CASE("resumed: a result handed back becomes the last one as it is") {
  Root t;
  Down down = back(1, base + 1, 2, {5, -0.0F, 7}, 0b10, 9);
  down.flags = partial | retransmit;
  CHECK(t.ending(down) == Counter::aggregate_handed_back);
  auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].to == 0b11);
  CHECK(bits(results[0].floats) == bits({5, -0.0F, 7}));
  CHECK(results[0].fields.round == base + 1);
  CHECK(results[0].fields.segment == 2);
  CHECK(results[0].fields.workers == 9);
  CHECK(results[0].fields.members == 0b10);
  CHECK(results[0].fields.flags == partial);
  CHECK(t.job_count(JobCounter::handed_back) == 1);
  CHECK(t.last_heard(1) == t.now);

  // Kept: to whoever hands it back, and to a contribution of any operation, alone.
  CHECK(t.ending(back(0, base + 1, 2, {8})) == Counter::aggregate_replayed);
  results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].to == 0b01);
  CHECK(results[0].floats[0] == 5);
  for (const std::uint32_t tag : {7u, 8u}) {
    t.send(Part{.member = 0, .round = base + 1, .segment = 2, .floats = {1}, .tag = tag});
    results = t.take_results();
    REQUIRE(results.size() == 1);
    CHECK(results[0].to == 0b01);
  }
  // The next round is nobody's yet.
  CHECK(t.ending(back(0, base + 2, 2, {8})) == Counter::aggregate_drop_unexpected);
  t.send(Part{.member = 0, .round = base + 2, .segment = 2, .floats = {1}});
  t.send(Part{.member = 1, .round = base + 2, .segment = 2, .floats = {2}});
  CHECK(t.take_results().size() == 1);
  // A late copy of what is not kept any more.
  t.take_notices();
  CHECK(t.ending(back(1, base + 1, 2, {5})) == Counter::aggregate_drop_stale);
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::gone);
  CHECK(notices[0].member == 1);
  CHECK(notices[0].round == base + 1);
  CHECK(notices[0].segment == 2);
}

TEST_CASE("resumed: what is open is discarded for what somebody has") {
  Root t;
  for (const bool empty : {false, true}) {
    const std::uint32_t segment = empty ? 3 : 2;
    t.send(Part{.member = 0, .round = base + 1, .segment = segment, .floats = {1, 2}, .tag = 3});
    CHECK(t.ending(
              back(1, base + 1, segment, empty ? std::vector<float>{} : std::vector<float>{9})) ==
          Counter::aggregate_handed_back);
    const auto results = t.take_results();
    REQUIRE(results.size() == 1);
    CHECK(results[0].floats == (empty ? std::vector<float>{} : std::vector<float>{9}));
  }
  CHECK(t.pool.in_use() == 1);
  // An empty sum is open, and what is handed back is not.
  t.send(Part{.member = 0, .round = base + 2, .segment = 0});
  CHECK(t.ending(back(1, base + 2, 0, {4})) == Counter::aggregate_handed_back);
  CHECK(t.pool.in_use() == 2);
}

TEST_CASE("resumed: what is not wanted is dropped, each for its reason") {
  Root t(0, {.shards = 2, .shard = 0});
  const Down right = back(0, base + 1, 2, {1});
  const auto changed = [&](auto change) {
    Down down = right;
    change(down);
    return t.ending(down);
  };
  CHECK(changed([](Down& d) { d.round = base + 2; }) == Counter::aggregate_drop_unexpected);
  CHECK(changed([](Down& d) { d.round = base + 500; }) == Counter::aggregate_drop_unexpected);
  CHECK(changed([](Down& d) { d.round = base; }) == Counter::aggregate_drop_stale);
  CHECK(changed([](Down& d) { d.segment = 3; }) == Counter::classify_drop_wrong_port);
  CHECK(changed([](Down& d) { d.segment = 4; }) == Counter::classify_drop_segment);
  CHECK(changed([](Down& d) { d.flags = 1; }) == Counter::classify_drop_data_type);
  CHECK(changed([](Down& d) { d.floats.resize(17); }) == Counter::classify_drop_length);
  CHECK(changed([](Down& d) { d.workers = 0; }) == Counter::classify_drop_workers);
  t.take_notices();
  CHECK(changed([](Down& d) { d.ingress = port_of(1); }) == Counter::classify_drop_result);
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::not_a_member);
  CHECK(notices[0].member == wire::no_member);
  t.order(datapath::SetHalted{true});
  CHECK(t.ending(right) == Counter::classify_drop_halted);
  t.order(datapath::SetHalted{false});
  CHECK(t.take_results().empty());
  CHECK(t.ending(right) == Counter::aggregate_handed_back);
  t.order(datapath::Stop{});
  CHECK(t.ending(right) == Counter::classify_drop_result);
  t.order(datapath::Start{base + 10});  // afresh: nobody has anything
  CHECK(t.ending(right) == Counter::classify_drop_result);
}

TEST_CASE("resumed: rounds that members have used are known for a Reset") {
  Root t;
  CHECK(t.order(datapath::Stop{}).highest_round == base + 2);  // position 8
  REQUIRE(t.order(datapath::Start{base, datapath::Resumption{0, 0}}).ok);
  CHECK(t.order(datapath::Stop{}).highest_round == base - 1);
}

TEST_CASE("resumed: no buffer for what is handed back") {
  Root t(0, {.buffers = 1});
  t.send(Part{.member = 0, .round = base + 1, .segment = 3, .floats = {1}});
  CHECK(t.ending(back(1, base + 1, 2, {2})) == Counter::aggregate_drop_no_buffer);
  CHECK(t.ending(back(1, base + 1, 3, {2})) == Counter::aggregate_handed_back);
}

// ---- a child

namespace {

struct Child : Root {
  Child() {
    order(datapath::Remove{});
    datapath::JobSpec spec = small_job();
    spec.child = true;
    REQUIRE(order(datapath::Install{spec}).ok);
    REQUIRE(order(datapath::PutParent{parent_spec()}).ok);
    put(0);
    put(1);
    REQUIRE(order(datapath::Start{base, at}).ok);
  }
};

}  // namespace

TEST_CASE("resumed child: what is handed back goes up as it is, and the slot waits") {
  Child t;
  t.send(Part{.member = 0, .round = base + 1, .segment = 2, .floats = {1, 1}, .tag = 3});
  Down down = back(1, base + 1, 2, {5, 6}, 0b11, 4);
  down.flags = partial;
  CHECK(t.ending(down) == Counter::aggregate_handed_back);
  CHECK(t.take_results().empty());
  auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.type == wire::Type::result);
  CHECK(ups[0].header.flags == partial);
  CHECK(ups[0].header.member == 4);  // workers
  CHECK(ups[0].header.round == base + 1);
  CHECK(ups[0].header.segment == 2);
  CHECK(ups[0].header.set == 0);  // a bitmap means the members of one switch
  CHECK(ups[0].floats == std::vector<float>{5, 6});
  wire::Packet packet;
  const wire::Endpoint to = parent_endpoint();
  CHECK(wire::parse_frame({.ip = to.ip, .udp_port = to.udp_port, .ports = 3}, ups[0].frame, {},
                          packet)
            .fault == wire::Fault::none);
  CHECK(packet.destination_port == to.udp_port + 2);
  CHECK(t.pool.in_use() == 1);
  const auto listed = t.order(datapath::ListSlots{9}).open;
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].waiting);
  CHECK(listed[0].missing == 0);

  // Again, from either.
  CHECK(t.ending(back(0, base + 1, 2, {7})) == Counter::aggregate_drop_duplicate);
  ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.type == wire::Type::result);
  CHECK(ups[0].header.flags == (partial | retransmit));
  CHECK(ups[0].floats == std::vector<float>{5, 6});
  t.send(Part{.member = 0,
              .round = base + 1,
              .segment = 2,
              .floats = {1, 1},
              .tag = 3,
              .flags = retransmit});
  CHECK(t.take_ups().size() == 1);

  // The parent's answer; nobody's sum is known to be in it, so its operation is the parent's to
  // say.
  t.send(Down{.round = base + 1, .segment = 2, .floats = {5, 6}, .workers = 4});
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].to == 0b11);
  CHECK(results[0].fields.members == 0);
  CHECK(results[0].fields.workers == 4);
  t.send(Part{.member = 0, .round = base + 1, .segment = 2, .floats = {1}, .tag = 99});
  CHECK(t.count(Counter::aggregate_passed_up) == 1);
  CHECK(t.ending(back(1, base + 1, 2, {5, 6})) == Counter::aggregate_replayed);
  CHECK(t.ending(back(1, base + 2, 2, {5, 6})) == Counter::aggregate_drop_unexpected);
}

TEST_CASE("resumed child: a complete sum waits, and another's result closes it") {
  Child t;
  for (MemberId m = 0; m < 2; ++m)
    t.send(Part{.member = m, .round = base + 1, .segment = 3, .floats = {1}});
  REQUIRE(t.take_ups().size() == 1);
  t.send(Down{.round = base + 1, .segment = 3, .floats = {9}, .members = 0});
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{9});
  CHECK(results[0].fields.members == 0);
}

// ---- asynchronous

namespace {

struct AsyncRig : Root {
  struct Shape {
    bool child = false;
    wire::MemberKind second = wire::MemberKind::worker;
    bool id_in_doubt = false;     ///< the second one's
    bool waited_for_all = false;  ///< the parent
  };
  AsyncRig() : AsyncRig(Shape()) {}
  explicit AsyncRig(const Shape& shape) {
    order(datapath::Remove{});
    datapath::JobSpec spec = small_job();
    spec.mode = wire::Mode::async;
    spec.history = 4;
    spec.child = shape.child;
    REQUIRE(order(datapath::Install{spec}).ok);
    datapath::ParentSpec parent = parent_spec();
    parent.waited_for_all = shape.waited_for_all;
    if (shape.child) REQUIRE(order(datapath::PutParent{parent}).ok);
    put(0);
    const datapath::MemberSpec second{.id = 1,
                                      .kind = shape.second,
                                      .endpoint = endpoint_of(1),
                                      .ingress = port_of(1),
                                      .incarnation = 7,
                                      .id_in_doubt = shape.id_in_doubt};
    REQUIRE(order(datapath::PutMember{second}).ok);
    REQUIRE(order(datapath::Start{base, datapath::Resumption{}}).ok);
  }
  Result only_result() {
    const auto results = take_results();
    REQUIRE(results.size() == 1);
    return results[0];
  }
  Up only_up() {
    const auto ups = take_ups();
    REQUIRE(ups.size() == 1);
    return ups[0];
  }
};

}  // namespace

TEST_CASE("resumed async: a slot settles when all have handed one back") {
  AsyncRig t;
  t.send(Part{.member = 0, .round = base + 4, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_unsettled) == 1);
  CHECK(t.job_count(JobCounter::refused) == 1);
  CHECK(t.ending(back(0, base + 3, 0, {3}, 0b01, 1)) == Counter::aggregate_handed_back);
  CHECK(t.ending(back(0, base + 3, 0, {3}, 0b01, 1)) == Counter::aggregate_handed_back);
  CHECK(t.take_results().empty());
  const auto listed = t.order(datapath::ListSlots{1}).open;
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].missing == 0b10);
  CHECK(t.ending(back(1, base + 5, 0, {5}, 0b11)) == Counter::aggregate_handed_back);
  const Result newest = t.only_result();
  CHECK(newest.to == 0b11);
  CHECK(newest.floats == std::vector<float>{5});
  CHECK(newest.fields.round == base + 5);
  CHECK(newest.fields.members == 0b11);
  CHECK(newest.fields.flags == settled);

  // Its own again: the newest, to m alone.
  CHECK(t.ending(back(0, base + 3, 0, {3}, 0b01, 1)) == Counter::aggregate_replayed);
  const Result again = t.only_result();
  CHECK(again.to == 0b01);
  CHECK(again.fields.round == base + 5);
  CHECK(again.fields.flags == settled);

  // One that is missing: members are asked, and it goes to all, but settles nobody.
  CHECK(t.order(datapath::Replay{0, base + 3, 1}).slot == SlotState::kept);
  CHECK(t.only_result().fields.flags == 0);
  CHECK(t.order(datapath::Replay{0, base + 4, 0}).slot == SlotState::with_members);
  CHECK(t.ending(back(1, base + 4, 0, {4}, 0b10)) == Counter::aggregate_handed_back);
  const Result older = t.only_result();
  CHECK(older.to == 0b11);
  CHECK(older.fields.round == base + 4);
  CHECK(older.fields.members == 0b10);
  CHECK(older.fields.flags == 0);
  CHECK(t.order(datapath::Replay{0, base + 1, 0}).slot == SlotState::gone);  // not in the history
  CHECK(t.order(datapath::Replay{0, base + 6, 0}).slot == SlotState::none);

  // Pushes go on after that: the next update is the next number.
  t.send(Part{.member = 0, .round = base + 6, .floats = {1}});
  t.send(Part{.member = 1, .round = base + 4, .floats = {2}});
  const Result next = t.only_result();
  CHECK(next.fields.round == base + 6);
  CHECK(next.floats == std::vector<float>{3});
  CHECK(next.fields.flags == 0);
  CHECK(t.order(datapath::Stop{}).highest_round == base + 6);
}

TEST_CASE("resumed async: where nobody has anything all are told so") {
  AsyncRig t;
  CHECK(t.ending(nothing(0)) == Counter::aggregate_handed_back);
  CHECK(t.ending(nothing(1)) == Counter::aggregate_handed_back);
  const Result none = t.only_result();
  CHECK(none.to == 0b11);
  CHECK(none.fields.round == base);
  CHECK(none.fields.members == 0);
  CHECK(none.fields.workers == 0);
  CHECK(none.fields.flags == settled);
  CHECK(none.floats.empty());
  CHECK(t.ending(nothing(1)) == Counter::aggregate_replayed);
  CHECK(t.only_result().to == 0b10);
  CHECK(t.ending(back(1, base + 1, 0, {5})) == Counter::aggregate_drop_unexpected);
  CHECK(t.ending(back(1, base - 1, 0, {5})) == Counter::aggregate_drop_stale);
}

TEST_CASE("resumed async: a child switch does not know who of this switch's members is in it") {
  AsyncRig t({.second = wire::MemberKind::child_switch});
  CHECK(t.ending(back(1, base + 3, 0, {3}, 0b1)) == Counter::aggregate_handed_back);
  CHECK(t.ending(back(0, base + 2, 0, {2}, 0b1)) == Counter::aggregate_handed_back);
  const Result newest = t.only_result();
  CHECK(newest.fields.round == base + 3);
  CHECK(newest.fields.members == 0b11);  // if the sum waited for all: they know
  CHECK(newest.fields.flags == (settled | retransmit));
  // Up to what a worker here had, workers are asked alone.
  CHECK(t.order(datapath::Replay{0, base + 1, 1}).slot == SlotState::with_members);
  CHECK(t.ending(back(1, base + 1, 0, {1})) == Counter::aggregate_replayed);
  CHECK(t.only_result().fields.round == base + 3);
  CHECK(t.ending(back(0, base + 1, 0, {1}, 0b1)) == Counter::aggregate_handed_back);
  CHECK(t.only_result().fields.members == 0b1);
}

TEST_CASE("resumed async: nor can anybody tell where the sum was not complete") {
  AsyncRig t({.second = wire::MemberKind::child_switch});
  Down unfinished = back(1, base + 3, 0, {3}, 0);
  unfinished.flags = wire::flag::partial;
  t.send(unfinished);
  t.send(back(0, base + 2, 0, {2}, 0b1));
  const Result newest = t.only_result();
  CHECK(newest.fields.members == 0);
  CHECK(newest.fields.flags == (settled | retransmit | wire::flag::partial));
}

TEST_CASE("resumed async: bits go by ids, and one that is in doubt puts all of them in doubt") {
  AsyncRig t({.second = wire::MemberKind::child_switch, .id_in_doubt = true});
  t.send(back(0, base + 3, 0, {3}, 0b01));
  t.send(nothing(1));
  const Result newest = t.only_result();
  CHECK(newest.fields.members == 0b11);
  CHECK(newest.fields.flags == (settled | retransmit));
}

TEST_CASE("resumed async: a worker's word goes before a child switch's") {
  AsyncRig t({.second = wire::MemberKind::child_switch});
  CHECK(t.ending(back(1, base + 3, 0, {3}, 0b1)) == Counter::aggregate_handed_back);
  CHECK(t.ending(back(0, base + 3, 0, {3}, 0b11)) == Counter::aggregate_handed_back);
  const Result newest = t.only_result();
  CHECK(newest.fields.members == 0b11);
  CHECK(newest.fields.flags == settled);
}

TEST_CASE("resumed async: newer than what workers here had, anybody may have it") {
  AsyncRig t({.second = wire::MemberKind::child_switch});
  t.send(back(1, base + 3, 0, {3}, 0));
  t.send(nothing(0));
  CHECK(t.order(datapath::Replay{0, base + 2, 0}).slot == SlotState::elsewhere);
}

TEST_CASE("resumed async: a place that is filled anew or freed has nothing to hand back") {
  AsyncRig t;
  t.send(back(0, base + 1, 0, {1}, 0b11));
  CHECK(t.take_results().empty());
  SECTION("filled") {
    t.put(1, 1, wire::MemberKind::worker, 1, 8);
    const auto results = t.take_results();
    REQUIRE(results.size() == 1);
    CHECK(results[0].to == 0b11);
    CHECK(results[0].fields.members == 0b01);  // the other bit was its predecessor's
    // So it is in what comes later.
    t.send(back(0, base + 1, 1, {1}, 0b11));
    CHECK(t.only_result().fields.members == 0b01);
  }
  SECTION("freed") {
    t.order(datapath::DropMember{1});
    CHECK(t.only_result().to == 0b01);
  }
  SECTION("the same row again") {
    t.put(1);
    CHECK(t.take_results().empty());
  }
}

TEST_CASE("resumed async: the first push after a long way is believed") {
  AsyncRig t;
  constexpr std::uint32_t far = 1u << 21;
  t.send(back(0, base + far, 0, {1}));
  t.send(nothing(1));
  t.take_results();
  t.send(Part{.member = 0, .round = base + far + 1, .floats = {1}});
  t.send(Part{.member = 1, .round = base + far + far, .floats = {1}});
  CHECK(t.count(Counter::aggregate_added) == 1);
  CHECK(t.count(Counter::aggregate_drop_ahead) == 1);
}

TEST_CASE("resumed async child: the newest goes up, and the parent's answer settles") {
  const bool waited_for_all = GENERATE(false, true);
  AsyncRig t({.child = true, .waited_for_all = waited_for_all});
  t.send(back(0, base + 2, 0, {2}, 0b11));
  CHECK(t.take_ups().empty());
  t.send(back(1, base + 1, 0, {1}, 0b11));
  Up up = t.only_up();
  CHECK(up.header.type == wire::Type::result);
  CHECK(up.header.round == base + 2);
  CHECK(up.header.set == 0);
  CHECK(up.header.flags == 0);
  CHECK(up.floats == std::vector<float>{2});
  CHECK(t.take_results().empty());
  CHECK(t.ending(back(1, base + 1, 0, {1}, 0b11)) == Counter::aggregate_drop_duplicate);
  CHECK(t.only_up().header.round == base + 2);

  // What does not say so settles nothing.
  t.send(Down{.round = base + 5, .floats = {5}});
  CHECK(t.count(Counter::parent_drop_old) == 1);
  SECTION("its own newest") {
    t.send(Down{.round = base + 2, .floats = {2}, .members = 0, .flags = settled});
    const Result newest = t.only_result();
    CHECK(newest.fields.round == base + 2);
    CHECK(newest.fields.members == 0b11);
    CHECK(newest.fields.flags == settled);
  }
  SECTION("a newer one that this switch was in") {
    t.send(Down{.round = base + 4, .floats = {4}, .flags = settled});
    const Result newest = t.only_result();
    CHECK(newest.fields.round == base + 4);
    CHECK(newest.fields.members == 0b11);  // if this switch's sum waited for all
    CHECK(newest.fields.flags == (settled | retransmit));
    // Older ones: up to 2 they are the workers' to hand back, 3 may come from the parent.
    CHECK(t.order(datapath::Replay{0, base + 3, 0}).slot == SlotState::elsewhere);
    t.send(Down{.round = base + 3, .floats = {3}, .members = 0});
    const Result third = t.only_result();
    CHECK(third.fields.members == 0);
    CHECK(third.fields.flags == 0);  // the parent knows that nobody of here is in it
    // The parent asks for what is kept here.
    CHECK(t.order(datapath::SendUp{0, base + 2}).slot == SlotState::kept);
    CHECK(t.only_up().header.round == base + 2);
  }
  SECTION("one of which the parent does not know who is in it") {
    t.send(Down{.round = base + 4, .floats = {4}, .flags = settled | retransmit});
    CHECK(t.only_result().fields.members == (waited_for_all ? 0b11 : 0));
  }
  SECTION("one that was not complete") {
    t.send(Down{.round = base + 4, .floats = {4}, .flags = settled | wire::flag::partial});
    const Result newest = t.only_result();
    CHECK(newest.fields.members == 0);
    CHECK(newest.fields.flags == (settled | retransmit | wire::flag::partial));
  }
  SECTION("older ones of the workers do not come from the parent") {
    t.send(Down{.round = base + 3, .floats = {3}, .members = 0, .flags = settled});
    t.take_results();
    t.send(back(1, base + 3, 0, {3}));
    t.take_results();
    // 1 was handed back; make a hole of it by asking for another slot.
    t.send(back(0, base + 2, 1, {2}));
    t.send(nothing(1, 1));
    t.take_ups();
    t.send(Down{.round = base + 2, .segment = 1, .floats = {2}, .flags = settled});
    t.take_results();
    CHECK(t.order(datapath::Replay{1, base + 1, 0}).slot == SlotState::with_members);
    t.send(Down{.round = base + 1, .segment = 1, .floats = {1}});
    CHECK(t.take_results().empty());
  }
}

TEST_CASE("resumed async child: a push has the newest go up again, where nobody else repeats it") {
  AsyncRig t({.child = true});
  const auto push = [&] { return t.send(Part{.member = 0, .round = base + 4, .floats = {1}}); };
  t.send(back(0, base + 2, 0, {2}, 0b11));
  push();
  CHECK(t.take_ups().empty());  // the other one may have a newer one
  t.put(1, 1, wire::MemberKind::worker, 1, 8);
  CHECK(t.only_up().header.round == base + 2);
  push();
  CHECK(t.count(Counter::aggregate_drop_unsettled) == 2);
  const Up up = t.only_up();
  CHECK(up.header.type == wire::Type::result);
  CHECK(up.header.round == base + 2);
  CHECK(up.floats == std::vector<float>{2});
}

TEST_CASE("resumed async child: no update at all") {
  AsyncRig t({.child = true});
  t.send(nothing(0));
  t.send(nothing(1));
  const Up up = t.only_up();
  CHECK(up.header.round == base);
  CHECK(up.header.set == 0);
  CHECK(up.header.member == 0);
  CHECK(up.floats.empty());
  Down none{.round = base, .members = 0, .workers = 0, .flags = settled};
  t.send(none);
  CHECK(t.only_result().fields.round == base);
  // Its pushes to the parent start after base_round; the answer to the first acknowledges.
  for (MemberId m = 0; m < 2; ++m) t.send(Part{.member = m, .round = base + 1, .floats = {1}});
  CHECK(t.only_up().header.round == base + 1);
  t.send(Down{.round = base + 1, .floats = {2}});
  CHECK(t.only_result().fields.members == 0b11);
}
