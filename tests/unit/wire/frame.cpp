#include "wire/frame.h"

#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <vector>

#include "golden/golden.h"
#include "slow.h"

using namespace iswitch;
using namespace iswitch::wire;
using slow::FrameBytes;

namespace {

const Endpoint switch_end{*parse_mac("02:00:00:00:00:fe"), *parse_ipv4("10.77.0.254"), 17170};
const Endpoint worker_end{*parse_mac("02:00:00:00:01:00"), *parse_ipv4("10.77.0.1"), 40001};

FrameRules rules_with(std::uint16_t ports) {
  FrameRules rules;
  rules.ip = switch_end.ip;
  rules.ports = ports;
  return rules;
}
const FrameRules rules = rules_with(4);

FrameBytes contribution(std::size_t payload = 16) {
  Header header;
  header.job = 1;
  header.set = contribution_set(7, 1);
  FrameBytes bytes(payload);
  for (std::size_t i = 0; i < payload; ++i) bytes[i] = static_cast<std::uint8_t>(i + 1);
  return slow::frame({worker_end, switch_end, 0xAE}, header, bytes);
}

FrameBytes ping() {
  Header header;
  header.type = Type::request;
  header.flags = 9;
  return slow::frame({worker_end, switch_end, 0xBC}, header, FrameBytes(16));
}

/// Parses a copy that ends where the frame ends, so that the address sanitizer sees every byte read
/// too far.
ParsedFrame parse(const FrameBytes& frame, Offload offload = {}, const FrameRules& with = rules) {
  const FrameBytes exact(frame.begin(), frame.end());
  Packet packet;
  return parse_frame(with, exact, offload, packet);
}

bool is_ordinary(const FrameBytes& frame) {
  const ParsedFrame parsed = parse(frame);
  return parsed.origin == Origin::ordinary && parsed.fault == Fault::none;
}

bool is_good(const FrameBytes& frame, Offload offload = {}) {
  const ParsedFrame parsed = parse(frame, offload);
  return parsed.origin == Origin::ours && parsed.fault == Fault::none;
}

bool is_fault(const FrameBytes& frame, Fault fault, Offload offload = {}) {
  const ParsedFrame parsed = parse(frame, offload);
  INFO("got " << fault_name(parsed.fault) << " instead of " << fault_name(fault));
  CHECK(parsed.origin == Origin::ours);
  CHECK(parsed.fault == fault);
  return parsed.origin == Origin::ours && parsed.fault == fault;
}

/// A frame with one thing changed and the checksums right again.
FrameBytes changed(FrameBytes frame, const std::function<void(FrameBytes&)>& change) {
  change(frame);
  slow::fix_checksums(frame);
  return frame;
}

FrameBytes with_tag(FrameBytes frame, std::uint16_t type) {
  const std::uint8_t tag[] = {static_cast<std::uint8_t>(type / 256),
                              static_cast<std::uint8_t>(type % 256), 0x00, 0x05};
  frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
  return frame;
}

FrameBytes with_options(FrameBytes frame) {
  frame[14] = 0x46;
  frame.insert(frame.begin() + 34, 4, 0x01);
  slow::put16(frame, 16, static_cast<std::uint16_t>(slow::get16(frame, 16) + 4));
  slow::fix_ip_checksum(frame);
  return frame;
}

}  // namespace

TEST_CASE("a good frame is taken apart", "[frame]") {
  FrameBytes frame = contribution();
  Packet packet;
  const ParsedFrame parsed = parse_frame(rules, frame, {}, packet);
  REQUIRE(parsed.origin == Origin::ours);
  REQUIRE(parsed.fault == Fault::none);
  CHECK(packet.source == worker_end);
  CHECK(packet.destination_mac == switch_end.mac);
  CHECK(packet.destination_port == 17170);
  CHECK(packet.ecn == Ecn::ect0);
  CHECK(packet.message.header.job == 1);
  CHECK(packet.message.payload.data() == frame.data() + payload_offset);
  CHECK(packet.message.payload.size() == 16);
}

TEST_CASE("the two ECN bits are no part of the DSCP", "[frame]") {
  for (unsigned ecn = 0; ecn < 4; ++ecn) {
    const FrameBytes frame = changed(
        contribution(), [&](FrameBytes& f) { f[15] = static_cast<std::uint8_t>(0xAC | ecn); });
    Packet packet;
    CHECK(parse_frame(rules, frame, {}, packet).fault == Fault::none);
    CHECK(static_cast<unsigned>(packet.ecn) == ecn);
  }
}

TEST_CASE("what is not addressed to us is ordinary", "[frame]") {
  const auto set = [](std::size_t at, unsigned value) {
    return changed(contribution(),
                   [&](FrameBytes& f) { f[at] = static_cast<std::uint8_t>(value); });
  };
  CHECK(is_ordinary({}));
  CHECK(is_ordinary(set(33, 253)));   // another destination
  CHECK(is_ordinary(set(15, 0x00)));  // best effort
  CHECK(is_ordinary(set(15, 0xB8)));  // expedited forwarding
  CHECK(is_ordinary(set(15, 0xA8)));
  CHECK(is_ordinary(set(37, 0x11)));  // port base - 1
  CHECK(is_ordinary(set(37, 0x16)));  // port base + ports
  CHECK(is_good(set(37, 0x15)));      // the last of them
  CHECK(is_ordinary(set(36, 0x9C)));  // far away
  CHECK(is_ordinary(changed(contribution(), [](FrameBytes& f) { f[23] = 6; })));  // TCP
  CHECK(is_ordinary(changed(contribution(), [](FrameBytes& f) { f[23] = 1; })));  // ICMP
  CHECK(is_ordinary(set(14, 0x65)));                                              // no IPv4 at all
  CHECK(is_ordinary(set(12, 0x86)));  // EtherType 0x8600
  FrameBytes arp = contribution();
  slow::put16(arp, 12, 0x0806);
  CHECK(is_ordinary(arp));
  FrameBytes ipv6 = contribution();
  slow::put16(ipv6, 12, 0x86DD);
  CHECK(is_ordinary(ipv6));
}

TEST_CASE("an ordinary frame may be as broken as it likes, and the packet is left alone",
          "[frame]") {
  FrameBytes frame = contribution();
  frame[33] = 1;  // another destination, hence two wrong checksums as well
  Packet packet;
  packet.destination_port = 4711;
  packet.message.header.job = 99;
  const ParsedFrame parsed = parse_frame(rules, frame, {}, packet);
  CHECK(parsed.origin == Origin::ordinary);
  CHECK(parsed.fault == Fault::none);
  CHECK(packet.destination_port == 4711);
  CHECK(packet.message.header.job == 99);
}

TEST_CASE("ports are a range that may touch 65535", "[frame]") {
  FrameRules high = rules;
  high.udp_port = 65534;
  high.ports = 2;
  for (const std::uint16_t port : {65533, 65534, 65535, 0, 1}) {
    const FrameBytes frame =
        changed(contribution(), [&](FrameBytes& f) { slow::put16(f, 36, port); });
    INFO("port " << port);
    CHECK((parse(frame, {}, high).origin == Origin::ours) == (port >= 65534));
  }
}

TEST_CASE("a frame is for the shard at whose port it is addressed, everything else for the first",
          "[frame]") {
  const auto at_port = [](std::uint16_t port) {
    return changed(contribution(), [&](FrameBytes& f) { slow::put16(f, 36, port); });
  };
  for (const std::uint16_t port : {17169, 17170, 17171, 17172, 17173, 17174})
    CHECK(shard_of(rules, at_port(port)) == (port > 17170 && port < 17174 ? port - 17170 : 0));
  CHECK(shard_of(rules, ping()) == 0);
  const FrameBytes third = at_port(17172);
  CHECK(shard_of(rules, changed(third, [](FrameBytes& f) { f[33] ^= 1; })) == 0);    // another host
  CHECK(shard_of(rules, changed(third, [](FrameBytes& f) { f[23] = 6; })) == 0);     // TCP
  CHECK(shard_of(rules, changed(third, [](FrameBytes& f) { f[20] = 0x20; })) == 0);  // a fragment
  CHECK(shard_of(rules, with_options(third)) == 0);
  CHECK(shard_of(rules, with_tag(third, 0x8100)) == 0);
  for (std::size_t size = 0; size < third.size(); ++size) {
    const FrameBytes cut(third.begin(), third.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(shard_of(rules, cut) == (size < encapsulation_bytes ? 0 : 2));
  }
}

TEST_CASE("other DSCPs can be agreed", "[frame]") {
  FrameRules other = rules;
  other.data_tos = 0x20;
  other.control_tos = 0x40;
  const FrameBytes frame = changed(contribution(), [](FrameBytes& f) { f[15] = 0x22; });
  CHECK(parse(frame, {}, other).origin == Origin::ours);
  CHECK(parse(frame, {}, other).fault == Fault::none);
  CHECK(parse(contribution(), {}, other).origin == Origin::ordinary);
}

TEST_CASE("cut anywhere, a frame of ours is truncated as soon as it is known to be ours",
          "[frame]") {
  for (const auto& golden : golden::wire_set().frames) {
    if (golden.malformed) continue;
    const FrameRules receiver = golden::wire_set().rules_for(golden);
    const std::size_t whole = 14 + std::size_t{slow::get16(golden.bytes, 16)};
    for (std::size_t size = 0; size < whole; ++size) {
      FrameBytes cut(golden.bytes.begin(),
                     golden.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      for (const bool offloaded : {false, true}) {
        const ParsedFrame parsed = parse(cut, {offloaded, offloaded}, receiver);
        INFO(golden.name << " cut to " << size);
        REQUIRE(parsed.origin == (size < 34 ? Origin::ordinary : Origin::ours));
        REQUIRE(parsed.fault == (size < 34 ? Fault::none : Fault::truncated));
      }
    }
  }
}

TEST_CASE("total lengths that the frame does not have", "[frame]") {
  const auto total = [](std::uint16_t value) {
    FrameBytes frame = contribution();
    slow::put16(frame, 16, value);
    slow::fix_ip_checksum(frame);
    return frame;
  };
  const auto whole = static_cast<std::uint16_t>(contribution().size() - 14);
  CHECK(is_fault(total(static_cast<std::uint16_t>(whole + 1)), Fault::truncated));
  CHECK(is_fault(total(65535), Fault::truncated));
  CHECK(is_fault(total(0), Fault::truncated));
  CHECK(is_fault(total(20), Fault::truncated));
  CHECK(is_fault(total(27), Fault::truncated));
  CHECK(is_fault(total(28), Fault::udp_length));
  CHECK(is_fault(total(static_cast<std::uint16_t>(whole - 4)), Fault::udp_length));
}

TEST_CASE("bytes after the total length are padding", "[frame]") {
  for (std::size_t padding = 1; padding < 70; padding += 3) {
    FrameBytes frame = contribution(4);
    frame.insert(frame.end(), padding, 0xEE);
    Packet packet;
    CHECK(parse_frame(rules, frame, {}, packet).fault == Fault::none);
    CHECK(packet.message.payload.size() == 4);
  }
}

TEST_CASE("VLAN tags in front of a packet of ours", "[frame]") {
  CHECK(is_fault(with_tag(contribution(), 0x8100), Fault::vlan));
  CHECK(is_fault(with_tag(contribution(), 0x88A8), Fault::vlan));
  CHECK(is_fault(with_tag(with_tag(contribution(), 0x8100), 0x88A8), Fault::vlan));
  CHECK(is_fault(with_tag(ping(), 0x8100), Fault::vlan));
  CHECK(is_fault(with_tag(with_options(contribution()), 0x8100), Fault::vlan));

  FrameBytes elsewhere = contribution();
  elsewhere[33] = 1;
  CHECK(is_ordinary(with_tag(elsewhere, 0x8100)));
  FrameBytes best_effort = contribution();
  best_effort[15] = 0;
  CHECK(is_ordinary(with_tag(best_effort, 0x8100)));
  FrameBytes other_port = contribution();
  slow::put16(other_port, 36, 53);
  CHECK(is_ordinary(with_tag(other_port, 0x8100)));
  FrameBytes arp = contribution();
  slow::put16(arp, 12, 0x0806);
  CHECK(is_ordinary(with_tag(arp, 0x8100)));
}

TEST_CASE("a tagged frame cut anywhere", "[frame]") {
  for (const FrameBytes& whole :
       {with_tag(contribution(), 0x8100), with_tag(with_tag(contribution(), 0x8100), 0x88A8)}) {
    const std::size_t tags = whole.size() - contribution().size();
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      const ParsedFrame parsed =
          parse({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
      INFO(size << " bytes, of these tags " << tags);
      REQUIRE(parsed.origin == (size < 34 + tags ? Origin::ordinary : Origin::ours));
      REQUIRE(parsed.fault == (size < 34 + tags ? Fault::none : Fault::vlan));
    }
  }
}

TEST_CASE("nothing but tags", "[frame]") {
  FrameBytes frame(12);
  for (int i = 0; i < 400; ++i) frame.insert(frame.end(), {0x81, 0x00, 0x00, 0x01});
  CHECK(is_ordinary(frame));
}

TEST_CASE("IP options, and headers that claim to be too short", "[frame]") {
  CHECK(is_fault(with_options(contribution()), Fault::ip_options));
  CHECK(is_fault(with_options(ping()), Fault::ip_options));
  for (unsigned ihl = 0; ihl < 16; ++ihl) {
    if (ihl == 5) continue;
    FrameBytes frame = contribution();
    frame[14] = static_cast<std::uint8_t>(0x40 | ihl);
    INFO("IHL " << ihl);
    CHECK(is_fault(frame, Fault::ip_options));
    frame.resize(34);
    CHECK(is_fault(frame, Fault::ip_options));
  }
}

TEST_CASE("fragments to us, the first and the others", "[frame]") {
  for (const std::uint16_t field : {0x2000, 0x2001, 0x0001, 0x1FFF, 0x6000, 0x4001}) {
    const FrameBytes frame =
        changed(contribution(), [&](FrameBytes& f) { slow::put16(f, 20, field); });
    INFO("flags and offset " << field);
    CHECK(is_fault(frame, Fault::fragment));
  }
  // Whatever a later fragment has where the ports were.
  CHECK(is_fault(changed(contribution(),
                         [](FrameBytes& f) {
                           slow::put16(f, 20, 0x00B9);
                           slow::put16(f, 36, 0x1234);
                         }),
                 Fault::fragment));
  // Neither DF nor its absence makes a fragment.
  CHECK(is_good(changed(contribution(), [](FrameBytes& f) { slow::put16(f, 20, 0); })));
}

TEST_CASE("identification and TTL are not ours to judge", "[frame]") {
  CHECK(is_good(changed(contribution(), [](FrameBytes& f) {
    slow::put16(f, 18, 0xBEEF);
    f[22] = 1;
  })));
}

TEST_CASE("IPv4 header checksum", "[frame]") {
  FrameBytes frame = contribution();
  slow::put16(frame, 24, static_cast<std::uint16_t>(slow::get16(frame, 24) + 1));
  CHECK(is_fault(frame, Fault::ip_checksum));
  CHECK(is_good(frame, {true, false}));
  slow::put16(frame, 24, 0);
  CHECK(is_fault(frame, Fault::ip_checksum, {false, true}));
}

TEST_CASE("UDP checksum: verified, unless it is 0 or the port has verified it", "[frame]") {
  FrameBytes frame = contribution();
  slow::put16(frame, 40, static_cast<std::uint16_t>(slow::get16(frame, 40) ^ 0x0100));
  CHECK(is_fault(frame, Fault::udp_checksum));
  CHECK(is_fault(frame, Fault::udp_checksum, {true, false}));
  CHECK(is_good(frame, {false, true}));
  slow::put16(frame, 40, 0);
  CHECK(is_good(frame));
}

TEST_CASE("UDP length", "[frame]") {
  for (const int off : {-1, 1, 4, -4, -46}) {
    FrameBytes frame = contribution();
    slow::put16(frame, 38, static_cast<std::uint16_t>(slow::get16(frame, 38) + off));
    INFO("off by " << off);
    CHECK(is_fault(frame, Fault::udp_length));
    CHECK(is_fault(frame, Fault::udp_length, {true, true}));
  }
}

TEST_CASE("a frame's message has every fault a message has", "[frame]") {
  const auto set = [](FrameBytes frame, std::size_t at, unsigned value) {
    return changed(std::move(frame),
                   [&](FrameBytes& f) { f[at] = static_cast<std::uint8_t>(value); });
  };
  const auto resized = [](FrameBytes frame, std::size_t message) {
    return changed(std::move(frame), [&](FrameBytes& f) {
      f.resize(42 + message);
      slow::put16(f, 16, static_cast<std::uint16_t>(28 + message));
      slow::put16(f, 38, static_cast<std::uint16_t>(8 + message));
    });
  };
  CHECK(is_fault(resized(contribution(), 21), Fault::short_header));
  CHECK(is_fault(resized(contribution(), 0), Fault::short_header));
  CHECK(is_fault(set(contribution(), 42, 0x20), Fault::version));
  CHECK(is_fault(set(contribution(), 42, 0x14), Fault::type));
  CHECK(is_fault(set(contribution(), 43, 0x04), Fault::reserved_bits));
  CHECK(is_fault(resized(contribution(), 22 + 6), Fault::payload_alignment));
  CHECK(is_fault(contribution(8932), Fault::payload_length));
  CHECK(is_fault(set(ping(), 43, 11), Fault::action));
  CHECK(is_fault(resized(ping(), 22 + 15), Fault::control_length));
  CHECK(is_fault(resized(ping(), 22 + 17), Fault::control_length));
  CHECK(is_fault(set(ping(), 55, 1), Fault::control_fields));
}

TEST_CASE("data and control each have their own DSCP", "[frame]") {
  CHECK(is_good(contribution()));
  CHECK(is_good(ping()));
  CHECK(is_fault(changed(contribution(), [](FrameBytes& f) { f[15] = 0xBC; }), Fault::type));
  CHECK(is_fault(changed(ping(), [](FrameBytes& f) { f[15] = 0xAE; }), Fault::type));
}

TEST_CASE("control goes to base", "[frame]") {
  for (const std::uint16_t port : {17171, 17173}) {
    const auto to_port = [&](FrameBytes& f) { slow::put16(f, 36, port); };
    CHECK(is_fault(changed(ping(), to_port), Fault::control_port));
    CHECK(is_good(changed(contribution(), to_port)));
  }
}

TEST_CASE("a single bit flipped never passes the checksums", "[frame]") {
  for (const auto& golden : golden::wire_set().frames) {
    // A frame that says it has no checksum protects its IPv4 header alone.
    if (golden.malformed || golden.udp_checksum == std::uint16_t{0}) continue;
    const FrameRules receiver = golden::wire_set().rules_for(golden);
    const std::size_t whole = 14 + std::size_t{slow::get16(golden.bytes, 16)};
    FrameBytes frame = golden.bytes;
    for (std::size_t bit = 96; bit < 8 * whole; ++bit) {
      const auto mask = static_cast<std::uint8_t>(1u << bit % 8);
      frame[bit / 8] ^= mask;
      Packet packet;
      const ParsedFrame parsed = parse_frame(receiver, frame, {}, packet);
      frame[bit / 8] ^= mask;
      if (parsed.origin == Origin::ours && parsed.fault == Fault::none) {
        INFO(golden.name << ", bit " << bit % 8 << " of byte " << bit / 8);
        FAIL("passed");
      }
    }
  }
}

TEST_CASE("a flipped bit in an offloaded frame is told by the rules or passes, and never crashes",
          "[frame]") {
  for (const auto& golden : golden::wire_set().frames) {
    const FrameRules receiver = golden::wire_set().rules_for(golden);
    for (std::size_t bit = 0; bit < 8 * golden.bytes.size(); ++bit) {
      if (bit > 800 && bit % 97 != 0) continue;  // payload bits are all alike
      FrameBytes frame(golden.bytes);
      frame[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
      const ParsedFrame parsed = parse(frame, {true, true}, receiver);
      REQUIRE(parsed.fault < Fault::count_);
      REQUIRE((parsed.origin == Origin::ours || parsed.fault == Fault::none));
    }
  }
}

TEST_CASE("random bytes are ordinary or a fault", "[frame]") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  unsigned faults = 0;
  for (int i = 0; i < 20000; ++i) {
    FrameBytes frame(random() % 120);
    for (auto& byte : frame) byte = static_cast<std::uint8_t>(random());
    if (frame.size() >= 34 && i % 2 == 0) {  // as far as being ours
      slow::put16(frame, 12, 0x0800);
      frame[14] = static_cast<std::uint8_t>(0x40 | random() % 16);
      frame[15] = 0xAE;
      frame[23] = 17;
      slow::put32(frame, 30, switch_end.ip.value);
    }
    const ParsedFrame parsed = parse(frame);
    REQUIRE((parsed.origin == Origin::ordinary) == (parsed.fault == Fault::none));
    if (parsed.origin == Origin::ours) ++faults;
  }
  CHECK(faults > 5000);
}

TEST_CASE("written frames are those of the obvious way", "[frame]") {
  std::mt19937_64 random(9);
  for (int i = 0; i < 200; ++i) {
    Route route{worker_end, switch_end, static_cast<std::uint8_t>(random())};
    route.from.ip.value = static_cast<std::uint32_t>(random());
    route.to.udp_port = static_cast<std::uint16_t>(random());
    Header header;
    header.round = static_cast<std::uint32_t>(random());
    header.set = random();
    FrameBytes payload(random() % 1500);
    for (auto& byte : payload) byte = static_cast<std::uint8_t>(random());
    FrameBytes frame(payload_offset + payload.size(), 0xEE);
    write_encapsulation(route, header_bytes + payload.size(), frame.data());
    write_header(header, frame.data() + encapsulation_bytes);
    std::copy(payload.begin(), payload.end(), frame.begin() + payload_offset);
    CHECK(slow::get16(frame, 40) == 0);
    set_udp_checksum(frame);
    REQUIRE(frame == slow::frame(route, header, payload));
    // Set again, and over padding, it is the same.
    FrameBytes padded = frame;
    padded.insert(padded.end(), 7, 0xEE);
    set_udp_checksum(padded);
    padded.resize(frame.size());
    REQUIRE(padded == frame);
  }
}

TEST_CASE("a frame too short for a UDP header is left alone", "[frame]") {
  for (std::size_t size = 0; size < encapsulation_bytes; ++size) {
    FrameBytes frame(size, 0x11);
    set_udp_checksum(frame);
    CHECK(frame == FrameBytes(size, 0x11));
  }
}
