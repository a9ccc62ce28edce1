// protocol.md section 4, row by row, for a slot of a synchronous job at a root.
#include <catch2/catch.hpp>
#include <limits>

#include "tests/unit/pipeline/rig.h"
#include "wire/bytes.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

constexpr std::uint32_t base = 0xFFFF'FFFE;  // rounds wrap in the third round already

struct Table : Rig {
  explicit Table(unsigned members = 2, std::uint16_t history = 1) {
    datapath::JobSpec spec = small_job();
    spec.history = history;
    make_job(spec, members, base);
  }
  /// A whole round with `members` members.
  void complete_round(std::uint32_t round, unsigned members = 2, float value = 1) {
    for (unsigned m = 0; m < members; ++m)
      send(Part{.member = static_cast<MemberId>(m), .round = round, .floats = {value}});
  }
};

}  // namespace

TEST_CASE("row: no open sum, next round: opens a sum and waits for the rest") {
  Table t;
  t.send(Part{.member = 0, .round = base, .floats = {1, 2}});
  CHECK(t.count(Counter::aggregate_added) == 1);
  CHECK(t.count(Counter::aggregate_opened) == 1);
  CHECK(t.take_results().empty());
  const auto listed = t.order(datapath::ListSlots{10}).open;
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].segment == 0);
  CHECK(listed[0].round == base);
  CHECK(listed[0].members == 0b01);
  CHECK(listed[0].missing == 0b10);
  CHECK(listed[0].workers == 1);
  CHECK(listed[0].bytes == 8);
}

TEST_CASE("row: open, same round: adds; complete: the result goes to every member") {
  Table t(3);
  t.send(Part{.member = 2, .round = base, .segment = 3, .floats = {1, 2}});
  t.send(Part{.member = 0, .round = base, .segment = 3, .floats = {10, 20}});
  CHECK(t.take_results().empty());
  t.send(Part{.member = 1, .round = base, .segment = 3, .floats = {100, 200}});
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  const Result& r = results[0];
  CHECK(r.to == 0b111);
  CHECK(r.floats == std::vector<float>{111, 222});
  CHECK(r.fields.job == 1);
  CHECK(r.fields.round == base);
  CHECK(r.fields.segment == 3);
  CHECK(r.fields.workers == 3);
  CHECK(r.fields.members == 0b111);
  CHECK(r.fields.flags == 0);
  CHECK(t.count(Counter::aggregate_completed) == 1);
  CHECK(t.count(Counter::deliver_results) == 1);
  CHECK(t.count(Counter::deliver_copies) == 3);

  // Each copy is a right frame for its member.
  for (MemberId m = 0; m < 3; ++m) {
    const FrameBytes& bytes = r.frames.at(m);
    const wire::Endpoint to = endpoint_of(m);
    wire::Packet packet;
    const auto parsed =
        wire::parse_frame({.ip = to.ip, .udp_port = to.udp_port}, bytes, {}, packet);
    CHECK(parsed.origin == wire::Origin::ours);
    CHECK(parsed.fault == wire::Fault::none);
    CHECK(packet.message.header.type == wire::Type::result);
    CHECK(packet.message.header.member == 3);
    CHECK(packet.message.header.set == 0b111);
    CHECK(packet.source.ip == switch_ip);
    CHECK(packet.source.mac == switch_mac);
    CHECK(packet.source.udp_port == wire::default_udp_port);
    CHECK(packet.destination_mac == to.mac);
    CHECK(packet.ecn == wire::Ecn::ect0);
    CHECK(wire::load_be16(bytes.data() + 40) != 0);  // checksums are on
  }
}

TEST_CASE("row: open, member in it already: duplicate, added once") {
  Table t;
  t.send({Part{.member = 0, .round = base, .floats = {1}},
          Part{.member = 0, .round = base, .floats = {1}},
          Part{.member = 0, .round = base, .floats = {5}}});
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 2);
  t.send(Part{.member = 1, .round = base, .floats = {2}});
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{3});
  CHECK(t.job_count(JobCounter::duplicates) == 2);
}

TEST_CASE("row: a duplicate comes before a mismatch") {
  Table t;
  t.send({Part{.member = 0, .round = base, .floats = {1}},
          Part{.member = 0, .round = base, .floats = {1, 2}, .tag = 8}});
  CHECK(t.count(Counter::aggregate_drop_duplicate) == 1);
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 0);
}

TEST_CASE("row: open, another length, neither empty: mismatch, told to all concerned") {
  Table t(3);
  t.send({Part{.member = 0, .round = base, .segment = 2, .floats = {1, 2}},
          Part{.member = 1, .round = base, .segment = 2, .floats = {1, 2}}});
  t.send(Part{.member = 2, .round = base, .segment = 2, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 1);
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::mismatch);
  CHECK(notices[0].job == 1);
  CHECK(notices[0].member == 2);
  CHECK(notices[0].others == 0b011);
  CHECK(notices[0].segment == 2);
  CHECK(notices[0].round == base);
  // The right one still completes the sum.
  t.send(Part{.member = 2, .round = base, .segment = 2, .floats = {1, 2}});
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{3, 6});
}

TEST_CASE("row: open, another operation tag: mismatch, empty or not") {
  Table t(3);
  t.send(Part{.member = 0, .round = base, .floats = {1}, .tag = 7});
  t.send(Part{.member = 1, .round = base, .floats = {1}, .tag = 8});
  t.send(Part{.member = 1, .round = base, .tag = 8});
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 2);
  CHECK(t.job_count(JobCounter::mismatches) == 2);
}

TEST_CASE("row: the result is kept, same tag: sent again to that member alone, the same bytes") {
  Table t;
  t.complete_round(base);
  const auto first = t.take_results();
  REQUIRE(first.size() == 1);
  t.send(Part{.member = 1, .round = base, .floats = {1}, .flags = wire::flag::retransmit});
  const auto again = t.take_results();
  REQUIRE(again.size() == 1);
  CHECK(again[0].to == 0b10);
  CHECK(again[0].frames.at(1) == first[0].frames.at(1));
  CHECK(t.count(Counter::aggregate_replayed) == 1);
  CHECK(t.count(Counter::deliver_replays) == 1);
  CHECK(t.job_count(JobCounter::replays) == 1);
}

TEST_CASE("row: the result is kept, another tag: mismatch, told to the members in it") {
  Table t;
  t.complete_round(base);
  t.take_results();
  t.send(Part{.member = 1, .round = base, .floats = {1}, .tag = 9});
  CHECK(t.take_results().empty());
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 1);
  const auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::mismatch);
  CHECK(notices[0].member == 1);
  CHECK(notices[0].others == 0b01);
}

TEST_CASE("row: the result is kept while the next sum is open") {
  Table t;
  t.complete_round(base, 2, 3);
  t.take_results();
  t.send(Part{.member = 0, .round = base + 1, .floats = {1}});
  t.send(Part{.member = 1, .round = base, .floats = {3}});
  auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.round == base);
  CHECK(results[0].floats == std::vector<float>{6});
  t.send(Part{.member = 1, .round = base + 1, .floats = {1}});
  results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.round == base + 1);
  CHECK(results[0].floats == std::vector<float>{2});
}

TEST_CASE("row: newer than the next round: ahead, open or not") {
  Table t;
  t.send(Part{.member = 0, .round = base + 1, .floats = {1}});
  t.send(Part{.member = 0, .round = base, .floats = {1}});
  t.send(Part{.member = 1, .round = base + 1, .floats = {1}});
  t.send(Part{.member = 1, .round = base + 0x7FFF'0000, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_ahead) == 3);
  CHECK(t.job_count(JobCounter::ahead) == 3);
  CHECK(t.take_notices().empty());
}

TEST_CASE("row: not newer than last and not kept: stale, the member is told that it is gone") {
  Table t;
  t.send(Part{.member = 0, .round = base - 1, .floats = {1}});  // before the job began
  CHECK(t.count(Counter::aggregate_drop_stale) == 1);
  auto notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::gone);
  CHECK(notices[0].member == 0);
  CHECK(notices[0].round == base - 1);
  CHECK(notices[0].source == endpoint_of(0));

  t.complete_round(base);
  t.complete_round(base + 1);
  t.take_results();
  t.now += second;
  t.send(Part{.member = 1, .round = base, .segment = 0, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_stale) == 2);
  CHECK(t.take_results().empty());
  notices = t.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::gone);
  CHECK(notices[0].member == 1);
  CHECK(notices[0].round == base);
}

TEST_CASE("a distance of 2^31 rounds counts as older") {
  Table t;
  t.send(Part{.member = 0, .round = base - 1 + 0x8000'0000u, .floats = {1}});
  CHECK(t.count(Counter::aggregate_drop_stale) == 1);
}

TEST_CASE("history: results before the last one are kept and sent again, across the wrap") {
  Table t(2, 3);
  for (std::uint32_t i = 0; i < 5; ++i) t.complete_round(base + i, 2, static_cast<float>(i + 1));
  t.take_results();
  t.now += second;
  for (std::uint32_t i = 0; i < 5; ++i) {
    t.send(Part{.member = 0, .round = base + i, .floats = {0}});
    const auto results = t.take_results();
    if (i < 2) {
      CHECK(results.empty());
      continue;
    }
    REQUIRE(results.size() == 1);
    CHECK(results[0].fields.round == base + i);
    CHECK(results[0].floats == std::vector<float>{2 * static_cast<float>(i + 1)});
  }
  CHECK(t.count(Counter::aggregate_drop_stale) == 2);
  // The tag is kept with each.
  t.send(Part{.member = 0, .round = base + 3, .floats = {0}, .tag = 99});
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 1);
}

TEST_CASE("many rounds across 2^32: history of a size that does not divide it") {
  Table t(2, 5);
  for (std::uint32_t i = 0; i < 40; ++i) {
    t.complete_round(base + i, 2, static_cast<float>(i));
    t.take_results();
    for (std::uint32_t age = 0; age < 5 && age <= i; ++age) {
      t.send(Part{.member = 1, .round = base + i - age});
      const auto results = t.take_results();
      REQUIRE(results.size() == 1);
      CHECK(results[0].floats == std::vector<float>{2 * static_cast<float>(i - age)});
    }
  }
}

TEST_CASE("an empty contribution counts and adds nothing") {
  Table t(3);
  t.send(Part{.member = 0, .round = base});
  t.send(Part{.member = 1, .round = base, .floats = {4, 5}});
  t.send(Part{.member = 2, .round = base});
  auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{4, 5});
  CHECK(results[0].fields.workers == 3);

  // All empty: a barrier. The result is empty and needs no buffer.
  for (MemberId m = 0; m < 3; ++m) t.send(Part{.member = m, .round = base + 1, .tag = 1});
  results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats.empty());
  CHECK(results[0].fields.payload_bytes == 0);
  CHECK(results[0].fields.workers == 3);
  t.send(Part{.member = 0, .round = base + 1, .tag = 1});
  CHECK(t.take_results().size() == 1);

  // Length is set by the first that is not empty.
  t.send(Part{.member = 0, .round = base + 2});
  t.send(Part{.member = 1, .round = base + 2, .floats = {1}});
  t.send(Part{.member = 2, .round = base + 2, .floats = {1, 2}});
  CHECK(t.count(Counter::aggregate_drop_mismatch) == 1);
}

TEST_CASE("a duplicate of the completing contribution, in the same burst") {
  Table t;
  t.send({Part{.member = 0, .round = base, .floats = {1}},
          Part{.member = 1, .round = base, .floats = {2}},
          Part{.member = 1, .round = base, .floats = {2}},
          Part{.member = 1, .round = base, .floats = {2}}});
  const auto results = t.take_results();
  REQUIRE(results.size() == 3);
  CHECK(results[0].to == 0b11);
  CHECK(results[1].to == 0b10);
  CHECK(results[1].frames.at(1) == results[0].frames.at(1));
  CHECK(results[2].frames.at(1) == results[0].frames.at(1));
  CHECK(results[0].floats == std::vector<float>{3});
}

TEST_CASE("a slot that completes several times within one burst delivers each result") {
  Table t;
  t.sink.queueing = true;
  std::vector<Part> burst;
  for (std::uint32_t r = 0; r < 30; ++r) {
    for (MemberId m = 0; m < 2; ++m)
      burst.push_back({.member = m, .round = base + r, .floats = {static_cast<float>(r)}});
  }
  t.send(burst);
  const auto results = t.take_results();
  REQUIRE(results.size() == 30);
  for (std::uint32_t r = 0; r < 30; ++r) {
    CHECK(results[r].fields.round == base + r);
    CHECK(results[r].floats == std::vector<float>{2 * static_cast<float>(r)});
  }
  t.sink.drain();
}

TEST_CASE(
    "flags: ECN-ECHO from CE and from the contribution's bit; PARTIAL from child switches only") {
  Table t;
  const auto flags_of = [&](std::uint32_t round, Part other) {
    t.send(Part{.member = 0, .round = round, .floats = {1}});
    other.member = 1;
    other.round = round;
    other.floats = {1};
    t.send(other);
    const auto results = t.take_results();
    return results.size() == 1 ? results[0].fields.flags : 0xFF;
  };
  CHECK(flags_of(base, {}) == 0);
  CHECK(flags_of(base + 1, {.ecn = wire::Ecn::ce}) == wire::flag::ecn_echo);
  CHECK(flags_of(base + 2, {.flags = wire::flag::ecn_echo}) == wire::flag::ecn_echo);
  CHECK(flags_of(base + 3, {}) == 0);  // not carried into the next sum
  CHECK(flags_of(base + 4, {.flags = wire::flag::partial | wire::flag::retransmit}) == 0);
  t.put(1, 1, wire::MemberKind::child_switch);
  CHECK(flags_of(base + 5, {.flags = wire::flag::partial, .workers = 9}) == wire::flag::partial);
}

TEST_CASE("a child switch stands for its workers") {
  Table t;
  t.put(1, 1, wire::MemberKind::child_switch, 4);
  t.send(Part{.member = 0, .round = base, .segment = 3, .floats = {1}});
  t.send(Part{.member = 1, .round = base, .segment = 3, .floats = {1}, .workers = 20});
  const auto results = t.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.workers == 21);
  CHECK(results[0].fields.members == 0b11);
  // Its results go to port + (segment mod its shards).
  CHECK(wire::load_be16(results[0].frames.at(1).data() + 36) == endpoint_of(1).udp_port + 3);
  CHECK(wire::load_be16(results[0].frames.at(0).data() + 36) == endpoint_of(0).udp_port);
}

TEST_CASE("order of arrival decides the bits; NaN is canonical; the first -0 becomes +0") {
  Table t(3);
  const float big = 1e8f;
  const float inf = std::numeric_limits<float>::infinity();
  // (0 + big) + 1 - big = 0, in another order 1.
  t.send({Part{.member = 0, .round = base, .floats = {big, inf, -0.0f}},
          Part{.member = 1, .round = base, .floats = {1, -inf, -0.0f}},
          Part{.member = 2, .round = base, .floats = {-big, 0, -0.0f}}});
  t.send({Part{.member = 0, .round = base + 1, .floats = {big, 1, -0.0f}},
          Part{.member = 2, .round = base + 1, .floats = {-big, 1, -0.0f}},
          Part{.member = 1, .round = base + 1, .floats = {1, 1, -0.0f}}});
  const auto results = t.take_results();
  REQUIRE(results.size() == 2);
  CHECK(bits(results[0].floats) == std::vector<std::uint32_t>{0, 0x7FC00000, 0});
  CHECK(bits(results[1].floats) == std::vector<std::uint32_t>{0x3F800000, 0x40400000, 0});
}

TEST_CASE("results without checksums where the job says so") {
  Rig rig;
  datapath::JobSpec spec = small_job();
  spec.udp_checksum = false;
  rig.make_job(spec, 1);
  rig.send(Part{.floats = {1, 2, 3}});
  const auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.payload_sum == 0);
  CHECK(wire::load_be16(results[0].frames.at(0).data() + 40) == 0);
}

TEST_CASE("two jobs share nothing: the same segment and round in both") {
  Rig rig;
  datapath::JobSpec spec = small_job();
  rig.make_job(spec, 2);
  spec.id = 65535;
  rig.make_job(spec, 2);
  rig.send({Part{.member = 0, .floats = {1}}, Part{.member = 0, .floats = {10}, .job = 65535},
            Part{.member = 1, .floats = {2}}, Part{.member = 1, .floats = {20}, .job = 65535}});
  const auto results = rig.take_results();
  REQUIRE(results.size() == 2);
  CHECK(results[0].floats == std::vector<float>{3});
  CHECK(results[1].floats == std::vector<float>{30});
  CHECK(results[1].fields.job == 65535);
}

TEST_CASE("64 members, and the highest bit") {
  Rig rig;
  rig.make_job(small_job(), 64);
  for (MemberId m = 0; m < 64; ++m) {
    CHECK(rig.take_results().empty());
    rig.send(Part{.member = m, .floats = {1}});
  }
  const auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].to == ~MemberMask{0});
  CHECK(results[0].floats == std::vector<float>{64});
  CHECK(results[0].fields.workers == 64);
  CHECK(results[0].frames.size() == 64);
}
