// Every reason for which a frame ends somewhere else than in a sum: one frame, one counter.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>

#include "tests/unit/pipeline/rig.h"
#include "wire/bytes.h"
#include "wire/checksum.h"
#include "wire/control.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

constexpr std::size_t ip_at = wire::ethernet_bytes;
constexpr std::size_t udp_at = ip_at + wire::ipv4_bytes;

Part right_part() { return {.member = 0, .round = 0, .segment = 1, .floats = {1, 2}}; }

void mend_checksums(FrameBytes& frame) {
  std::memset(frame.data() + ip_at + 10, 0, 2);
  const std::uint16_t field =
      wire::checksum_field(wire::partial_sum({frame.data() + ip_at, wire::ipv4_bytes}));
  std::memcpy(frame.data() + ip_at + 10, &field, 2);
  wire::set_udp_checksum(frame);
}

FrameBytes control_frame(wire::ControlDatagram datagram, std::uint16_t port,
                         std::uint8_t tos = wire::FrameRules{}.control_tos) {
  FrameBytes frame(wire::encapsulation_bytes + datagram.size);
  wire::write_encapsulation({endpoint_of(0), {switch_mac, switch_ip, port}, tos}, datagram.size,
                            frame.data());
  std::memcpy(frame.data() + wire::encapsulation_bytes, datagram.bytes.data(), datagram.size);
  wire::set_udp_checksum(frame);
  return frame;
}

FrameBytes ping(std::uint16_t port = wire::default_udp_port) {
  return control_frame(
      wire::write_plain_request({.action = wire::Action::ping, .job = 1, .member = 0}, {}), port);
}

/// One frame into a running job of two members: the counter it ends in.
Counter ending_of(const FrameBytes& frame, PortId ingress = 0, Rig* given = nullptr) {
  std::optional<Rig> own;
  if (given == nullptr) {
    own.emplace();
    own->make_job(small_job(), 2);
    given = &*own;
  }
  std::vector<std::uint64_t> before;
  pipeline::for_each_counter(given->pipeline().counters(),
                             [&](const char*, std::uint64_t v, bool) { before.push_back(v); });
  given->run({{frame, ingress}});
  Counter ended = Counter::count_;
  for (std::size_t i = 0; i < pipeline::counter_count; ++i) {
    const auto counter = static_cast<Counter>(i);
    if (!pipeline::counter_is_terminal(counter) || given->count(counter) == before[i]) continue;
    CHECK(ended == Counter::count_);
    ended = counter;
  }
  return ended;
}

Counter ending_of(const Part& part, Rig* given = nullptr) {
  return ending_of(make_frame(part), part.ingress.value_or(port_of(part.member)), given);
}

/// The right frame after a change; checksums mended unless the change is about them.
Counter ending_after(const std::function<void(FrameBytes&)>& change, bool mend = true) {
  FrameBytes frame = make_frame(right_part());
  change(frame);
  if (mend) mend_checksums(frame);
  return ending_of(frame);
}

}  // namespace

TEST_CASE("the right frame is added") {
  CHECK(ending_of(right_part()) == Counter::aggregate_added);
  CHECK(ending_after([](FrameBytes&) {}) == Counter::aggregate_added);
  // Padding behind the IPv4 length is nobody's business.
  CHECK(ending_after([](FrameBytes& f) { f.resize(f.size() + 30, 0xEE); }, false) ==
        Counter::aggregate_added);
  // No UDP checksum is a right one.
  CHECK(ending_after([](FrameBytes& f) { wire::store_be16(f.data() + udp_at + 6, 0); }, false) ==
        Counter::aggregate_added);
}

TEST_CASE("parse drops: one counter for each fault") {
  CHECK(ending_after([](FrameBytes& f) { f.resize(f.size() - 1); }, false) ==
        Counter::parse_drop_truncated);
  CHECK(ending_after(
            [](FrameBytes& f) {
              const FrameBytes tag{0x81, 0x00, 0x00, 0x05};
              f.insert(f.begin() + 12, tag.begin(), tag.end());
            },
            false) == Counter::parse_drop_vlan);
  CHECK(ending_after([](FrameBytes& f) { f[ip_at] = 0x46; }) == Counter::parse_drop_ip_options);
  CHECK(ending_after([](FrameBytes& f) { f[ip_at + 6] = 0x20; }) == Counter::parse_drop_fragment);
  CHECK(ending_after([](FrameBytes& f) { f[ip_at + 10] ^= 1; }, false) ==
        Counter::parse_drop_ip_checksum);
  CHECK(ending_after([](FrameBytes& f) { f[udp_at + 5] ^= 4; }, false) ==
        Counter::parse_drop_udp_length);
  CHECK(ending_after([](FrameBytes& f) { f.back() ^= 1; }, false) ==
        Counter::parse_drop_udp_checksum);
  CHECK(ending_after([](FrameBytes& f) { f[42] = 0x20; }) == Counter::parse_drop_version);
  CHECK(ending_after([](FrameBytes& f) { f[42] = 0x14; }) == Counter::parse_drop_type);
  CHECK(ending_after([](FrameBytes& f) { f[43] = 0x04; }) == Counter::parse_drop_reserved_bits);
  const auto with_payload = [](std::size_t bytes) {
    FrameBytes frame(wire::payload_offset + bytes);
    wire::write_encapsulation({endpoint_of(0),
                               {switch_mac, switch_ip, wire::default_udp_port},
                               wire::FrameRules{}.data_tos},
                              wire::header_bytes + bytes, frame.data());
    wire::write_header({.job = 1, .set = 1}, frame.data() + wire::encapsulation_bytes);
    wire::set_udp_checksum(frame);
    return frame;
  };
  CHECK(ending_of(with_payload(6)) == Counter::parse_drop_payload_alignment);
  CHECK(ending_of(with_payload(8932)) == Counter::parse_drop_payload_length);
  FrameBytes shorter(wire::encapsulation_bytes + 21);
  wire::write_encapsulation({endpoint_of(0),
                             {switch_mac, switch_ip, wire::default_udp_port},
                             wire::FrameRules{}.data_tos},
                            21, shorter.data());
  wire::set_udp_checksum(shorter);
  CHECK(ending_of(shorter) == Counter::parse_drop_short_header);

  FrameBytes control = ping();
  control[43] = 77;
  mend_checksums(control);
  CHECK(ending_of(control) == Counter::parse_drop_action);
  control = ping();
  control[42 + 13] = 1;  // segment
  mend_checksums(control);
  CHECK(ending_of(control) == Counter::parse_drop_control_fields);
  wire::ControlDatagram longer =
      wire::write_plain_request({.action = wire::Action::ping, .job = 1, .member = 0}, {});
  longer.size += 4;
  CHECK(ending_of(control_frame(longer, wire::default_udp_port)) ==
        Counter::parse_drop_control_length);
}

TEST_CASE("parse drops: control on another shard's port") {
  Rig rig({.shards = 4});
  CHECK(ending_of(ping(wire::default_udp_port + 1), 0, &rig) == Counter::parse_drop_control_port);
  CHECK(ending_of(ping(), 0, &rig) == Counter::control_passed);
}

TEST_CASE("what the port has verified is not verified again") {
  Rig rig;
  rig.make_job(small_job(), 2);
  FrameBytes frame = make_frame(right_part());
  frame[udp_at + 6] ^= 1;  // checksum field
  const pipeline::Frame received{.bytes = frame.data(),
                                 .size = static_cast<std::uint32_t>(frame.size()),
                                 .port = 0,
                                 .offload = {.ip_checksum_good = true, .udp_checksum_good = true}};
  rig.pipeline().run({&received, 1}, 0, rig.sink);
  CHECK(rig.count(Counter::aggregate_added) == 1);
}

TEST_CASE("classify drops: who sent it") {
  Part part = right_part();
  part.job = 2;
  CHECK(ending_of(part) == Counter::classify_drop_unknown_job);
  part = right_part();
  part.member = 2;  // no such row
  CHECK(ending_of(part) == Counter::classify_drop_not_a_member);
  part.member = wire::no_member;
  part.ingress = 0;
  CHECK(ending_of(part) == Counter::classify_drop_not_a_member);
  part.member = 64;
  CHECK(ending_of(part) == Counter::classify_drop_not_a_member);
  // Another member's id, IP, UDP port, ingress port: a third party cannot add to a sum.
  part = right_part();
  part.source = endpoint_of(1);
  CHECK(ending_of(part) == Counter::classify_drop_not_a_member);
  part.source = endpoint_of(0);
  ++part.source->udp_port;
  CHECK(ending_of(part) == Counter::classify_drop_not_a_member);
  part.source = endpoint_of(0);
  ++part.source->ip.value;
  CHECK(ending_of(part) == Counter::classify_drop_not_a_member);
  part = right_part();
  part.ingress = 1;
  CHECK(ending_of(part) == Counter::classify_drop_not_a_member);
  // The MAC may differ: a router in between, a new card.
  part = right_part();
  part.source = endpoint_of(0);
  part.source->mac = {{2, 9, 9, 9, 9, 9}};
  CHECK(ending_of(part) == Counter::aggregate_added);
}

TEST_CASE("classify drops: what it says") {
  Part part = right_part();
  part.type = wire::Type::result;
  CHECK(ending_of(part) == Counter::classify_drop_result);
  part = right_part();
  part.segment = 4;
  CHECK(ending_of(part) == Counter::classify_drop_segment);
  part.segment = 0xFFFF'FFFF;
  CHECK(ending_of(part) == Counter::classify_drop_segment);
  for (const std::uint8_t type : {1, 2, 3}) {
    part = right_part();
    part.flags = type;
    CHECK(ending_of(part) == Counter::classify_drop_data_type);
  }
  part = right_part();
  part.floats.assign(16, 1);
  CHECK(ending_of(part) == Counter::aggregate_added);
  part.floats.assign(17, 1);
  CHECK(ending_of(part) == Counter::classify_drop_length);
  for (const std::uint32_t workers : {0u, 2u, 0x10001u}) {
    part = right_part();
    part.workers = workers;
    CHECK(ending_of(part) == Counter::classify_drop_workers);
  }
}

TEST_CASE("classify drops: worker counts of a child switch") {
  Rig rig;
  rig.make_job(small_job(), 2);
  rig.put(0, 1, wire::MemberKind::child_switch);
  Part part = right_part();
  part.workers = 0;
  CHECK(ending_of(part, &rig) == Counter::classify_drop_workers);
  part.workers = 0x1'0000;
  CHECK(ending_of(part, &rig) == Counter::classify_drop_workers);
  part.workers = 0xFFFF;
  CHECK(ending_of(part, &rig) == Counter::aggregate_added);
}

TEST_CASE("classify drops: a job that is not running") {
  Rig rig;
  REQUIRE(rig.order(datapath::Install{small_job()}).ok);
  rig.put(0);
  rig.put(1);
  CHECK(ending_of(right_part(), &rig) == Counter::classify_drop_forming);
  auto notices = rig.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].kind == Notice::Kind::not_running);
  CHECK(notices[0].member == 0);
  rig.order(datapath::Start{0});
  CHECK(ending_of(right_part(), &rig) == Counter::aggregate_added);
  rig.order(datapath::SetHalted{true});
  rig.now += second;
  CHECK(ending_of(right_part(), &rig) == Counter::classify_drop_halted);
  CHECK(rig.take_notices().size() == 1);
  rig.order(datapath::SetHalted{false});
  CHECK(ending_of(right_part(), &rig) == Counter::aggregate_drop_duplicate);
  rig.order(datapath::Stop{});
  CHECK(ending_of(right_part(), &rig) == Counter::classify_drop_forming);
  CHECK(rig.job_count(JobCounter::refused) == 3);
  CHECK(rig.job_count(JobCounter::contributions) == 5);
}

TEST_CASE("aggregate drops: memory exhausted, and the retransmission that recovers it") {
  Rig rig({.buffers = 1});
  rig.make_job(small_job(), 2);
  Part first = right_part();
  Part other = right_part();
  other.segment = 2;
  CHECK(ending_of(first, &rig) == Counter::aggregate_added);
  CHECK(ending_of(other, &rig) == Counter::aggregate_drop_no_buffer);
  CHECK(rig.job_count(JobCounter::no_buffer) == 1);
  CHECK(rig.order(datapath::ListSlots{10}).open.size() == 1);  // nothing was opened

  // An empty one needs no memory; what follows into the same sum does.
  Part empty = other;
  empty.floats.clear();
  empty.member = 1;
  CHECK(ending_of(empty, &rig) == Counter::aggregate_added);
  CHECK(ending_of(other, &rig) == Counter::aggregate_drop_no_buffer);
  CHECK(rig.take_results().empty());

  rig.pool.set_capacity(2);
  CHECK(ending_of(other, &rig) == Counter::aggregate_added);
  const auto results = rig.take_results();
  REQUIRE(results.size() == 1);
  CHECK(results[0].floats == std::vector<float>{1, 2});
}

TEST_CASE("control: passed on cut to its length, dropped when the ring is full") {
  Rig rig;
  FrameBytes frame = ping();
  const std::size_t size = frame.size();
  frame.resize(size + 17, 0xEE);  // Ethernet padding
  rig.now = 5;
  rig.run({{frame, 3}});
  CHECK(rig.count(Counter::control_passed) == 1);
  REQUIRE(rig.sink.controls.size() == 1);
  CHECK(rig.sink.controls[0].ingress == 3);
  CHECK(rig.sink.controls[0].size == size);
  CHECK(std::equal(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size),
                   rig.sink.controls[0].view().begin()));
  rig.sink.control_room = 0;
  rig.run({{frame, 3}});
  CHECK(rig.count(Counter::control_drop_full) == 1);

  // The longest control message fits.
  rig.sink.control_room = 1;
  const auto longest = wire::write_rejoin({.action = wire::Action::rejoin, .job = 1}, {}, {});
  CHECK(longest.size == wire::max_control_bytes);
  rig.run({{control_frame(longest, wire::default_udp_port), 3}});
  CHECK(rig.sink.controls.back().size == wire::encapsulation_bytes + wire::max_control_bytes);
}

TEST_CASE("ordinary frames: switched, and a host that only spoke to the switch is known") {
  Rig rig;
  rig.pipeline().set_ports(0b1111);
  FrameBytes frame(60, 0);
  const wire::Mac to = endpoint_of(0).mac;
  std::memcpy(frame.data(), to.bytes.data(), 6);
  std::memcpy(frame.data() + 6, endpoint_of(9).mac.bytes.data(), 6);
  CHECK(ending_of(frame, 1, &rig) == Counter::l2_flooded);
  REQUIRE(rig.sink.forwarded.size() == 1);
  CHECK(rig.sink.forwarded[0] == std::pair{0u, PortMask{0b1101}});
  CHECK(rig.pipeline().forwarded(0) == 1);

  CHECK(ending_of(ping(), 3, &rig) == Counter::control_passed);
  CHECK(ending_of(frame, 1, &rig) == Counter::l2_forwarded);
  CHECK(rig.sink.forwarded.back() == std::pair{0u, PortMask{0b1000}});
  CHECK(rig.pipeline().forwarded(3) == 2);

  // A port that goes down takes what was learned there with it.
  rig.pipeline().set_ports(0b0111);
  CHECK(ending_of(frame, 1, &rig) == Counter::l2_flooded);
  CHECK(rig.sink.forwarded.back() == std::pair{0u, PortMask{0b0101}});
  rig.pipeline().set_ports(0b1111);
  CHECK(ending_of(frame, 1, &rig) == Counter::l2_flooded);
  rig.pipeline().set_ports(0b0010);
  CHECK(ending_of(frame, 1, &rig) == Counter::l2_drop_no_port);
}

TEST_CASE("ordinary frames: the switch answers ARP for its address") {
  Rig rig;
  FrameBytes arp(60, 0);
  std::memset(arp.data(), 0xFF, 6);
  std::memcpy(arp.data() + 6, endpoint_of(2).mac.bytes.data(), 6);
  const FrameBytes head{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1};
  std::copy(head.begin(), head.end(), arp.begin() + 12);
  std::memcpy(arp.data() + 22, endpoint_of(2).mac.bytes.data(), 6);
  wire::store_be32(arp.data() + 28, endpoint_of(2).ip.value);
  wire::store_be32(arp.data() + 38, switch_ip.value);
  CHECK(ending_of(arp, 2, &rig) == Counter::local_arp_answered);
  REQUIRE(rig.sink.transmitted.size() == 1);
  CHECK(rig.sink.transmitted[0].first == 2);
  CHECK(std::memcmp(rig.sink.transmitted[0].second.data() + 22, switch_mac.bytes.data(), 6) == 0);
  CHECK(rig.sink.forwarded.empty());

  // And knows the asker's port from it.
  FrameBytes frame(60, 0);
  std::memcpy(frame.data(), endpoint_of(2).mac.bytes.data(), 6);
  std::memcpy(frame.data() + 6, endpoint_of(9).mac.bytes.data(), 6);
  CHECK(ending_of(frame, 1, &rig) == Counter::l2_forwarded);
}

TEST_CASE("a burst of everything at once, and bursts of every size") {
  Rig rig;
  rig.make_job(small_job(), 2);
  FrameBytes broken = make_frame(right_part());
  broken.back() ^= 1;
  FrameBytes ordinary(60, 0);
  std::memcpy(ordinary.data() + 6, endpoint_of(9).mac.bytes.data(), 6);
  std::memset(ordinary.data(), 0xFF, 6);
  Part other = right_part();
  other.member = 1;
  const std::vector<Rig::Sent> kinds{
      {make_frame(right_part()), 0}, {broken, 0},          {ordinary, 5}, {ping(), 0},
      {make_frame(other), 1},        {FrameBytes(3, 0), 1}};
  rig.run(kinds);
  CHECK(rig.count(Counter::aggregate_added) == 2);
  CHECK(rig.count(Counter::parse_drop_udp_checksum) == 1);
  CHECK(rig.count(Counter::l2_flooded) == 1);
  CHECK(rig.sink.forwarded[0].first == 2);  // index in the burst
  CHECK(rig.count(Counter::control_passed) == 1);
  CHECK(rig.count(Counter::l2_drop_runt) == 1);
  CHECK(rig.take_results().size() == 1);
  rig.run({});
  for (std::size_t size = 1; size <= pipeline::max_burst; ++size) {
    std::vector<Rig::Sent> burst;
    for (std::size_t i = 0; i < size; ++i) burst.push_back(kinds[i % kinds.size()]);
    rig.run(burst);
  }
}
