// The layer-2 switch: hand-made frames against the rules of a learning bridge.
#include "switchd/pipeline/l2.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

using namespace iswitch;
using namespace iswitch::pipeline;
using datapath::PortMask;

namespace {

const wire::Mac own{{2, 0, 0, 0, 0, 0xFE}};
const wire::Mac broadcast{{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}};
constexpr PortMask four = 0b1111;

wire::Mac host(unsigned n) {
  return {{2, 0, 0, static_cast<std::uint8_t>(n >> 16), static_cast<std::uint8_t>(n >> 8),
           static_cast<std::uint8_t>(n)}};
}

std::vector<std::uint8_t> frame(const wire::Mac& to, const wire::Mac& from, std::size_t size = 60) {
  std::vector<std::uint8_t> bytes(size, 0);
  std::copy(to.bytes.begin(), to.bytes.end(), bytes.begin());
  std::copy(from.bytes.begin(), from.bytes.end(), bytes.begin() + 6);
  bytes[12] = 0x86;  // IPv6: nobody here reads further
  bytes[13] = 0xDD;
  return bytes;
}

struct Bench {
  L2Switch l2{own, 300 * second};
  Counter counter = Counter::count_;
  PortMask send(const wire::Mac& to, const wire::Mac& from, datapath::PortId port, Time now = 0,
                PortMask up = four) {
    counter = Counter::count_;
    return l2.forward(frame(to, from), port, up, now, counter);
  }
};

}  // namespace

TEST_CASE("an unknown destination is flooded, never back out of the ingress port") {
  Bench b;
  CHECK(b.send(host(2), host(1), 0) == 0b1110);
  CHECK(b.counter == Counter::l2_flooded);
  CHECK(b.send(broadcast, host(1), 2) == 0b1011);
  CHECK(b.send(host(9), host(1), 0, 0, 0b0101) == 0b0100);
}

TEST_CASE("a learned destination gets the frame alone") {
  Bench b;
  b.send(broadcast, host(2), 3);
  CHECK(b.send(host(2), host(1), 0) == 0b1000);
  CHECK(b.counter == Counter::l2_forwarded);
  CHECK(b.send(host(1), host(2), 3) == 0b0001);
}

TEST_CASE("a host that moves is found at its new port") {
  Bench b;
  b.send(broadcast, host(2), 3);
  b.send(broadcast, host(2), 1);
  CHECK(b.send(host(2), host(1), 0) == 0b0010);
}

TEST_CASE("a frame for a host on its own ingress port is dropped") {
  Bench b;
  b.send(broadcast, host(2), 0);
  CHECK(b.send(host(2), host(1), 0) == 0);
  CHECK(b.counter == Counter::l2_drop_same_port);
}

TEST_CASE("addresses age") {
  Bench b;
  b.send(broadcast, host(2), 3, 0);
  CHECK(b.send(host(2), host(1), 0, 300 * second - 1) == 0b1000);
  CHECK(b.send(host(2), host(1), 0, 300 * second) == 0b1110);
}

TEST_CASE("a port that is down is not forwarded to") {
  Bench b;
  b.send(broadcast, host(2), 3);
  CHECK(b.send(host(2), host(1), 0, 0, 0b0111) == 0b0110);
  CHECK(b.send(host(2), host(1), 0, 0, 0b0001) == 0);
  CHECK(b.counter == Counter::l2_drop_no_port);
  b.l2.table().forget(3);
  CHECK(b.send(host(2), host(1), 0) == 0b1110);
}

TEST_CASE("group and own source addresses are dropped and not learned") {
  Bench b;
  CHECK(b.send(host(2), broadcast, 0) == 0);
  CHECK(b.counter == Counter::l2_drop_bad_source);
  CHECK(b.send(host(2), own, 0) == 0);
  CHECK(b.counter == Counter::l2_drop_bad_source);
  CHECK(b.l2.table().size(0) == 0);
}

TEST_CASE("frames to the switch itself and to link-local groups stay here") {
  Bench b;
  CHECK(b.send(own, host(1), 0) == 0);
  CHECK(b.counter == Counter::l2_drop_to_self);
  CHECK(b.send({{0x01, 0x80, 0xC2, 0, 0, 0x0E}}, host(1), 0) == 0);
  CHECK(b.counter == Counter::l2_drop_link_local);
  CHECK(b.send({{0x01, 0x80, 0xC2, 0, 0, 0x10}}, host(1), 0) == 0b1110);
}

TEST_CASE("runts are dropped") {
  Bench b;
  for (std::size_t size = 0; size < 14; ++size) {
    const std::vector<std::uint8_t> runt(size, 2);
    CHECK(b.l2.forward(runt, 0, four, 0, b.counter) == 0);
    CHECK(b.counter == Counter::l2_drop_runt);
  }
}

TEST_CASE("a full table forgets the oldest and never confuses two addresses") {
  const auto seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  MacTable table(300 * second);
  std::map<unsigned, datapath::PortId> model;
  for (unsigned i = 0; i < 20'000; ++i) {
    const unsigned who = random() % 100'000;
    const auto port = static_cast<datapath::PortId>(random() % 64);
    table.learn(host(who), port, i);
    model[who] = port;
    REQUIRE(table.lookup(host(who), i) == port);
  }
  unsigned known = 0;
  for (const auto& [who, port] : model) {
    const auto found = table.lookup(host(who), 20'000);
    if (found == MacTable::no_port) continue;
    REQUIRE(found == port);
    ++known;
  }
  CHECK(known == table.size(20'000));
  CHECK(known > 3'900);  // of 4,096 places
}
