// The memif client against a server in this process, well-behaved and not.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <variant>

#include "agent/transport/frame_device.h"
#include "tests/unit/agent/frames.h"
#include "tests/unit/agent/memif_server.h"

using namespace iswitch;
using namespace iswitch::agent;
using namespace iswitch::test;
using Catch::Matchers::Contains;

namespace {

std::string device_of(const MemifServer& server, const std::string& more = "") {
  return "net_memif0,socket=" + server.path() + more;
}

std::variant<std::unique_ptr<FrameDevice>, Error> try_open(const std::string& device,
                                                           Time patience = 300 * millisecond) {
  return open_frame_device({device, patience});
}

std::string problem_of(const std::string& device) {
  auto opened = try_open(device);
  const auto* error = std::get_if<Error>(&opened);
  return error == nullptr ? "none" : error->text;
}

std::unique_ptr<FrameDevice> open_to(MemifServer& server, const std::string& more = "") {
  server.accept_one();
  auto opened = try_open(device_of(server, more), 2 * second);
  const bool right = server.connected();
  if (const auto* error = std::get_if<Error>(&opened)) FAIL(error->text);
  REQUIRE(right);
  return std::get<std::unique_ptr<FrameDevice>>(std::move(opened));
}

std::vector<Frame> receive(FrameDevice& device) {
  std::vector<Frame> frames;
  for (const auto& frame : device.receive()) {
    frames.emplace_back(frame.bytes.begin(), frame.bytes.end());
  }
  return frames;
}

}  // namespace

TEST_CASE("frames of every length go both ways, several times around the rings") {
  MemifServer server;
  const auto device = open_to(server, ",rsize=7");
  REQUIRE(device->mtu() == 9'000);
  std::mt19937_64 random(1);
  std::vector<Frame> there, back;
  for (unsigned i = 0; i < 1'000; ++i) {
    const Frame frame = random_frame(random, 14 + random() % 9'001);
    if (i % 2 == 0) {
      send(*device, {frame});
      const auto got = server.receive();
      REQUIRE(got);
      REQUIRE(*got == frame);
    } else {
      REQUIRE(server.send(frame));
      const auto got = receive(*device);
      REQUIRE(got.size() == 1);
      REQUIRE(got[0] == frame);
    }
  }
  CHECK_FALSE(server.receive());
  CHECK(receive(*device).empty());
}

TEST_CASE("no frame is the first to use a page") {
  MemifServer server;
  const auto device = open_to(server);
  CHECK(server.unused_pages() == 0);
}

TEST_CASE("a head and a payload become one frame, the payload where it was") {
  MemifServer server;
  const auto device = open_to(server, ",rsize=7");
  std::mt19937_64 random(2);
  for (unsigned i = 0; i < 300; ++i) {
    const Frame whole = random_frame(random, 64 + 1'440);
    const Frame head(whole.begin(), whole.begin() + 64), payload(whole.begin() + 64, whole.end());
    REQUIRE(server.send({head, payload}));
    // The driver leaves the mark of a chain in slots that it uses again.
    REQUIRE(server.send(payload));
    const auto frames = device->receive();
    REQUIRE(frames.size() == 2);
    CHECK(Frame(frames[0].bytes.begin(), frames[0].bytes.end()) == whole);
    CHECK(Frame(frames[1].bytes.begin(), frames[1].bytes.end()) == payload);
    // The gradient begins on a cache line.
    CHECK(reinterpret_cast<std::uintptr_t>(frames[0].bytes.data()) % 64 == 0);
  }
}

TEST_CASE("a full ring is no room, and room again once the switch has read") {
  MemifServer server;
  const auto device = open_to(server, ",rsize=7");
  std::mt19937_64 random(3);
  CHECK(device->has_room());
  for (unsigned i = 0; i < 2; ++i) {
    send(*device, std::vector<Frame>(64, random_frame(random, 100)));
  }
  CHECK_FALSE(device->has_room());
  CHECK(device->reserve(64).empty());
  CHECK(server.waiting() == 128);
  for (unsigned i = 0; i < 63; ++i) REQUIRE(server.receive());
  CHECK_FALSE(device->has_room());
  REQUIRE(server.receive());
  CHECK(device->has_room());
  // What was reserved and not sent has not been sent.
  REQUIRE(device->reserve(64).size() == 64);
  device->commit({});
  CHECK(server.waiting() == 64);
}

TEST_CASE("the switch gets every buffer back, and none that is still read") {
  MemifServer server;
  const auto device = open_to(server, ",rsize=7");
  std::mt19937_64 random(4);
  const Frame frame = random_frame(random, 200);
  for (unsigned i = 0; i < 128; ++i) REQUIRE(server.send(frame));
  CHECK_FALSE(server.send(frame));
  REQUIRE(device->receive().size() == 64);
  CHECK_FALSE(server.send(frame));  // a burst is being read
  REQUIRE(device->receive().size() == 64);
  for (unsigned i = 0; i < 64; ++i) REQUIRE(server.send(frame));
  CHECK_FALSE(server.send(frame));
}

TEST_CASE("what the other side says of lengths, places and chains is not believed") {
  MemifServer server;
  const auto device = open_to(server, ",rsize=7");
  std::mt19937_64 random(5);
  const Frame good = random_frame(random, 300);
  const auto spoil = [&](const std::function<void(agent::memif::Slot&)>& how) {
    agent::memif::Slot& slot = server.next_slot();
    const agent::memif::Slot before = slot;
    REQUIRE(server.send(good));
    how(slot);
    REQUIRE(server.send(good));
    const std::size_t frames = receive(*device).size();
    slot.offset = before.offset;
    slot.region = before.region;
    return frames;
  };
  CHECK(spoil([](auto& slot) { slot.length = 0xFFFF'FFFF; }) == 1);
  CHECK(spoil([](auto& slot) { slot.length = 0; }) == 1);
  CHECK(spoil([](auto& slot) { slot.offset = 0xFFFF'0000; }) == 2);
  CHECK(spoil([](auto& slot) { slot.region = 77; }) == 2);
  // A head of 300 bytes fits before no payload.
  CHECK(spoil([](auto& slot) { slot.flags = agent::memif::Slot::next; }) == 0);
  SECTION("a chain without an end") {
    for (unsigned i = 0; i < 3; ++i) {
      agent::memif::Slot& slot = server.next_slot();
      REQUIRE(server.send(good));
      slot.flags = agent::memif::Slot::next;
    }
    CHECK(receive(*device).empty());
    REQUIRE(server.send(good));
    CHECK(receive(*device).size() == 1);
  }
  SECTION("a ring that runs away") {
    server.to_client().tail = static_cast<std::uint16_t>(server.to_client().tail + 1'000);
    CHECK(receive(*device).empty());
    CHECK_FALSE(device->link_is_up());
  }
}

TEST_CASE("whoever rests is woken by what comes") {
  MemifServer server;
  const auto device = open_to(server);
  std::mt19937_64 random(6);
  const Frame frame = random_frame(random, 100);
  const auto readable = [&device](int milliseconds) {
    pollfd polled{device->fd(), POLLIN, 0};
    return poll(&polled, 1, milliseconds) == 1;
  };
  for (unsigned i = 0; i < 20; ++i) {
    REQUIRE(server.send(frame));
    CHECK_FALSE(device->arm());  // something is there already
    CHECK(receive(*device).size() == 1);
    CHECK_FALSE(readable(0));
    REQUIRE(device->arm());
    CHECK_FALSE(readable(0));
    REQUIRE(server.send(frame));
    CHECK(readable(1'000));
    CHECK(receive(*device).size() == 1);
    // Who polls is not interrupted.
    REQUIRE(server.send(frame));
    CHECK_FALSE(readable(0));
    CHECK(receive(*device).size() == 1);
  }
}

TEST_CASE("a switch that goes is noticed, and found again when it comes back") {
  MemifServer server;
  const auto device = open_to(server);
  std::mt19937_64 random(7);
  const Frame frame = random_frame(random, 100);
  CHECK(device->link_is_up());
  server.drop();
  CHECK_FALSE(device->link_is_up());
  CHECK(device->receive().empty());
  CHECK(device->has_room());  // nothing waits for a link that is down
  CHECK(device->reserve(8).empty());
  device->reconnect();  // nobody greets: for a moment only
  CHECK_FALSE(device->link_is_up());

  server.accept_one();
  for (int i = 0; i < 200 && !device->link_is_up(); ++i) {
    device->reconnect();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(server.connected());
  REQUIRE(device->link_is_up());
  REQUIRE(server.send(frame));
  CHECK(receive(*device) == std::vector<Frame>{frame});
  send(*device, {frame});
  CHECK(server.receive() == frame);
}

TEST_CASE("a child of fork() does not keep the connection from ending") {
  MemifServer server;
  auto device = open_to(server);
  int wait_here[2];
  REQUIRE(pipe(wait_here) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(wait_here[1]);
    static_cast<void>(!read(wait_here[0], &byte, 1));
    _exit(0);
  }
  device.reset();
  // The server sees the end although the child lives.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(server.client_is_gone());
  close(wait_here[0]);
  close(wait_here[1]);
  CHECK(waitpid(child, nullptr, 0) == child);
}

TEST_CASE("what stands in the way of a connection is told in one line") {
  CHECK_THAT(problem_of("net_memif0,socket=/nowhere/at/all"),
             Contains("cannot connect to memif socket /nowhere/at/all: No such file") &&
                 Contains("is switchd running") && !Contains("\n"));
  CHECK_THAT(problem_of("net_memif0"), Contains("socket=PATH is missing"));
  CHECK_THAT(problem_of("net_memif0,socket=/x,role=server"), Contains("role=server"));
  CHECK_THAT(problem_of("net_memif0,socket=/x,id=seven"), Contains("id is no number"));
  CHECK_THAT(problem_of("net_memif0,socket=/x,rsize=15"), Contains("rsize is not in 7..14"));
  CHECK_THAT(problem_of("net_memif0,socket=/x,bsize=100"), Contains("bsize is not in 512.."));
  CHECK_THAT(problem_of("net_memif0,socket=/x,mac=01:00:00:00:00:00"), Contains("mac="));
  CHECK_THAT(problem_of("net_memif0,socket=/x,soket=/y"), Contains("no argument soket"));
  CHECK_THAT(problem_of("net_memif0,socket=/" + std::string(200, 'x')), Contains("longer than"));
  CHECK_THAT(problem_of("not/a/device"), Contains("is no DPDK device"));

  const auto refused_by = [](MemifServer::Options options, const std::string& more) {
    MemifServer server(options);
    server.accept_one();
    return problem_of(device_of(server, more));
  };
  CHECK_THAT(refused_by({.id = 3}, ",id=4"), Contains("the server refuses: ID not found"));
  CHECK_THAT(refused_by({.secret = "a"}, ",secret=b"), Contains("Incorrect secret"));
  CHECK_THAT(refused_by({.version = 0x0300}, ""), Contains("does not speak memif version 2"));
  CHECK_THAT(refused_by({.most_log2_ring = 8}, ",rsize=9"), Contains("lower rsize"));
  CHECK_THAT(refused_by({.silent = true}, ""), Contains("the server does not answer"));
}
