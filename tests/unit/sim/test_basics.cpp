// Random numbers, event queue, frames and links by themselves.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "tools/sim/events.h"
#include "tools/sim/frames.h"
#include "tools/sim/gradient.h"
#include "tools/sim/link.h"
#include "tools/sim/random.h"
#include "tools/sim/world.h"
#include "wire/frame.h"

using namespace iswitch;
using namespace iswitch::sim;

TEST_CASE("random numbers are the same on every machine", "[sim]") {
  // splitmix64 from state 0 and xoshiro256** seeded with its first four outputs, from the reference
  // implementations of Blackman and Vigna.
  CHECK(mix(0) == 0xE220'A839'7B1D'CDAFULL);
  CHECK(mix(0x9E37'79B9'7F4A'7C15ULL) == 0x6E78'9E6A'A1B9'65F4ULL);
  Random random(0);
  const std::array<std::uint64_t, 4> first{random.next(), random.next(), random.next(),
                                           random.next()};
  CHECK(first == std::array<std::uint64_t, 4>{0x99EC'5F36'CB75'F2B4ULL, 0xBF6E'1F78'4956'452AULL,
                                              0x1A5F'849D'4933'E6E0ULL, 0x6AA5'94F1'262D'2D2CULL});
}

TEST_CASE("random numbers have the distributions they promise", "[sim]") {
  Random random(7);
  std::array<int, 6> counts{};
  double exponential = 0;
  double above_twice_mean = 0;
  const int n = 60'000;
  for (int i = 0; i < n; ++i) {
    ++counts[random.below(6)];
    const Time x = random.exponential(1'000'000);
    exponential += static_cast<double>(x);
    if (x > 2'000'000) ++above_twice_mean;
    const auto y = random.between(-3, 3);
    REQUIRE(y >= -3);
    REQUIRE(y <= 3);
  }
  for (const int count : counts) CHECK(std::abs(count - n / 6) < 500);
  CHECK(exponential / n == Approx(1e6).epsilon(0.02));
  CHECK(above_twice_mean / n == Approx(0.1353).epsilon(0.05));  // e^-2
  CHECK(random.fork(1).next() == random.fork(1).next());
  CHECK(random.fork(1).next() != random.fork(2).next());
  CHECK_FALSE(random.chance(0));
}

namespace {

struct Recorder final : EventHandler {
  explicit Recorder(World* to = nullptr) : world(to) {}
  void handle(const Event& event) override {
    at.push_back(event.at);
    value.push_back(event.value);
    if (event.object != nullptr) {
      const FrameRef frame = FrameRef::attach(event.object);
      frames.emplace_back(frame.view().begin(), frame.view().end());
    }
  }
  World* world;
  std::vector<Time> at;
  std::vector<std::uint32_t> value;
  std::vector<std::vector<std::uint8_t>> frames;
};

FrameRef data_frame(World& world, wire::Ecn ecn, std::size_t payload) {
  FrameRef frame = world.frames.make(wire::payload_offset + payload);
  const auto bytes = frame.own();
  std::fill(bytes.begin(), bytes.end(), std::uint8_t{0x5A});
  wire::Route route;
  route.from = {{{2, 0, 0, 0, 0, 1}}, {0x0A00'0001}, 4000};
  route.to = {{{2, 0, 0, 0, 0, 2}}, {0x0A00'0002}, wire::default_udp_port};
  route.tos = static_cast<std::uint8_t>(0xAC | static_cast<unsigned>(ecn));
  wire::write_encapsulation(route, wire::header_bytes + payload, bytes.data());
  wire::Header header;
  header.set = wire::contribution_set(1, 1);
  wire::write_header(header, &bytes[wire::encapsulation_bytes]);
  wire::set_udp_checksum(bytes);
  return frame;
}

wire::ParsedFrame parse(const std::vector<std::uint8_t>& frame, wire::Packet& packet) {
  wire::FrameRules rules;
  rules.ip = {0x0A00'0002};
  return wire::parse_frame(rules, frame, {}, packet);
}

}  // namespace

TEST_CASE("events run by time, then in the order they were scheduled", "[sim]") {
  EventQueue queue;
  Recorder recorder;
  Random random(3);
  std::vector<std::pair<Time, std::uint32_t>> expected;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const auto at = static_cast<Time>(random.below(300));
    queue.schedule(at, recorder, 0, i);
    expected.emplace_back(at, i);
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  queue.run_until(150);
  CHECK(queue.now() == 150);
  CHECK(std::all_of(recorder.at.begin(), recorder.at.end(), [](Time t) { return t <= 150; }));
  queue.schedule(0, recorder, 0, 9999);  // the past counts as now
  CHECK(queue.next_at() == 150);
  queue.run_until(1000);
  REQUIRE(recorder.at.size() == expected.size() + 1);
  std::size_t skipped = 0;
  for (std::size_t i = 0; i < recorder.at.size(); ++i) {
    if (recorder.value[i] == 9999) {
      ++skipped;
      continue;
    }
    REQUIRE(recorder.at[i] == expected[i - skipped].first);
    REQUIRE(recorder.value[i] == expected[i - skipped].second);
  }
  CHECK(queue.empty());
}

TEST_CASE("a frame with two owners is copied before it is written", "[sim]") {
  FramePool pool(100);
  FrameRef one = pool.make(10);
  one.own()[0] = 1;
  FrameRef two = one;
  two.own()[0] = 2;
  CHECK(one.view()[0] == 1);
  CHECK(two.view()[0] == 2);
  CHECK(pool.in_use() == 2);
  one = two;
  CHECK(pool.in_use() == 1);
  one = {};
  two = {};
  CHECK(pool.in_use() == 0);
}

TEST_CASE("a clean link has rate, delay and a queue that drops its tail", "[sim]") {
  World world(1, 2048, 10);
  Recorder recorder(&world);
  LinkSpec spec;
  spec.bits_per_second = 1'000'000'000;
  spec.delay = 5000;
  spec.queue_bytes = 3500;
  Link link(world, spec, 0, recorder, 7, Random(1));
  const std::size_t size = 976 + 64 - 24;  // with the line's 24 bytes: 1016 + 24 = 1040 B, 8320 ns
  for (int i = 0; i < 4; ++i) link.send(data_frame(world, wire::Ecn::ect0, size - 64));
  CHECK(link.counters().overflow == 1);
  world.queue.run_until(second);
  CHECK(recorder.at == std::vector<Time>{8320 + 5000, 2 * 8320 + 5000, 3 * 8320 + 5000});
  CHECK(recorder.value == std::vector<std::uint32_t>{7, 7, 7});
  CHECK(link.counters().delivered == 3);
  // The queue is empty again.
  link.send(data_frame(world, wire::Ecn::ect0, size - 64));
  CHECK(link.counters().overflow == 1);
  world.queue.run_until(2 * second);
  CHECK(world.frames.in_use() == 0);
}

TEST_CASE("a deep queue marks ECN-capable frames and leaves their checksums right", "[sim]") {
  World world(1, 2048, 10);
  Recorder recorder(&world);
  LinkSpec spec;
  spec.bits_per_second = 1'000'000'000;
  spec.ecn_threshold_bytes = 1000;
  Link link(world, spec, 0, recorder, 0, Random(1));
  link.send(data_frame(world, wire::Ecn::ect0, 960));
  link.send(data_frame(world, wire::Ecn::ect0, 960));
  link.send(data_frame(world, wire::Ecn::not_ect, 960));
  world.queue.run_until(second);
  REQUIRE(recorder.frames.size() == 3);
  const std::array<wire::Ecn, 3> expected{wire::Ecn::ect0, wire::Ecn::ce, wire::Ecn::not_ect};
  for (std::size_t i = 0; i < 3; ++i) {
    wire::Packet packet;
    const auto parsed = parse(recorder.frames[i], packet);
    CHECK(parsed.origin == wire::Origin::ours);
    CHECK(parsed.fault == wire::Fault::none);
    CHECK(packet.ecn == expected[i]);
  }
  CHECK(link.counters().marked == 1);
}

TEST_CASE("link faults come at the rate asked for, and every corruption is found", "[sim]") {
  World world(1, 2048, 10);
  Recorder recorder(&world);
  LinkSpec spec;
  spec.queue_bytes = 1U << 30;
  spec.faults.loss = 0.1;
  spec.faults.duplicate = 0.05;
  spec.faults.corrupt = 0.2;
  spec.faults.reorder = 0.1;
  spec.faults.reorder_delay = 100 * microsecond;
  Link link(world, spec, 0, recorder, 0, Random(5));
  const FrameRef frame = data_frame(world, wire::Ecn::ect0, 512);
  const int n = 20'000;
  for (int i = 0; i < n; ++i) link.send(frame);
  world.queue.run_until(10 * second);
  const LinkCounters& c = link.counters();
  CHECK(static_cast<double>(c.lost) / n == Approx(0.1).epsilon(0.1));
  CHECK(c.delivered == c.sent + c.duplicated - c.lost - c.overflow);
  CHECK(recorder.frames.size() == c.delivered);
  std::uint64_t changed = 0;
  std::uint64_t accepted = 0;
  for (const auto& bytes : recorder.frames) {
    if (std::equal(bytes.begin(), bytes.end(), frame.view().begin(), frame.view().end())) continue;
    ++changed;
    wire::Packet packet;
    const auto parsed = parse(bytes, packet);
    if (parsed.origin == wire::Origin::ours && parsed.fault == wire::Fault::none) ++accepted;
  }
  CHECK(changed == c.corrupted);
  CHECK(static_cast<double>(c.corrupted) / n == Approx(0.18).epsilon(0.1));
  CHECK(accepted == 0);
}

TEST_CASE("a sum's element tells who is in it, and how often", "[sim]") {
  Operation op;
  op.job = 4;
  op.elements = 100;
  op.segment_elements = 8;
  op.ranks = 8;
  op.zeros = true;
  op.seed = 99;
  std::vector<std::vector<float>> parts(8, std::vector<float>(100));
  for (unsigned rank = 0; rank < 8; ++rank) fill(op, rank, parts[rank]);
  const auto sum_of = [&](std::initializer_list<unsigned> ranks, std::uint32_t i) {
    float sum = 0;
    for (const unsigned rank : ranks) sum += parts[rank][i];
    return sum;
  };
  bool zero_seen = false;
  for (std::uint32_t i = 0; i < 100; ++i) {
    CHECK(ranks_in(op, i, sum_of({0, 1, 2, 3, 4, 5, 6, 7}, i)) == full_ranks(op, i));
    const std::uint32_t some = full_ranks(op, i) & 0b1010'0110U;
    CHECK(ranks_in(op, i, sum_of({7, 2, 5, 1}, i)) == some);
    if (is_zero(op, 3, i / 8)) {
      zero_seen = true;
      CHECK(parts[3][i] == 0);
      continue;
    }
    CHECK_FALSE(ranks_in(op, i, sum_of({3, 3, 1}, i)).has_value());
    CHECK_FALSE(ranks_in(op, i, sum_of({3, 1}, i) + 0.5).has_value());
    CHECK_FALSE(ranks_in(op, i, -parts[3][i]).has_value());
  }
  CHECK(zero_seen);
  CHECK_FALSE(ranks_in(op, 0, std::numeric_limits<double>::quiet_NaN()).has_value());
}
