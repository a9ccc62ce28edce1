// Frames around datagrams, and datagrams out of frames, with a memif server as the switch.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "agent/transport/frame_port.h"
#include "tests/unit/agent/memif_server.h"
#include "wire/bytes.h"

using namespace iswitch;
using namespace iswitch::agent;
using namespace iswitch::test;
using Catch::Matchers::Contains;

namespace {

constexpr wire::Ipv4 switch_ip{0x0A4D00FE}, own_ip{0x0A4D0001};
constexpr wire::Mac switch_mac{{2, 0, 0, 0, 0, 0xFE}};
constexpr std::uint16_t switch_port = 17'170, own_port = 50'000;

bool is_arp(const Frame& frame, std::uint8_t operation) {
  return frame.size() >= 42 && wire::load_be16(&frame[12]) == 0x0806 && frame[21] == operation;
}

Frame arp_reply_to(const Frame& request, const wire::Mac& mac) {
  Frame reply(60);
  std::copy_n(&request[6], 6, reply.begin());
  std::copy(mac.bytes.begin(), mac.bytes.end(), reply.begin() + 6);
  wire::store_be16(&reply[12], 0x0806);
  const std::uint8_t fixed[] = {0, 1, 8, 0, 6, 4, 0, 2};
  std::copy(std::begin(fixed), std::end(fixed), reply.begin() + 14);
  std::copy(mac.bytes.begin(), mac.bytes.end(), reply.begin() + 22);
  std::copy_n(&request[38], 4, reply.begin() + 28);
  std::copy_n(&request[22], 10, reply.begin() + 32);
  return reply;
}

/// A switch that answers to ARP while a port opens.
class FakeSwitch {
 public:
  MemifServer server;

  std::unique_ptr<FramePort> open(std::uint16_t users = 1, bool answers = true) {
    std::atomic<bool> opened{false};
    server.accept_one();
    std::thread arp([&] {
      if (!server.connected()) return;
      while (!opened) {
        const auto frame = server.receive();
        if (!frame) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        } else if (is_arp(*frame, 1) && answers) {
          member_mac = *wire::parse_mac(mac_text(*frame));
          server.send(arp_reply_to(*frame, switch_mac));
        }
      }
    });
    FramePortOptions options;
    options.device = {"net_memif0,socket=" + server.path(), answers ? 5 * second : second / 4};
    options.switch_ip = switch_ip;
    options.switch_port = switch_port;
    options.local_ip = own_ip;
    options.local_port = own_port;
    options.users = users;
    auto result = FramePort::open(options);
    opened = true;
    arp.join();
    if (const auto* error = std::get_if<Error>(&result)) {
      problem = error->text;
      return nullptr;
    }
    return std::get<std::unique_ptr<FramePort>>(std::move(result));
  }

  /// A result for a user, as the switch writes it.
  Frame result(std::uint16_t user, const Frame& payload, std::uint8_t tos = 0xAC) const {
    Frame frame(wire::payload_offset + payload.size());
    const wire::Route route{{switch_mac, switch_ip, switch_port},
                            {member_mac, own_ip, static_cast<std::uint16_t>(own_port + user)},
                            tos};
    wire::write_encapsulation(route, wire::header_bytes + payload.size(), frame.data());
    wire::Header header;
    header.type = wire::Type::result;
    header.job = 1;
    header.member = 2;
    header.segment = 5;
    wire::write_header(header, &frame[wire::encapsulation_bytes]);
    std::copy(payload.begin(), payload.end(), frame.begin() + wire::payload_offset);
    wire::set_udp_checksum(frame);
    return frame;
  }

  wire::Mac member_mac;
  std::string problem;

 private:
  static std::string mac_text(const Frame& frame) {
    wire::Mac mac;
    std::copy_n(&frame[6], 6, mac.bytes.begin());
    return wire::to_string(mac);
  }
};

Frame random_payload(std::mt19937_64& random, std::size_t size) {
  Frame bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

Outgoing contribution(std::uint16_t shard, Bytes payload) {
  Outgoing datagram;
  wire::Header header;
  header.job = 1;
  header.segment = 9;
  header.round = 3;
  wire::write_header(header, datagram.head.data());
  datagram.head_size = wire::header_bytes;
  datagram.shard = shard;
  datagram.tos = 0xAC | 2;
  datagram.payload = payload;
  return datagram;
}

}  // namespace

TEST_CASE("contributions are frames that the switch takes for its own") {
  FakeSwitch fake;
  const auto port = fake.open(3);
  REQUIRE(port);
  std::mt19937_64 random(1);
  wire::FrameRules rules;
  rules.ip = switch_ip;
  rules.ports = 4;
  std::vector<Frame> payloads;
  std::vector<Outgoing> datagrams;
  for (std::uint16_t i = 0; i < 4; ++i) payloads.push_back(random_payload(random, 32 + i * 704));
  for (std::uint16_t i = 0; i < 4; ++i) datagrams.push_back(contribution(i, payloads[i]));
  port->send(datagrams, 2);
  for (std::uint16_t i = 0; i < 4; ++i) {
    const auto frame = fake.server.receive();
    REQUIRE(frame);
    CHECK(wire::load_be16(&(*frame)[40]) != 0);  // the UDP checksum
    wire::Packet packet;
    const auto parsed = wire::parse_frame(rules, *frame, {}, packet);
    REQUIRE(parsed.origin == wire::Origin::ours);
    REQUIRE(parsed.fault == wire::Fault::none);
    CHECK(packet.destination_mac == switch_mac);
    CHECK(packet.destination_port == switch_port + i);
    CHECK(packet.source == wire::Endpoint{fake.member_mac, own_ip, own_port + 2});
    CHECK(packet.ecn == wire::Ecn::ect0);
    CHECK(packet.message.header.segment == 9);
    CHECK(Frame(packet.message.payload.begin(), packet.message.payload.end()) == payloads[i]);
  }
  CHECK_FALSE(fake.server.receive());
}

TEST_CASE("results come out as datagrams, each to its user, in whatever pieces they came") {
  FakeSwitch fake;
  const auto port = fake.open(3);
  REQUIRE(port);
  std::mt19937_64 random(2);
  for (const bool chained : {false, true}) {
    std::vector<Frame> payloads;
    for (std::uint16_t user = 0; user < 3; ++user) {
      payloads.push_back(random_payload(random, 1'440));
      const Frame frame = fake.result(user, payloads.back(), user == 1 ? 0xAF : 0xAC);
      if (chained) {
        REQUIRE(fake.server.send(
            {Frame(frame.begin(), frame.begin() + 64), Frame(frame.begin() + 64, frame.end())}));
      } else {
        REQUIRE(fake.server.send(frame));
      }
    }
    const auto received = port->receive();
    REQUIRE(received.size() == 3);
    for (std::uint16_t user = 0; user < 3; ++user) {
      CHECK(received[user].user == user);
      CHECK(received[user].ecn == (user == 1 ? wire::Ecn::ce : wire::Ecn::not_ect));
      wire::Message message;
      REQUIRE(wire::parse_message(received[user].datagram, message) == wire::Fault::none);
      CHECK(message.header.segment == 5);
      CHECK(Frame(message.payload.begin(), message.payload.end()) == payloads[user]);
    }
    CHECK(port->receive().empty());
  }
}

TEST_CASE("nothing but well-formed frames of the switch for this address comes through") {
  FakeSwitch fake;
  const auto port = fake.open(2);
  REQUIRE(port);
  std::mt19937_64 random(3);
  const Frame good = fake.result(0, random_payload(random, 96));
  const auto comes_through = [&](Frame frame, bool checksum = true) {
    if (checksum) wire::set_udp_checksum(frame);
    REQUIRE(fake.server.send(frame));
    return port->receive().size() == 1;
  };
  const auto changed = [&](std::size_t at, std::uint8_t value) {
    Frame frame = good;
    frame[at] = value;
    return frame;
  };
  CHECK(comes_through(good));
  CHECK_FALSE(comes_through(changed(100, static_cast<std::uint8_t>(good[100] ^ 1)), false));
  CHECK_FALSE(comes_through(changed(24, 0)));     // IPv4 checksum
  CHECK_FALSE(comes_through(changed(12, 0x86)));  // no IPv4
  CHECK_FALSE(comes_through(changed(42, 0xFF)));  // another version of the protocol
  Frame other_sender = good, other_port = good, short_one = good;
  const wire::Endpoint member{fake.member_mac, own_ip, own_port};
  wire::write_encapsulation({{switch_mac, {switch_ip.value + 1}, switch_port}, member, 0xAC},
                            good.size() - 42, other_sender.data());
  CHECK_FALSE(comes_through(other_sender));
  wire::write_encapsulation({{switch_mac, switch_ip, switch_port + 1}, member, 0xAC},
                            good.size() - 42, other_port.data());
  CHECK_FALSE(comes_through(other_port));
  for (const std::uint16_t to : {own_port - 1, own_port + 2}) {
    Frame to_nobody = good;
    wire::write_encapsulation(
        {{switch_mac, switch_ip, switch_port}, {fake.member_mac, own_ip, to}, 0xAC},
        good.size() - 42, to_nobody.data());
    CHECK_FALSE(comes_through(to_nobody));
  }
  for (std::size_t size : {1u, 13u, 14u, 34u, 41u, 42u, 63u}) {
    short_one.resize(size);
    REQUIRE(fake.server.send(short_one));
    CHECK(port->receive().empty());
  }
  // Any bytes at all.
  for (unsigned i = 0; i < 2'000; ++i) {
    Frame frame = random() % 2 == 0 ? good : random_payload(random, 14 + random() % 200);
    for (unsigned flip = 0; flip < 1 + random() % 4; ++flip) {
      frame[random() % frame.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
    }
    REQUIRE(fake.server.send(frame));
    port->receive();
    while (fake.server.receive()) {
    }
  }
  CHECK(comes_through(good));
}

TEST_CASE("the port answers to ARP and ping for its address") {
  FakeSwitch fake;
  const auto port = fake.open();
  REQUIRE(port);
  Frame request(60);
  std::fill_n(request.begin(), 6, std::uint8_t{0xFF});
  std::copy(switch_mac.bytes.begin(), switch_mac.bytes.end(), request.begin() + 6);
  wire::store_be16(&request[12], 0x0806);
  const std::uint8_t fixed[] = {0, 1, 8, 0, 6, 4, 0, 1};
  std::copy(std::begin(fixed), std::end(fixed), request.begin() + 14);
  std::copy(switch_mac.bytes.begin(), switch_mac.bytes.end(), request.begin() + 22);
  wire::store_be32(&request[28], switch_ip.value);
  wire::store_be32(&request[38], own_ip.value + 1);
  REQUIRE(fake.server.send(request));
  port->receive();
  CHECK_FALSE(fake.server.receive());  // somebody else's
  wire::store_be32(&request[38], own_ip.value);
  REQUIRE(fake.server.send(request));
  port->receive();
  const auto reply = fake.server.receive();
  REQUIRE(reply);
  REQUIRE(is_arp(*reply, 2));
  CHECK(std::equal(reply->begin() + 22, reply->begin() + 28, fake.member_mac.bytes.begin()));
  CHECK(wire::load_be32(&(*reply)[28]) == own_ip.value);
}

TEST_CASE("a standby that announces the switch's address is where frames go from then on") {
  FakeSwitch fake;
  const auto port = fake.open();
  REQUIRE(port);
  const auto destination = [&] {
    const auto datagram = contribution(0, {});
    port->send(std::span<const Outgoing>(&datagram, 1), 0);
    std::optional<Frame> frame;
    for (int i = 0; i < 10'000 && !frame; ++i) {
      frame = fake.server.receive();
      if (frame && is_arp(*frame, 1)) frame.reset();
      if (!frame) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    REQUIRE(frame);
    wire::Mac mac;
    std::copy_n(frame->begin(), 6, mac.bytes.begin());
    return wire::to_string(mac);
  };
  const auto announce = [&](const wire::Mac& mac, wire::Ipv4 ip, std::uint8_t operation) {
    Frame frame(60);
    std::fill_n(frame.begin(), 6, std::uint8_t{0xFF});
    std::copy(mac.bytes.begin(), mac.bytes.end(), frame.begin() + 6);
    wire::store_be16(&frame[12], 0x0806);
    const std::uint8_t fixed[] = {0, 1, 8, 0, 6, 4, 0, operation};
    std::copy(std::begin(fixed), std::end(fixed), frame.begin() + 14);
    std::copy(mac.bytes.begin(), mac.bytes.end(), frame.begin() + 22);
    wire::store_be32(&frame[28], ip.value);
    wire::store_be32(&frame[38], ip.value);
    fake.server.send(frame);
    for (int i = 0; i < 20; ++i) {
      CHECK(port->receive().empty());
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  };
  CHECK(destination() == wire::to_string(switch_mac));
  const wire::Mac other{{2, 0, 0, 0, 1, 0x77}}, group{{3, 0, 0, 0, 1, 0x77}};
  announce(group, switch_ip, 1);
  announce(other, {switch_ip.value - 1}, 1);
  announce(other, switch_ip, 3);
  CHECK(destination() == wire::to_string(switch_mac));
  announce(other, switch_ip, 1);
  CHECK(destination() == wire::to_string(other));
  announce(switch_mac, switch_ip, 2);
  CHECK(destination() == wire::to_string(switch_mac));
}

TEST_CASE("a switch that nobody knows is told, in time and in one line") {
  FakeSwitch fake;
  const auto begin = std::chrono::steady_clock::now();
  CHECK(fake.open(1, false) == nullptr);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
  CHECK_THAT(fake.problem, Contains("nobody answers to ARP for 10.77.0.254") &&
                               Contains("waited 250 ms") && !Contains("\n"));
}

TEST_CASE("frames longer than the MTU are not sent, and told") {
  FakeSwitch fake;
  const auto port = fake.open();
  REQUIRE(port);
  const Frame payload(8'960);  // 9,010 bytes with its IPv4 header
  const Outgoing datagram = contribution(0, payload);
  port->send({&datagram, 1}, 0);
  CHECK(port->too_long());
  CHECK(port->counts().send_errors == 1);
  CHECK_FALSE(fake.server.receive());
}
