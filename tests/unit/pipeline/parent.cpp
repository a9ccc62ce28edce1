// A child switch's synchronous job, protocol.md section 4: sums go up, results come down.
#include <catch2/catch.hpp>

#include "tests/unit/pipeline/rig.h"
#include "wire/bytes.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

constexpr std::uint32_t base = 0xFFFF'FFFE;  // rounds wrap in the third round already

struct Child : Rig {
  explicit Child(unsigned members = 2, std::uint16_t history = 1, RigConfig config = {})
      : Rig(config) {
    datapath::JobSpec spec = small_job();
    spec.history = history;
    make_child(spec, members, base);
  }
  /// The sum of a whole round goes up.
  Up sum_up(std::uint32_t round, unsigned members = 2) {
    for (unsigned m = 0; m < members; ++m)
      send(Part{.member = static_cast<MemberId>(m), .round = round, .floats = {1}});
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

TEST_CASE("child: a complete sum goes up as one contribution, and the slot waits") {
  Child t(3);
  t.send(Part{.member = 0, .round = base, .segment = 2, .floats = {1, 2}, .tag = 77});
  t.send(Part{.member = 1, .round = base, .segment = 2, .floats = {10, 20}, .tag = 77});
  CHECK(t.take_ups().empty());
  t.send(Part{.member = 2, .round = base, .segment = 2, .floats = {100, 200}, .tag = 77});
  CHECK(t.take_results().empty());
  const auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  const Up& up = ups[0];
  CHECK(up.floats == std::vector<float>{111, 222});
  CHECK(t.sink.up_ports == std::vector<PortId>{parent_port});

  // A whole right frame, at the parent.
  const wire::Endpoint to = parent_endpoint();
  wire::Packet packet;
  const auto parsed =
      wire::parse_frame({.ip = to.ip, .udp_port = to.udp_port, .ports = 3}, up.frame, {}, packet);
  CHECK(parsed.origin == wire::Origin::ours);
  CHECK(parsed.fault == wire::Fault::none);
  const wire::Header& header = packet.message.header;
  CHECK(header.type == wire::Type::contribution);
  CHECK(header.flags == 0);
  CHECK(header.job == 1);
  CHECK(header.member == id_at_parent);
  CHECK(header.round == base);
  CHECK(header.segment == 2);
  CHECK(header.operation_tag() == 77);
  CHECK(header.workers() == 3);
  CHECK(packet.message.payload.size() == 8);
  CHECK(packet.source == wire::Endpoint{switch_mac, switch_ip, wire::default_udp_port});
  CHECK(packet.destination_mac == to.mac);
  CHECK(packet.destination_port == to.udp_port + 2);  // segment mod the parent's 3 shards
  CHECK(packet.ecn == wire::Ecn::ect0);
  CHECK(wire::load_be16(up.frame.data() + 40) != 0);

  const auto listed = t.order(datapath::ListSlots{10}).open;
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].waiting);
  CHECK(listed[0].round == base);
  CHECK(listed[0].workers == 3);
  CHECK(listed[0].members == 0b111);
  CHECK(listed[0].missing == 0);
  CHECK(t.count(Counter::aggregate_completed) == 1);
  CHECK(t.count(Counter::deliver_up) == 1);
  CHECK(t.job_count(JobCounter::sums_up) == 1);
  CHECK(t.job_count(JobCounter::results) == 0);
  CHECK(t.pool.in_use() == 1);
}

TEST_CASE("child: without UDP checksums none is sent, up or down") {
  Rig t;
  datapath::JobSpec spec = small_job();
  spec.udp_checksum = false;
  t.make_child(spec, 1);
  t.send(Part{.member = 0, .floats = {3}});
  const auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(wire::load_be16(ups[0].frame.data() + 40) == 0);
  t.send(Down{.round = 0, .floats = {3}});
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(wire::load_be16(results[0].frames.at(0).data() + 40) == 0);
}

TEST_CASE("child: an empty sum goes up empty and needs no buffer") {
  Child t;
  for (MemberId m = 0; m < 2; ++m) t.send(Part{.member = m, .round = base});
  const auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].floats.empty());
  CHECK(ups[0].header.workers() == 2);
  CHECK(t.pool.in_use() == 0);
  t.send(Down{.round = base});
  CHECK(t.only_result().floats.empty());
  CHECK(t.pool.in_use() == 0);
}

TEST_CASE("child: PARTIAL, ECN-ECHO and worker counts of grandchildren are carried up") {
  Child t;
  t.put(1, 1, wire::MemberKind::child_switch);
  const auto up_of = [&](std::uint32_t round, Part own, Part grandchild) {
    own.member = 0;
    grandchild.member = 1;
    grandchild.workers = 20;
    own.round = grandchild.round = round;
    t.send({own, grandchild});
    const auto ups = t.take_ups();
    REQUIRE(ups.size() == 1);
    CHECK(ups[0].header.workers() == 21);
    t.send(Down{.round = round});
    t.take_results();
    return ups[0].header.flags;
  };
  CHECK(up_of(base, {}, {}) == 0);
  CHECK(up_of(base + 1, {}, {.flags = wire::flag::partial}) == wire::flag::partial);
  CHECK(up_of(base + 2, {.flags = wire::flag::partial}, {}) == 0);  // a worker has no partial sums
  CHECK(up_of(base + 3, {.ecn = wire::Ecn::ce}, {}) == wire::flag::ecn_echo);
  CHECK(up_of(base + 4, {}, {.flags = wire::flag::ecn_echo}) == wire::flag::ecn_echo);
  CHECK(up_of(base + 5, {.flags = wire::flag::retransmit}, {}) == 0);
}

TEST_CASE("row: waiting, m in it: duplicate; with RETRANSMIT the sum goes up again, the same") {
  Child t;
  const Up first = t.sum_up(base);
  t.send(Part{.member = 1, .round = base, .floats = {1}});
  CHECK(t.take_ups().empty());
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 1);
  t.send(Part{.member = 1, .round = base, .floats = {1}, .flags = wire::flag::retransmit});
  const auto again = t.take_ups();
  REQUIRE(again.size() == 1);
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 2);
  CHECK(t.count(Counter::deliver_up) == 1);
  CHECK(t.count(Counter::deliver_up_again) == 1);
  CHECK(again[0].header.flags == wire::flag::retransmit);
  CHECK(again[0].floats == first.floats);
  wire::Header but_for_the_flag = again[0].header;
  but_for_the_flag.flags = 0;
  CHECK(but_for_the_flag == first.header);
  wire::Packet packet;
  const wire::Endpoint to = parent_endpoint();
  CHECK(wire::parse_frame({.ip = to.ip, .udp_port = to.udp_port, .ports = 3}, again[0].frame, {},
                          packet)
            .fault == wire::Fault::none);
  CHECK(t.take_results().empty());
}

TEST_CASE("row: waiting, m not in it: late; with RETRANSMIT the sum goes up again") {
  Child t(3);
  t.order(datapath::SetThreshold{2});
  t.sum_up(base);
  t.send(Part{.member = 2, .round = base, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_late) == 1);
  CHECK(t.take_ups().empty());
  t.send(Part{.member = 2, .round = base, .floats = {1}, .flags = wire::flag::retransmit});
  CHECK(t.count(Counter::aggregate_drop_late) == 2);
  CHECK(t.take_ups().size() == 1);
  // Neither tag nor length is looked at: the parent's result will reach it like everyone.
  t.send(Part{.member = 2, .round = base, .floats = {1, 2}, .tag = 8});
  CHECK(t.count(Counter::aggregate_drop_late) == 3);
  t.send(Part{.member = 2, .round = base + 1, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_ahead) == 1);
  CHECK(t.job_count(JobCounter::late) == 3);
  t.send(Down{.round = base, .floats = {4}});
  CHECK(t.only_result().to == 0b111);
}

TEST_CASE("child: the parent's result becomes the last and goes to all, bit for bit") {
  Child t;
  t.sum_up(base);
  const float nan = std::bit_cast<float>(0x7FA0'0001u);  // no sum of ours, and yet carried as it is
  t.send(Down{.round = base,
              .floats = {nan, -0.0f, 5},
              .members = bit_at_parent | 1,
              .workers = 1234,
              .flags = wire::flag::partial});
  const Result r = t.only_result();
  CHECK(r.to == 0b11);
  CHECK(bits(r.floats) == std::vector<std::uint32_t>{0x7FA0'0001, 0x8000'0000, 0x40A0'0000});
  CHECK(r.fields.workers == 1234);
  CHECK(r.fields.members == 0b11);  // the sum's members, as the parent has this switch
  CHECK(r.fields.flags == wire::flag::partial);
  CHECK(r.fields.round == base);
  for (MemberId m = 0; m < 2; ++m) {
    const wire::Endpoint to = endpoint_of(m);
    wire::Packet packet;
    CHECK(wire::parse_frame({.ip = to.ip, .udp_port = to.udp_port}, r.frames.at(m), {}, packet)
              .fault == wire::Fault::none);
    CHECK(packet.source == wire::Endpoint{switch_mac, switch_ip, wire::default_udp_port});
  }
  CHECK(t.count(Counter::parent_taken) == 1);
  CHECK(t.job_count(JobCounter::results) == 1);
  CHECK(t.order(datapath::ListSlots{10}).open.empty());
  CHECK(t.pool.in_use() == 1);

  // It is kept as any result.
  t.send(Part{.member = 1, .round = base, .floats = {1}});
  CHECK(t.only_result().frames.at(1) == r.frames.at(1));
  t.send(Part{.member = 1, .round = base, .floats = {1}, .tag = 8});
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 1);
  // And a copy of it is dropped.
  t.send(Down{.round = base, .floats = {9}});
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::parent_drop_again) == 1);
  // The next round.
  CHECK(t.sum_up(base + 1).header.round == base + 1);
}

TEST_CASE("child: Congestion Experienced on a result is told to the members, and back up once") {
  Child t;
  t.sum_up(base);
  t.send(Down{.round = base, .floats = {1}, .ecn = wire::Ecn::ce});
  CHECK(t.only_result().fields.flags == wire::flag::ecn_echo);
  CHECK(t.sum_up(base + 1).header.flags == wire::flag::ecn_echo);
  t.send(Down{.round = base + 1, .floats = {1}, .flags = wire::flag::ecn_echo});
  CHECK(t.only_result().fields.flags == wire::flag::ecn_echo);
  CHECK(t.sum_up(base + 2).header.flags == 0);  // ECN-ECHO is known above already
  t.send(Down{.round = base + 2, .floats = {1}, .flags = wire::flag::retransmit});
  CHECK(t.only_result().fields.flags == 0);
}

TEST_CASE("child: a result without this switch closes the waiting sum; the bitmap is empty") {
  Child t;
  t.sum_up(base);
  t.send(Down{.round = base, .floats = {8}, .members = 0b11});
  const Result r = t.only_result();
  CHECK(r.fields.members == 0);
  CHECK(r.to == 0b11);
  CHECK(t.pool.in_use() == 1);
  CHECK(t.sum_up(base + 1).header.round == base + 1);
}

TEST_CASE("child: a result closes an open sum that is not complete") {
  Child t;
  t.send(Part{.member = 0, .round = base, .floats = {1}});
  t.send(Down{.round = base, .floats = {8}});
  const Result r = t.only_result();
  CHECK(r.fields.members == 0);  // nothing of ours went up
  CHECK(r.floats == std::vector<float>{8});
  CHECK(t.pool.in_use() == 1);
  CHECK(t.order(datapath::ListSlots{10}).open.empty());
}

TEST_CASE("child: a result rounds ahead closes what is older; the hole is filled later") {
  Child t(2, 4);
  t.sum_up(base);
  t.send(Down{.round = base + 2, .floats = {3}});
  Result r = t.only_result();
  CHECK(r.fields.round == base + 2);
  CHECK(r.fields.members == 0);  // the waiting sum was of another round
  CHECK(t.pool.in_use() == 1);
  // What is not kept is stale: the parent is asked for it.
  t.send(Part{.member = 1, .round = base, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_stale) == 1);
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::gone);
  CHECK(notices[0].round == base);
  CHECK(t.order(datapath::Replay{0, base, 1}).slot == SlotState::gone);
  CHECK(t.order(datapath::Replay{0, base + 1, 1}).slot == SlotState::gone);
  CHECK(t.order(datapath::Replay{0, base + 2, 1}).slot == SlotState::kept);
  t.take_results();

  t.send(Down{.round = base, .floats = {1}});
  r = t.only_result();
  CHECK(r.fields.round == base);
  CHECK(r.to == 0b11);
  CHECK(r.fields.members == 0);
  CHECK(t.order(datapath::Replay{0, base, 1}).slot == SlotState::kept);
  CHECK(t.order(datapath::Replay{0, base + 1, 1}).slot == SlotState::gone);
  CHECK(t.order(datapath::Replay{0, base + 2, 1}).slot == SlotState::kept);
  t.send(Down{.round = base, .floats = {1}});
  CHECK(t.count(Counter::parent_drop_again) == 1);
  CHECK(t.sum_up(base + 3).header.round == base + 3);
  // A jump past the whole history leaves one result.
  t.take_results();
  t.send(Down{.round = base + 100, .floats = {7}});
  CHECK(t.pool.in_use() == 1);
  CHECK(t.order(datapath::Replay{0, base + 2, 1}).slot == SlotState::gone);
  CHECK(t.order(datapath::Replay{0, base + 100, 1}).slot == SlotState::kept);
  t.send(Down{.round = base + 96, .floats = {7}});  // not within the history
  CHECK(t.count(Counter::parent_drop_old) == 1);
  t.send(Down{.round = base + 97, .floats = {7}});
  CHECK(t.count(Counter::parent_taken) == 4);
}

TEST_CASE("child: results from before the base round are dropped, however long the history") {
  Child t(2, 8);
  t.send(Down{.round = base - 1, .floats = {1}});
  t.send(Down{.round = base - 3, .floats = {1}});
  CHECK(t.count(Counter::parent_drop_old) == 2);
  t.send(Down{.round = base + 1, .floats = {1}});
  t.send(Down{.round = base - 1, .floats = {1}});
  CHECK(t.count(Counter::parent_drop_old) == 3);
  CHECK(t.count(Counter::parent_taken) == 1);
  t.send(Down{.round = base, .floats = {1}});  // a hole of this job
  CHECK(t.count(Counter::parent_taken) == 2);
  t.send(Down{.round = base + 1 + 0x8000'0000u, .floats = {1}});  // 2^31 away counts as older
  CHECK(t.count(Counter::parent_drop_old) == 4);
}

TEST_CASE("child: a kept result of an unknown operation: the parent compares") {
  Child t(3, 4);
  t.send(Part{.member = 0, .round = base, .floats = {1}});
  t.send(Down{.round = base, .floats = {8}, .members = 0b11, .workers = 2});
  t.take_results();
  // Not answered here, whatever the tag; an empty contribution goes up with it.
  t.send(Part{.member = 1, .round = base, .floats = {1, 2}, .tag = 7});
  t.send(Part{.member = 2, .round = base, .floats = {1}, .tag = 9});
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::aggregate_passed_up) == 2);
  CHECK(t.job_count(JobCounter::passed_up) == 2);
  const auto ups = t.take_ups();
  REQUIRE(ups.size() == 2);
  for (unsigned i = 0; i < 2; ++i) {
    CHECK(ups[i].header.round == base);
    CHECK(ups[i].header.member == id_at_parent);
    CHECK(ups[i].header.operation_tag() == 7 + 2 * i);
    CHECK(ups[i].header.workers() == 1);
    CHECK(ups[i].header.flags == wire::flag::retransmit);
    CHECK(ups[i].floats.empty());
  }
  // The parent's answer goes to those who asked, as often as they ask.
  t.send(Down{.round = base, .floats = {8}, .members = 0b11, .workers = 2});
  Result r = t.only_result();
  CHECK(r.to == 0b110);
  CHECK(r.floats == std::vector<float>{8});
  CHECK(t.count(Counter::parent_answered) == 1);
  t.send(Down{.round = base, .floats = {8}, .members = 0b11, .workers = 2});
  CHECK(t.count(Counter::parent_drop_again) == 1);
  CHECK(t.take_results().empty());
  t.send(Part{.member = 1, .round = base, .floats = {1}});
  CHECK(t.take_ups().size() == 1);
  // Help has no tag to compare.
  CHECK(t.order(datapath::Replay{0, base, 1}).slot == SlotState::kept);
  CHECK(t.only_result().to == 0b010);
  // Who asked before a Reset is not answered after it.
  t.order(datapath::Stop{});
  t.order(datapath::Start{base});
  t.send(Down{.round = base, .floats = {8}, .members = 0b11});
  t.take_results();
  t.send(Down{.round = base, .floats = {8}, .members = 0b11});
  CHECK(t.take_results().empty());
}

TEST_CASE("child: who asked about an earlier round is not answered with a later one's copy") {
  Child t(2, 2);
  const auto foreign = [&](std::uint32_t round) {
    t.send(Down{.round = round, .floats = {8}, .members = 0b11});
    t.take_results();
  };
  foreign(base);
  t.send(Part{.member = 1, .round = base, .floats = {1}});
  CHECK(t.count(Counter::aggregate_passed_up) == 1);
  foreign(base + 1);
  foreign(base + 2);  // base has left the ring, its place is used again
  t.send(Down{.round = base + 2, .floats = {8}, .members = 0b11});
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::parent_drop_again) == 1);
}

TEST_CASE("child: results are refused from everybody else, and in no right shape") {
  Rig t({.shards = 2, .shard = 1});
  datapath::JobSpec spec = small_job();
  t.make_child(spec, 1, 5);
  spec.id = 2;
  t.make_job(spec, 1, 5);
  const auto ends_in = [&](const Down& down, Counter counter) {
    const auto before = t.count(counter);
    t.send(down);
    CHECK(t.take_results().empty());
    return t.count(counter) == before + 1;
  };
  const Down right{.round = 5, .segment = 1, .floats = {1}};
  const auto changed = [&](auto change) {
    Down down = right;
    change(down);
    return down;
  };
  CHECK(ends_in(changed([](Down& d) { d.job = 2; }), Counter::classify_drop_result));
  CHECK(ends_in(changed([](Down& d) { d.job = 3; }), Counter::classify_drop_result));
  const auto source = Counter::classify_drop_result_source;
  CHECK(ends_in(changed([](Down& d) { d.ingress = PortId{51}; }), source));
  CHECK(ends_in(changed([](Down& d) {
                  d.source = parent_endpoint();
                  ++d.source->ip.value;
                }),
                source));
  CHECK(ends_in(changed([](Down& d) {
                  d.source = parent_endpoint();
                  ++d.source->udp_port;  // another shard's: results come from base
                }),
                source));
  CHECK(ends_in(changed([](Down& d) {
                  d.source = endpoint_of(0);
                  d.ingress = port_of(0);
                }),
                source));
  const auto malformed = Counter::classify_drop_result_malformed;
  CHECK(ends_in(changed([](Down& d) { d.udp_port = wire::default_udp_port; }), malformed));
  CHECK(ends_in(changed([](Down& d) { d.segment = 2; }), malformed));
  CHECK(ends_in(changed([](Down& d) { d.segment = 5; }), malformed));  // of 4
  CHECK(ends_in(changed([](Down& d) { d.flags = 1; }), malformed));    // float16
  CHECK(ends_in(changed([](Down& d) { d.floats.resize(17); }), malformed));
  CHECK(ends_in(changed([](Down& d) { d.workers = 0; }), malformed));
  // Strangers are told that they are: they may be members of the switch's last life.
  for (const Notice& notice : t.take_notices()) {
    CHECK(notice.kind == Notice::Kind::not_a_member);
    CHECK(notice.member == wire::no_member);
  }
  t.order(datapath::Stop{});
  CHECK(ends_in(right, Counter::classify_drop_result_stopped));
  t.order(datapath::Start{5});
  CHECK(t.job_count(JobCounter::parent_refused) == 11);
  t.order(datapath::SetHalted{true});  // a Halt loses nothing
  t.send(right);
  CHECK(t.count(Counter::parent_taken) == 1);
  CHECK(t.take_results().size() == 1);
  // The parent's MAC is not looked at.
  Down moved = right;
  moved.round = 6;
  moved.source = parent_endpoint();
  moved.source->mac = {{2, 1, 1, 1, 1, 1}};
  t.send(moved);
  CHECK(t.count(Counter::parent_taken) == 2);
}

TEST_CASE("child: no buffer for a result: dropped, counted, and taken when it comes again") {
  Child t(2, 1, {.buffers = 1});
  t.sum_up(base);
  t.send(Down{.round = base, .floats = {2}});
  CHECK(t.count(Counter::parent_drop_no_buffer) == 1);
  CHECK(t.job_count(JobCounter::parent_refused) == 1);
  CHECK(t.take_results().empty());
  CHECK(t.order(datapath::Force{0, base}).slot == SlotState::waiting);
  t.pool.set_capacity(2);
  t.send(Part{.member = 0, .round = base, .floats = {1}, .flags = wire::flag::retransmit});
  CHECK(t.take_ups().size() == 1);
  t.send(Down{.round = base, .floats = {2}});
  CHECK(t.only_result().fields.members == 0b11);
}

TEST_CASE("child: orders while a sum waits") {
  Child t(3);
  t.order(datapath::SetThreshold{2});
  t.sum_up(base);
  CHECK(t.order(datapath::Force{0, base}).slot == SlotState::waiting);
  CHECK(t.order(datapath::Force{0, base + 1}).slot == SlotState::none);
  CHECK(t.order(datapath::Force{0, base - 1}).slot == SlotState::gone);
  const auto helped = t.order(datapath::Replay{0, base, 1});
  CHECK(helped.slot == SlotState::waiting);
  CHECK(helped.missing == 0);
  CHECK(t.take_ups().empty());
  CHECK(t.order(datapath::SendUp{0, base}).slot == SlotState::waiting);
  auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.flags == wire::flag::retransmit);
  CHECK(t.order(datapath::SendUp{0, base + 1}).slot == SlotState::none);
  CHECK(t.order(datapath::SendUp{4, base}).slot == SlotState::none);
  CHECK(t.take_ups().empty());
  t.order(datapath::DropMember{2});
  t.order(datapath::DropMember{1});
  CHECK(t.take_ups().empty());  // it has gone up already
  CHECK(t.pool.in_use() == 1);
  CHECK(t.order(datapath::Stop{}).highest_round == base);
  CHECK(t.pool.in_use() == 0);
  CHECK(t.take_results().empty());
}

TEST_CASE("child: Force and age send an open sum up as PARTIAL; a waiting one is left alone") {
  Rig t;
  datapath::JobSpec spec = small_job();
  spec.force_after = 10 * millisecond;
  t.make_child(spec, 3);
  t.send({Part{.member = 0, .floats = {1}}, Part{.member = 0, .segment = 1, .floats = {5}}});
  const auto forced = t.order(datapath::Force{0, 0});
  CHECK(forced.slot == SlotState::open);
  CHECK(forced.missing == 0b110);
  auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.flags == wire::flag::partial);
  CHECK(ups[0].header.workers() == 1);
  CHECK(t.take_results().empty());
  t.now += 10 * millisecond;
  for (int i = 0; i < 3; ++i) t.housekeep();
  ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.segment == 1);
  CHECK(ups[0].header.flags == wire::flag::partial);
  CHECK(t.count(Counter::aggregate_forced) == 2);
  // Unchanged but for RETRANSMIT.
  t.send(Part{.member = 2, .segment = 1, .flags = wire::flag::retransmit});
  ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.flags == (wire::flag::partial | wire::flag::retransmit));
}

TEST_CASE("child: DropMember sends up what is complete without it") {
  Child t(3);
  t.send({Part{.member = 0, .round = base, .floats = {1}},
          Part{.member = 2, .round = base, .floats = {2}}});
  t.order(datapath::DropMember{1});
  const auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].floats == std::vector<float>{3});
  CHECK(ups[0].header.flags == 0);
  CHECK(t.take_results().empty());
  t.order(datapath::DropMember{0});
  t.order(datapath::DropMember{2});
  t.send(Down{.round = base, .floats = {3}});  // nobody is left to tell
  CHECK(t.count(Counter::parent_taken) == 1);
  CHECK(t.take_results().empty());
}

TEST_CASE("child: PutParent") {
  Rig t;
  datapath::JobSpec spec = small_job();
  t.make_job(spec, 1);
  CHECK_FALSE(t.order(datapath::PutParent{parent_spec()}).ok);  // no child
  spec.id = 2;
  spec.child = true;
  CHECK(t.order(datapath::Install{spec}, 2).ok);
  CHECK_FALSE(t.order(datapath::Start{0}, 2).ok);  // no parent yet
  datapath::ParentSpec parent = parent_spec();
  parent.member = 64;
  CHECK_FALSE(t.order(datapath::PutParent{parent}, 2).ok);
  parent = parent_spec();
  parent.port = 64;
  CHECK_FALSE(t.order(datapath::PutParent{parent}, 2).ok);
  parent = parent_spec();
  CHECK(t.order(datapath::PutParent{parent}, 2).ok);
  t.put(0, 2);
  CHECK(t.order(datapath::Start{0}, 2).ok);
  t.send(Part{.member = 0, .segment = 3, .floats = {1}, .job = 2});
  t.take_ups();
  // The same place at another address: at any time, also with a sum waiting.
  parent.endpoint.mac = {{2, 3, 3, 3, 3, 3}};
  parent.endpoint.udp_port = 30000;
  parent.port = 51;
  CHECK(t.order(datapath::PutParent{parent}, 2).ok);
  t.send(Part{.member = 0, .segment = 3, .floats = {1}, .job = 2, .flags = wire::flag::retransmit});
  auto ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(t.sink.up_ports.back() == 51);
  CHECK(std::equal(parent.endpoint.mac.bytes.begin(), parent.endpoint.mac.bytes.end(),
                   ups[0].frame.begin()));
  CHECK(wire::load_be16(ups[0].frame.data() + 36) == 30000);
  Down down{.round = 0, .segment = 3, .job = 2};
  t.send(down);
  CHECK(t.count(Counter::classify_drop_result_source) == 1);
  down.source = parent.endpoint;
  down.ingress = PortId{51};
  t.send(down);
  CHECK(t.count(Counter::parent_taken) == 1);
  // Another place: only while nothing of the old one is on its way.
  parent.member = 6;
  CHECK_FALSE(t.order(datapath::PutParent{parent}, 2).ok);
  parent.member = id_at_parent;
  ++parent.incarnation;
  CHECK_FALSE(t.order(datapath::PutParent{parent}, 2).ok);
  t.order(datapath::Stop{}, 2);
  parent.member = 6;
  CHECK(t.order(datapath::PutParent{parent}, 2).ok);
  CHECK(t.order(datapath::Start{100}, 2).ok);
  t.take_results();
  t.send(Part{.member = 0, .round = 100, .floats = {1}, .job = 2});
  ups = t.take_ups();
  REQUIRE(ups.size() == 1);
  CHECK(ups[0].header.member == 6);
}

TEST_CASE("child: a sum and its result in a burst, and sums queued in the transmit queue") {
  Child t;
  t.sink.queueing = true;
  for (std::uint32_t r = 0; r < 40; ++r) {
    const auto value = static_cast<float>(r);
    t.run({{make_frame(Down{.round = base + r - 1, .floats = {2 * value - 2}}), parent_port},
           {make_frame(Part{.member = 0, .round = base + r, .floats = {value}}), port_of(0)},
           {make_frame(Part{.member = 1, .round = base + r, .floats = {value}}), port_of(1)}});
    const auto ups = t.take_ups();
    REQUIRE(ups.size() == 1);
    CHECK(ups[0].floats == std::vector<float>{2 * value});
    CHECK(t.take_results().size() == (r == 0 ? 0 : 1));
  }
  t.end_pipeline();
  t.sink.drain();
}

TEST_CASE("child: more frames than one for each of a burst's leave it") {
  Child t(1);
  // A result and a contribution a slot and round: 32 results, 32 sums up.
  std::vector<Rig::Sent> burst;
  for (std::uint32_t r = 0; r < 32; ++r)
    burst.emplace_back(make_frame(Down{.round = base + r, .floats = {1}}), parent_port);
  for (std::uint32_t r = 0; r < 32; ++r)
    burst.emplace_back(
        make_frame(
            Part{.member = 0, .round = base + 32, .floats = {1}, .flags = wire::flag::retransmit}),
        port_of(0));
  t.run(burst);
  CHECK(t.take_results().size() == 32);
  CHECK(t.take_ups().size() == 32);
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 31);
}

TEST_CASE("ARP replies of the parent make a notice and end where they did") {
  const auto reply = [](wire::Mac to, wire::Ipv4 from, wire::Mac mac, std::uint8_t operation = 2) {
    FrameBytes frame(60);
    std::copy(to.bytes.begin(), to.bytes.end(), frame.begin());
    std::copy(mac.bytes.begin(), mac.bytes.end(), frame.begin() + 6);
    if (mac.is_group() || mac == wire::Mac{}) frame[6] = 2;
    const std::array<std::uint8_t, 10> start{8, 6, 0, 1, 8, 0, 6, 4, 0, operation};
    std::copy(start.begin(), start.end(), frame.begin() + 12);
    std::copy(mac.bytes.begin(), mac.bytes.end(), frame.begin() + 22);
    wire::store_be32(frame.data() + 28, from.value);
    wire::store_be32(frame.data() + 38, switch_ip.value);
    return frame;
  };
  const wire::Endpoint parent = parent_endpoint();
  Rig t({.parent = parent.ip});
  t.run({{reply(switch_mac, parent.ip, parent.mac), 7}});
  auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::parent_address);
  CHECK(notices[0].source.mac == parent.mac);
  CHECK(notices[0].source.ip == parent.ip);
  CHECK(notices[0].ingress == 7);
  CHECK(t.count(Counter::l2_drop_to_self) == 1);
  // At most one a millisecond.
  t.now += millisecond - 1;
  t.run({{reply(switch_mac, parent.ip, parent.mac), 7}});
  CHECK(t.take_notices().empty());
  t.now += 1;
  t.run({{reply(switch_mac, parent.ip, parent.mac), 7},
         {reply(switch_mac, parent.ip, parent.mac), 7}});
  CHECK(t.take_notices().size() == 1);
  CHECK(t.count(Counter::notice_coalesced) == 2);
  // Nothing else does.
  t.now += second;
  t.run({{reply(switch_mac, endpoint_of(1).ip, parent.mac), 7},
         {reply(endpoint_of(1).mac, parent.ip, parent.mac), 7},
         {reply(switch_mac, parent.ip, parent.mac, 1), 7},
         {reply(switch_mac, parent.ip, switch_mac), 7},
         {reply(switch_mac, parent.ip, wire::Mac{}), 7},
         {reply(switch_mac, parent.ip, wire::Mac{{3, 0, 0, 0, 0, 1}}), 7}});
  FrameBytes cut = reply(switch_mac, parent.ip, parent.mac);
  cut.resize(41);
  t.run({{cut, 7}});
  CHECK(t.take_notices().empty());
  Rig none;
  none.run({{reply(switch_mac, parent.ip, parent.mac), 7},
            {reply(switch_mac, wire::Ipv4{}, parent.mac), 7}});
  CHECK(none.take_notices().empty());
}
