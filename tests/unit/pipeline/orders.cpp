// Every order of datapath.h, and housekeeping.
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "tests/unit/pipeline/rig.h"

using namespace iswitch;
using namespace iswitch::testing;

TEST_CASE("Install: refused where the job cannot run; everything else needs a job") {
  Rig rig;
  datapath::JobSpec spec = small_job();
  const auto refused = [&](auto change) {
    datapath::JobSpec wrong = spec;
    change(wrong);
    return !rig.order(datapath::Install{wrong}, 1).ok;
  };
  CHECK(refused([](auto& s) { s.data_type = wire::DataType::bfloat16; }));
  CHECK(refused([](auto& s) { s.slots = 0; }));
  CHECK(refused([](auto& s) { s.slots = 0xFFFF'FFFF; }));
  CHECK(refused([](auto& s) { s.history = 0; }));
  CHECK(refused([](auto& s) {
    s.slots = pipeline::max_slots;
    s.history = 0xFFFF;
  }));
  CHECK(refused([](auto& s) { s.segment_bytes = 0; }));
  CHECK(refused([](auto& s) { s.segment_bytes = 1436; }));
  CHECK(refused([](auto& s) { s.segment_bytes = 8960; }));
  CHECK(refused([](auto& s) { s.id = 2; }));  // not the order's job

  CHECK_FALSE(rig.order(datapath::Remove{}).ok);
  CHECK_FALSE(rig.order(datapath::Stop{}).ok);
  CHECK_FALSE(rig.order(datapath::Start{}).ok);
  CHECK_FALSE(rig.order(datapath::SetHalted{true}).ok);
  CHECK_FALSE(rig.order(datapath::PutMember{}).ok);
  CHECK_FALSE(rig.order(datapath::DropMember{}).ok);
  CHECK_FALSE(rig.order(datapath::SetThreshold{1}).ok);
  CHECK_FALSE(rig.order(datapath::Force{}).ok);
  CHECK_FALSE(rig.order(datapath::Replay{}).ok);
  CHECK_FALSE(rig.order(datapath::ListSlots{1}).ok);

  CHECK(rig.order(datapath::Install{spec}).ok);
  CHECK_FALSE(rig.order(datapath::Install{spec}).ok);  // the id is taken
  datapath::MemberSpec member;
  member.id = 64;
  CHECK_FALSE(rig.order(datapath::PutMember{member}).ok);
  member.id = 0;
  member.ingress = 64;
  CHECK_FALSE(rig.order(datapath::PutMember{member}).ok);
  CHECK_FALSE(rig.order(datapath::DropMember{64}).ok);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED  // they reserve address space themselves and end the process when it is short
TEST_CASE("Install: no memory for its tables is an answer, not an exception") {
  Rig rig;
  datapath::JobSpec spec = small_job();
  spec.slots = pipeline::max_slots;
  spec.history = 4;
  rlimit saved{};
  REQUIRE(getrlimit(RLIMIT_AS, &saved) == 0);
  rlimit tight = saved;
  tight.rlim_cur = 256u << 20;
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  const bool installed = rig.order(datapath::Install{spec}).ok;
  REQUIRE(setrlimit(RLIMIT_AS, &saved) == 0);
  CHECK_FALSE(installed);
  CHECK_FALSE(rig.order(datapath::Stop{}).ok);  // it is not there
  CHECK(rig.order(datapath::Install{small_job()}).ok);
}
#endif

TEST_CASE("Remove: gives back the buffers; a job of that id can be made again, as new") {
  Rig rig;
  rig.make_job(small_job(), 2);
  rig.send({Part{.member = 0, .segment = 0, .floats = {1}},
            Part{.member = 1, .segment = 0, .floats = {1}},
            Part{.member = 0, .segment = 1, .floats = {1}}});
  CHECK(rig.pool.in_use() == 2);
  CHECK(rig.order(datapath::Remove{}).ok);
  CHECK(rig.pool.in_use() == 0);
  rig.send(Part{.member = 0, .floats = {1}});
  CHECK(rig.count(Counter::classify_drop_unknown_job) == 1);
  rig.make_job(small_job(), 1, 77);
  CHECK(rig.job_count(JobCounter::contributions) == 0);
  rig.take_results();
  rig.send(Part{.member = 0, .round = 77, .floats = {5}});
  CHECK(rig.take_results().size() == 1);
}

TEST_CASE("Remove of one job leaves the others where they are") {
  Rig rig;
  for (JobId id = 1; id <= 5; ++id) {
    datapath::JobSpec spec = small_job();
    spec.id = id;
    rig.make_job(spec, 2);
    rig.send(Part{.member = 0, .floats = {static_cast<float>(id)}, .job = id});
  }
  rig.order(datapath::Remove{}, 2);
  rig.order(datapath::Remove{}, 5);
  for (const JobId id : {1, 3, 4}) {
    rig.send(Part{.member = 1, .floats = {100}, .job = id});
    const auto results = rig.take_results();
    REQUIRE(results.size() == 1);
    CHECK(results[0].fields.job == id);
    CHECK(results[0].floats == std::vector<float>{100 + static_cast<float>(id)});
    CHECK(rig.job_count(JobCounter::results, id) == 1);
  }
  std::size_t listed = 0;
  rig.pipeline().job_stats().for_each([&](JobId, const pipeline::JobStats&) { ++listed; });
  CHECK(listed == 3);
}

TEST_CASE("Stop and Start: a Reset's two halves") {
  Rig rig;
  constexpr std::uint32_t base = 0xFFFF'FFFF;
  rig.make_job(small_job(), 2, base);
  CHECK(rig.order(datapath::Stop{}).highest_round == base - 1);  // nothing seen
  rig.order(datapath::Start{base});
  rig.send({Part{.member = 0, .round = base, .floats = {1}},
            Part{.member = 1, .round = base, .floats = {1}},
            Part{.member = 0, .round = base + 1, .floats = {1}},
            Part{.member = 1, .round = base, .segment = 1, .floats = {1}}});
  CHECK(rig.pool.in_use() == 3);
  CHECK(rig.order(datapath::Stop{}).highest_round == base + 1);
  CHECK(rig.pool.in_use() == 0);
  CHECK(rig.order(datapath::ListSlots{100}).open.empty());
  rig.take_results();

  rig.now += second;
  rig.send(Part{.member = 0, .round = base + 1, .floats = {1}});
  CHECK(rig.count(Counter::classify_drop_forming) == 1);
  CHECK(rig.order(datapath::Stop{}).highest_round == base + 1);  // twice is once

  rig.order(datapath::Start{base + 3});
  // Nothing of before comes back: not kept, not open.
  rig.send({Part{.member = 0, .round = base, .floats = {1}},
            Part{.member = 1, .round = base + 1, .floats = {1}},
            Part{.member = 1, .round = base + 2, .floats = {1}}});
  CHECK(rig.count(Counter::aggregate_drop_stale) == 3);
  rig.send({Part{.member = 0, .round = base + 3, .floats = {2}},
            Part{.member = 1, .round = base + 3, .floats = {2}}});
  const auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{4});
  CHECK(rig.order(datapath::Stop{}).highest_round == base + 3);
}

TEST_CASE("Stop: rounds ahead count as seen, absurd ones do not") {
  Rig rig;
  rig.make_job(small_job(), 2, 100);
  rig.send(Part{.member = 0, .round = 150, .floats = {1}});
  CHECK(rig.order(datapath::Stop{}).highest_round == 150);
  rig.order(datapath::Start{200});
  rig.send({Part{.member = 0, .round = 200 + 0x4000'0000, .floats = {1}},
            Part{.member = 0, .round = 100, .floats = {1}},    // older: stale
            Part{.member = 5, .round = 300, .floats = {1}}});  // a stranger's
  CHECK(rig.order(datapath::Stop{}).highest_round == 199);
}

TEST_CASE("SetHalted keeps every slot") {
  Rig rig;
  rig.make_job(small_job(), 2);
  rig.send(Part{.member = 0, .floats = {1}});
  rig.order(datapath::SetHalted{true});
  rig.send(Part{.member = 1, .floats = {2}});
  CHECK(rig.take_results().empty());
  CHECK(rig.order(datapath::ListSlots{1}).open.size() == 1);
  rig.order(datapath::SetHalted{false});
  rig.send(Part{.member = 1, .floats = {2}});
  const auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{3});
}

TEST_CASE("PutMember: a member who joins late is waited for and gets the results") {
  Rig rig;
  rig.make_job(small_job(), 1);
  rig.send(Part{.member = 0, .floats = {1}});
  CHECK(rig.take_results().size() == 1);
  rig.put(63);
  rig.send(Part{.member = 0, .round = 1, .floats = {1}});
  CHECK(rig.take_results().empty());
  rig.send(Part{.member = 63, .round = 1, .floats = {2}});
  const auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].to == (MemberMask{1} << 63 | 1));
}

TEST_CASE("PutMember again: the row is replaced, the MAC refreshed") {
  Rig rig;
  rig.make_job(small_job(), 1);
  datapath::MemberSpec member{.id = 0, .endpoint = endpoint_of(0), .ingress = port_of(0)};
  member.endpoint.mac = {{2, 7, 7, 7, 7, 7}};
  CHECK(rig.order(datapath::PutMember{member}).ok);
  rig.send(Part{.member = 0, .floats = {1}});
  auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(std::equal(member.endpoint.mac.bytes.begin(), member.endpoint.mac.bytes.end(),
                   results[0].frames.at(0).begin()));
  member.endpoint.udp_port = 999;
  CHECK(rig.order(datapath::PutMember{member}).ok);
  rig.send(Part{.member = 0, .round = 1, .floats = {1}});  // from where it no longer is
  CHECK(rig.count(Counter::classify_drop_not_a_member) == 1);
}

TEST_CASE("DropMember: sums complete without it, its parts stay") {
  Rig rig;
  rig.make_job(small_job(), 3);
  rig.send({Part{.member = 0, .segment = 0, .floats = {1}},
            Part{.member = 1, .segment = 0, .floats = {10}},  // only 2 is missing
            Part{.member = 2, .segment = 1, .floats = {100}},
            Part{.member = 0, .segment = 1, .floats = {1}},  // 1 is missing still
            Part{.member = 2, .segment = 2, .floats = {7}},
            Part{.member = 0, .segment = 2, .floats = {1}},
            Part{.member = 1, .segment = 2, .floats = {1}}});
  CHECK(rig.take_results().size() == 1);  // segment 2
  CHECK(rig.order(datapath::DropMember{2}).ok);
  auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.segment == 0);
  CHECK(results[0].fields.flags == 0);  // whole, not PARTIAL
  CHECK(results[0].to == 0b011);
  CHECK(results[0].floats == std::vector<float>{11});
  rig.send(Part{.member = 1, .segment = 1, .floats = {10}});
  results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{111});  // the leaver's part is in it
  CHECK(results[0].fields.members == 0b111);
  CHECK(results[0].fields.workers == 3);
  CHECK(results[0].to == 0b011);
  // It is nobody now.
  rig.send(Part{.member = 2, .segment = 3, .floats = {1}});
  CHECK(rig.count(Counter::classify_drop_not_a_member) == 1);
}

TEST_CASE("DropMember: many sums complete at once, more than a burst holds") {
  Rig rig;
  datapath::JobSpec spec = small_job();
  spec.slots = 500;
  rig.make_job(spec, 2);
  for (std::uint32_t s = 0; s < 500; ++s)
    rig.send(Part{.member = 0, .segment = s, .floats = {static_cast<float>(s)}});
  rig.order(datapath::DropMember{1});
  const auto results = rig.take_results();
  REQUIRE(results.size() == 500);
  for (std::uint32_t s = 0; s < 500; ++s) {
    CHECK(results[s].fields.segment == s);
    CHECK(results[s].floats == std::vector<float>{static_cast<float>(s)});
  }
}

TEST_CASE("DropMember of the last member: nobody is left to tell") {
  Rig rig;
  rig.make_job(small_job(), 2);
  rig.send(Part{.member = 0, .floats = {1}});
  rig.order(datapath::DropMember{0});
  CHECK(rig.take_results().empty());
  rig.order(datapath::DropMember{1});
  CHECK(rig.take_results().empty());
}

TEST_CASE("SetThreshold: for sums opened later, never above the number of members") {
  Rig rig;
  rig.make_job(small_job(), 4);
  rig.send(Part{.member = 0, .segment = 0, .floats = {1}});
  rig.order(datapath::SetThreshold{2});
  rig.send(Part{.member = 1, .segment = 0, .floats = {1}});
  CHECK(rig.take_results().empty());  // opened before
  rig.send({Part{.member = 0, .segment = 1, .floats = {1}},
            Part{.member = 3, .segment = 1, .floats = {2}}});
  auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.workers == 2);
  CHECK(results[0].fields.members == 0b1001);
  CHECK(results[0].fields.flags == 0);
  CHECK(results[0].to == 0b1111);  // also to those not in the sum
  // The straggler meets a finished result and is answered with it.
  rig.send(Part{.member = 1, .segment = 1, .floats = {9}});
  results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].to == 0b0010);
  CHECK(results[0].floats == std::vector<float>{3});

  rig.order(datapath::SetThreshold{64});
  for (MemberId m = 0; m < 4; ++m) rig.send(Part{.member = m, .segment = 2, .floats = {1}});
  CHECK(rig.take_results().size() == 1);
  // A sum opened under H = 3 completes when members leave until three are too many.
  rig.order(datapath::SetThreshold{3});
  rig.send({Part{.member = 0, .segment = 3, .floats = {1}},
            Part{.member = 1, .segment = 3, .floats = {1}}});
  rig.order(datapath::DropMember{3});
  CHECK(rig.take_results().empty());
  rig.order(datapath::DropMember{2});
  CHECK(rig.take_results().size() == 2);  // segment 3, and segment 0: both members are in it
}

TEST_CASE("Force: PARTIAL to everybody; nothing to force otherwise") {
  Rig rig;
  rig.make_job(small_job(), 3);
  CHECK(rig.order(datapath::Force{.segment = 0, .round = 0}).slot == SlotState::none);
  CHECK(rig.order(datapath::Force{.segment = 4, .round = 0}).slot == SlotState::none);
  rig.send({Part{.member = 0, .floats = {1, -0.0f}}, Part{.member = 1, .floats = {1, -0.0f}}});
  CHECK(rig.order(datapath::Force{.segment = 0, .round = 1}).slot == SlotState::none);
  CHECK(rig.take_results().empty());
  const auto answer = rig.order(datapath::Force{.segment = 0, .round = 0});
  CHECK(answer.slot == SlotState::open);
  CHECK(answer.missing == 0b100);
  auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.flags == wire::flag::partial);
  CHECK(results[0].fields.workers == 2);
  CHECK(results[0].to == 0b111);
  CHECK(bits(results[0].floats) == std::vector<std::uint32_t>{0x40000000, 0});
  CHECK(rig.order(datapath::Force{.segment = 0, .round = 0}).slot == SlotState::kept);
  CHECK(rig.take_results().empty());
  CHECK(rig.count(Counter::aggregate_forced) == 1);
  // The next round is whole again.
  for (MemberId m = 0; m < 3; ++m) rig.send(Part{.member = m, .round = 1, .floats = {1}});
  results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].fields.flags == 0);
}

TEST_CASE("Replay: kept, open, still to come, gone") {
  Rig rig;
  rig.make_job(small_job(), 2, 10);
  const auto replay = [&](std::uint32_t segment, std::uint32_t round, MemberId member) {
    return rig.order(datapath::Replay{.segment = segment, .round = round, .member = member});
  };
  CHECK(replay(0, 10, 0).slot == SlotState::none);
  CHECK(replay(0, 9, 0).slot == SlotState::gone);
  rig.send(Part{.member = 1, .round = 10, .floats = {1}});
  const auto open = replay(0, 10, 0);
  CHECK(open.slot == SlotState::open);
  CHECK(open.missing == 0b01);
  CHECK(replay(0, 11, 0).slot == SlotState::none);
  rig.send(Part{.member = 0, .round = 10, .floats = {1}});
  const auto first = rig.take_results();
  REQUIRE(first.size() == 1);
  CHECK(replay(0, 10, 1).slot == SlotState::kept);
  const auto again = rig.take_results();
  REQUIRE(again.size() == 1);
  CHECK(again[0].to == 0b10);
  CHECK(again[0].frames.at(1) == first[0].frames.at(1));
  CHECK(replay(0, 10, 7).slot == SlotState::kept);  // no such member: nothing is sent
  CHECK(replay(0, 10, 64).slot == SlotState::kept);
  CHECK(rig.take_results().empty());
  CHECK(replay(77, 10, 0).slot == SlotState::none);
}

TEST_CASE("ListSlots: open sums only, in order, at most the limit") {
  Rig rig;
  rig.make_job(small_job(), 2);
  rig.now = 1234;
  rig.send({Part{.member = 1, .segment = 3, .floats = {1, 2}}, Part{.member = 0, .segment = 1},
            Part{.member = 0, .segment = 2, .floats = {1}},
            Part{.member = 1, .segment = 2, .floats = {1}}});
  auto open = rig.order(datapath::ListSlots{10}).open;
  REQUIRE(open.size() == 2);
  CHECK(open[0].segment == 1);
  CHECK(open[0].bytes == 0);
  CHECK(open[1].segment == 3);
  CHECK(open[1].bytes == 8);
  CHECK(open[1].opened_at == 1234);
  CHECK(open[1].members == 0b10);
  CHECK(open[1].missing == 0b01);
  CHECK(rig.order(datapath::ListSlots{1}).open.size() == 1);
  CHECK(rig.order(datapath::ListSlots{0}).open.empty());
}

TEST_CASE("shards: each owns its segments, on its port") {
  constexpr std::uint16_t shards = 3;
  for (std::uint16_t shard = 0; shard < shards; ++shard) {
    Rig rig({.shards = shards, .shard = shard});
    datapath::JobSpec spec = small_job();
    spec.slots = 8;  // segments 0 3 6, 1 4 7, 2 5
    rig.make_job(spec, 2);
    for (std::uint32_t segment = 0; segment < 9; ++segment) {
      rig.send({Part{.member = 0, .segment = segment, .floats = {1}},
                Part{.member = 1, .segment = segment, .floats = {2}}});
      const auto results = rig.take_results();
      if (segment % shards != shard || segment >= 8) {
        CHECK(results.empty());
        continue;
      }
      REQUIRE(results.size() == 1);
      CHECK(results[0].fields.segment == segment);
      CHECK(rig.order(datapath::Replay{segment, 0, 0}).slot == SlotState::kept);
      CHECK(rig.take_results().size() == 1);
      CHECK(rig.order(datapath::Force{segment + 1, 0}).slot == SlotState::not_mine);
      CHECK(rig.order(datapath::Replay{segment + 1, 0, 0}).slot == SlotState::not_mine);
    }
    // Its own segment on another shard's port.
    Part strayed{.member = 0, .round = 1, .segment = shard, .floats = {1}};
    strayed.udp_port = static_cast<std::uint16_t>(wire::default_udp_port + (shard + 1) % shards);
    const auto before = rig.count(Counter::classify_drop_wrong_port);
    rig.send(strayed);
    CHECK(rig.count(Counter::classify_drop_wrong_port) == before + 1);
  }
}

TEST_CASE("shards: more of them than slots") {
  Rig rig({.shards = 8, .shard = 5});
  rig.make_job(small_job(), 1);  // 4 slots
  rig.send(Part{.member = 0, .segment = 5, .floats = {1}});
  CHECK(rig.count(Counter::classify_drop_segment) == 1);
  CHECK(rig.order(datapath::ListSlots{5}).open.empty());
}

TEST_CASE("housekeep: sums older than force_after are forced, in every slot, in bounded steps") {
  Rig rig({.buffers = 2000});
  datapath::JobSpec spec = small_job();
  spec.slots = 1000;
  spec.force_after = 10 * millisecond;
  rig.make_job(spec, 2);
  spec.id = 2;
  spec.force_after = 0;
  rig.make_job(spec, 2);
  for (std::uint32_t s = 0; s < 1000; ++s) {
    rig.send({Part{.member = 0, .segment = s, .floats = {1}},
              Part{.member = 0, .segment = s, .floats = {1}, .job = 2}});
  }
  rig.now += 10 * millisecond - 1;
  for (int i = 0; i < 50; ++i) rig.housekeep();
  CHECK(rig.take_results().empty());
  rig.now += 1;
  std::size_t forced = 0;
  for (int i = 0; i < 2 * 1000 / 64 + 2; ++i) {
    rig.housekeep();
    const auto results = rig.take_results();
    CHECK(results.size() <= 64);
    forced += results.size();
    for (const Result& r : results) {
      CHECK(r.fields.job == 1);
      CHECK(r.fields.flags == wire::flag::partial);
    }
  }
  CHECK(forced == 1000);
  CHECK(rig.order(datapath::ListSlots{2000}, 2).open.size() == 1000);
}

TEST_CASE("housekeep: a halted job's sums wait, and the halt does not count as age") {
  Rig rig;
  datapath::JobSpec spec = small_job();
  spec.force_after = 10 * millisecond;
  rig.make_job(spec, 2);
  rig.send(Part{.member = 0, .floats = {1}});
  rig.order(datapath::SetHalted{true});
  rig.now += second;
  for (int i = 0; i < 4; ++i) rig.housekeep();
  CHECK(rig.take_results().empty());
  rig.order(datapath::SetHalted{false});
  rig.housekeep();
  CHECK(rig.take_results().empty());
  rig.now += 10 * millisecond;
  rig.housekeep();
  CHECK(rig.take_results().size() == 1);
}

TEST_CASE("last heard: every contribution from a member's row, whatever becomes of it") {
  Rig rig;
  rig.now = 5;
  rig.make_job(small_job(), 2);
  CHECK(rig.last_heard(0) == 5);  // its Join
  rig.now = 100;
  rig.send(Part{.member = 0, .floats = {1}});
  CHECK(rig.last_heard(0) == 100);
  CHECK(rig.last_heard(1) == 5);
  rig.now = 200;
  rig.send(Part{.member = 0, .round = 50, .floats = {1}});
  CHECK(rig.last_heard(0) == 200);
  rig.order(datapath::SetHalted{true});
  rig.now = 300;
  rig.send(Part{.member = 0, .floats = {1}});
  CHECK(rig.last_heard(0) == 300);
  rig.now = 400;
  Part stranger{.member = 0, .floats = {1}};
  stranger.ingress = 9;
  rig.send(stranger);
  CHECK(rig.last_heard(0) == 300);
}

TEST_CASE("notices: the same about one member at most once a millisecond") {
  Rig rig;
  rig.make_job(small_job(), 3, 100);
  std::vector<Part> flood(64, Part{.member = 0, .round = 1, .floats = {1}});
  rig.send(flood);
  CHECK(rig.take_notices().size() == 1);
  CHECK(rig.count(Counter::notice_coalesced) == 63);
  rig.now += millisecond - 1;
  rig.send(flood);
  CHECK(rig.take_notices().empty());
  rig.send(Part{.member = 1, .round = 1, .floats = {1}});  // another member
  CHECK(rig.take_notices().size() == 1);
  rig.send(Part{.member = 2, .round = 100, .floats = {1}});
  rig.send(Part{.member = 0, .round = 100, .floats = {1}, .tag = 99});  // another kind
  auto notices = rig.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::mismatch);
  rig.now += 1;
  rig.send(flood);
  CHECK(rig.take_notices().size() == 1);
  CHECK(rig.count(Counter::notice_sent) + rig.count(Counter::notice_coalesced) ==
        rig.count(Counter::aggregate_drop_stale) + rig.count(Counter::aggregate_drop_mismatch));
}

TEST_CASE("notices: strangers are told who asked, and cannot flood the ring") {
  Rig rig;
  rig.make_job(small_job(), 1);
  Part stranger{.member = 3, .round = 9, .segment = 2, .floats = {1}};
  rig.send(stranger);
  auto notices = rig.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::not_a_member);
  CHECK(notices[0].source == endpoint_of(3));
  CHECK(notices[0].ingress == 3);
  CHECK(notices[0].member == 3);
  CHECK(notices[0].job == 1);
  rig.send(stranger);
  CHECK(rig.take_notices().empty());
  rig.now += millisecond;
  rig.send(stranger);
  CHECK(rig.take_notices().size() == 1);
  stranger.job = 9;  // unknown job: also not a member
  rig.send(stranger);
  CHECK(rig.take_notices().size() == 1);

  rig.now += millisecond;
  std::vector<Part> flood;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    Part part{.member = 3, .floats = {1}};
    part.source = endpoint_of(3);
    part.source->ip.value += i;
    flood.push_back(part);
    if (flood.size() == 64) {
      rig.send(flood);
      flood.clear();
    }
  }
  notices = rig.take_notices();
  CHECK(notices.size() > 100);
  CHECK(notices.size() <= 256);
}

TEST_CASE("two shards tell the same numbers apart: answers carry the shard") {
  Rig rig({.shards = 2, .shard = 1});
  const auto answer = rig.execute({.number = 42, .job = 3, .what = datapath::Stop{}});
  CHECK(answer.number == 42);
  CHECK(answer.shard == 1);
  CHECK_FALSE(answer.ok);
}
