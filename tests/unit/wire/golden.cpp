#include "golden/golden.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "wire/bytes.h"
#include "wire/result_header.h"

using namespace iswitch;
using namespace iswitch::wire;

namespace {

const golden::Set& golden_set() { return golden::wire_set(); }

// Told only by who knows more than the frame: the job's segment_bytes, and that the sender is a
// member and not the parent.
const std::set<std::string> need_job_or_member = {"payload-too-long", "type-result-from-member"};

Packet parsed(const golden::Frame& golden) {
  Packet packet;
  const ParsedFrame result = parse_frame(golden_set().rules_for(golden), golden.view(), {}, packet);
  INFO(fault_name(result.fault));
  REQUIRE(result.origin == Origin::ours);
  REQUIRE(result.fault == Fault::none);
  return packet;
}

/// Checks a field where the file states it.
template <class Stated, class Got>
void check(const char* what, const std::optional<Stated>& stated, const Got& got) {
  INFO(what);
  if (stated) CHECK(static_cast<Got>(*stated) == got);
}

void check_data(const golden::Frame& golden, const Message& message) {
  const Header& header = message.header;
  check("flags", golden.flags, header.flags);
  check("round", golden.round, header.round);
  check("segment", golden.segment, header.segment);
  if (header.type == Type::contribution) {
    check("member", golden.member, header.member);
    check("operation tag", golden.operation_tag, header.operation_tag());
    check("workers", golden.workers, header.workers());
  } else {
    check("workers", golden.workers, std::uint32_t{header.member});
    check("members", golden.members_bitmap, header.set);
  }
  if (!golden.float_bits) return;
  std::vector<std::uint32_t> floats;
  for (std::size_t at = 0; at + 4 <= message.payload.size(); at += 4)
    floats.push_back(__builtin_bswap32(load_be32(message.payload.data() + at)));
  CHECK(floats == *golden.float_bits);
}

void check_reply(const golden::Frame& golden, const ReplyBody& body) {
  check("status", golden.status, body.status);
  check("state", golden.state, body.state);
  check("members now", golden.members_now, body.members_now);
  check("members expected", golden.members_expected, body.members_expected);
  check("threshold", golden.threshold, body.threshold);
  check("shards", golden.shards, body.shards);
  check("segment bytes", golden.segment_bytes, body.segment_bytes);
  check("slots", golden.slots, body.slots);
  check("base round", golden.base_round, body.base_round);
  check("history", golden.history, body.history);
  check("missing", golden.missing, body.missing);
}

Client client_of(const golden::Frame& golden, const Packet& packet) {
  const bool from_client = packet.message.header.type == Type::request;
  Client client;
  client.key = golden.key;
  client.ip =
      golden.client.value_or(from_client ? packet.source.ip : golden_set().rules_for(golden).ip);
  client.udp_port =
      golden.client_port.value_or(from_client ? packet.source.udp_port : packet.destination_port);
  return client;
}

void check_control(const golden::Frame& golden, const Packet& packet) {
  const Header& header = packet.message.header;
  check("action", golden.action, static_cast<Action>(header.flags));
  check("member", golden.member, header.member);
  check("request id", golden.request_id, header.round);
  check("nonce", golden.nonce, header.set);
  const Client client = client_of(golden, packet);
  const Bytes datagram = golden.view().subspan(encapsulation_bytes);
  CHECK(tag_is_right(client.key, datagram, client.ip, client.udp_port));
  if (golden.tag)
    CHECK(control_tag(client.key, datagram.first(datagram.size() - tag_bytes), client.ip,
                      client.udp_port) == *golden.tag);
  if (header.type != Type::reply) return;
  const auto body = read_reply(packet.message.payload);
  REQUIRE(body);
  check_reply(golden, *body);
}

/// The way back: the frame written anew from what was parsed, where the file states a field from
/// what it states.
std::vector<std::uint8_t> rewritten(const golden::Frame& golden, const Packet& packet,
                                    Bytes message) {
  Route route;
  route.from = packet.source;
  route.to = {packet.destination_mac, golden_set().rules_for(golden).ip,
              golden.udp_destination.value_or(packet.destination_port)};
  const unsigned dscp = packet.message.header.is_data() ? 0xAC : 0xBC;
  route.tos =
      static_cast<std::uint8_t>(dscp | static_cast<unsigned>(golden.ecn.value_or(packet.ecn)));
  std::vector<std::uint8_t> frame(encapsulation_bytes + message.size());
  write_encapsulation(route, message.size(), frame.data());
  std::copy(message.begin(), message.end(), frame.begin() + encapsulation_bytes);
  if (golden.udp_checksum != std::uint16_t{0}) set_udp_checksum(frame);
  return frame;
}

std::vector<std::uint8_t> data_message(const golden::Frame& golden, const Message& message) {
  Header header = message.header;
  header.type = golden.type.value_or(header.type);
  header.flags = golden.flags.value_or(header.flags);
  header.job = golden.job.value_or(header.job);
  header.round = golden.round.value_or(header.round);
  header.segment = golden.segment.value_or(header.segment);
  if (header.type == Type::contribution) {
    header.member = golden.member.value_or(header.member);
    header.set = contribution_set(golden.operation_tag.value_or(header.operation_tag()),
                                  golden.workers.value_or(header.workers()));
  } else {
    header.member = static_cast<std::uint16_t>(golden.workers.value_or(header.member));
    header.set = golden.members_bitmap.value_or(header.set);
  }
  std::vector<std::uint8_t> bytes(header_bytes);
  write_header(header, bytes.data());
  bytes.insert(bytes.end(), message.payload.begin(), message.payload.end());
  return bytes;
}

ControlDatagram control_message(const golden::Frame& golden, const Packet& packet) {
  const Header& parsed_header = packet.message.header;
  const Bytes payload = packet.message.payload;
  ControlHeader header;
  header.action = golden.action.value_or(static_cast<Action>(parsed_header.flags));
  header.job = golden.job.value_or(parsed_header.job);
  header.member = golden.member.value_or(parsed_header.member);
  header.request_id = golden.request_id.value_or(parsed_header.round);
  header.nonce = golden.nonce.value_or(parsed_header.set);
  const Client client = client_of(golden, packet);
  if (parsed_header.type == Type::reply) return write_reply(header, *read_reply(payload), client);
  switch (header.action) {
    case Action::join:
      return write_join(header, *read_join(payload), client);
    case Action::rejoin:
      return write_rejoin(header, *read_rejoin(payload), client);
    case Action::reset:
      return write_reset(header, read_reset(payload), client);
    case Action::set_threshold:
      return write_set_threshold(header, read_set_threshold(payload), client);
    case Action::force_broadcast:
    case Action::help:
      return write_slot_request(header, read_slot(payload), client);
    default:
      return write_plain_request(header, client);
  }
}

}  // namespace

TEST_CASE("golden frames parse to what is stated and are written back to the same bytes",
          "[golden]") {
  unsigned count = 0;
  for (const golden::Frame& golden : golden_set().frames) {
    if (golden.malformed) continue;
    ++count;
    INFO(golden.name);
    const Packet packet = parsed(golden);
    const Header& header = packet.message.header;
    check("type", golden.type, header.type);
    check("job", golden.job, header.job);
    check("ecn", golden.ecn, packet.ecn);
    check("udp destination", golden.udp_destination, packet.destination_port);

    std::vector<std::uint8_t> message;
    if (header.is_data()) {
      check_data(golden, packet.message);
      message = data_message(golden, packet.message);
    } else {
      check_control(golden, packet);
      const ControlDatagram datagram = control_message(golden, packet);
      message.assign(datagram.view().begin(), datagram.view().end());
    }
    auto frame = rewritten(golden, packet, message);
    // Padding is nobody's field.
    frame.insert(frame.end(), golden.bytes.begin() + static_cast<std::ptrdiff_t>(frame.size()),
                 golden.bytes.end());
    CHECK(frame == golden.bytes);
  }
  CHECK(count == 26);
}

TEST_CASE("golden frames come from the endpoints of the set", "[golden]") {
  for (const golden::Frame& golden : golden_set().frames) {
    if (golden.malformed) continue;
    INFO(golden.name);
    const Packet packet = parsed(golden);
    const bool from_switch = packet.source == golden_set().switch_endpoint;
    const bool from_worker = std::find(golden_set().workers.begin(), golden_set().workers.end(),
                                       packet.source) != golden_set().workers.end();
    CHECK(from_switch != from_worker);
    const Type type = packet.message.header.type;
    CHECK(from_switch == (type == Type::result || type == Type::reply));
  }
}

TEST_CASE("malformed golden frames are faults", "[golden]") {
  unsigned count = 0;
  for (const golden::Frame& golden : golden_set().frames) {
    if (!golden.malformed) continue;
    ++count;
    INFO(golden.name);
    Packet packet;
    const ParsedFrame result =
        parse_frame(golden_set().rules_for(golden), golden.view(), {}, packet);
    CHECK(result.origin == Origin::ours);
    CHECK((result.fault == Fault::none) == (need_job_or_member.count(golden.name) == 1));
  }
  CHECK(count == 16);
}

TEST_CASE("malformed golden frames have the fault their name says", "[golden]") {
  const std::pair<const char*, Fault> expected[] = {
      {"bad-ip-checksum", Fault::ip_checksum},
      {"bad-udp-checksum", Fault::udp_checksum},
      {"version-2", Fault::version},
      {"type-9", Fault::type},
      {"truncated-header", Fault::short_header},
      {"payload-not-multiple-of-4", Fault::payload_alignment},
      {"reserved-flag-bit-6", Fault::reserved_bits},
      {"udp-length-short", Fault::udp_length},
      {"fragment", Fault::fragment},
      {"ip-options", Fault::ip_options},
      {"vlan", Fault::vlan},
      {"frame-cut", Fault::truncated},
      {"control-without-tag", Fault::control_length},
      {"join-short-body", Fault::control_length},
  };
  for (const auto& [name, fault] : expected) {
    INFO(name);
    const golden::Frame& golden = golden_set().frame(name);
    Packet packet;
    const ParsedFrame result =
        parse_frame(golden_set().rules_for(golden), golden.view(), {}, packet);
    CHECK(std::string(fault_name(result.fault)) == fault_name(fault));
  }
}

TEST_CASE("the two that need a job or a member are what they seem", "[golden]") {
  const Packet too_long = parsed(golden_set().frame("payload-too-long"));
  CHECK(too_long.message.payload.size() > golden_set().segment_bytes);
  CHECK(too_long.message.payload.size() <= max_segment_bytes);
  const Packet from_member = parsed(golden_set().frame("type-result-from-member"));
  CHECK(from_member.message.header.type == Type::result);
  CHECK(from_member.source == golden_set().workers[0]);
}

TEST_CASE("the fast path writes the golden results", "[golden]") {
  for (const char* name : {"result", "result-partial-ece", "result-canonical-nan"}) {
    INFO(name);
    const golden::Frame& golden = golden_set().frame(name);
    const Packet packet = parsed(golden);
    const Header& header = packet.message.header;
    const Route route{
        golden_set().switch_endpoint,
        {packet.destination_mac, golden_set().rules_for(golden).ip, packet.destination_port},
        0xAE};
    ResultFields fields;
    fields.job = header.job;
    fields.flags = header.flags;
    fields.workers = header.member;
    fields.round = header.round;
    fields.segment = header.segment;
    fields.members = header.set;
    fields.payload_bytes = static_cast<std::uint32_t>(packet.message.payload.size());
    fields.payload_sum = partial_sum(packet.message.payload);
    std::array<std::uint8_t, payload_offset> head{};
    ResultTemplate(route, 1, true).write(fields, head.data());
    CHECK(std::equal(head.begin(), head.end(), golden.bytes.begin()));
  }
}

TEST_CASE("golden operation tags", "[golden]") {
  REQUIRE(golden_set().operation_tags.size() == 3);
  for (const auto& one : golden_set().operation_tags)
    CHECK(operation_tag(one.operation) == one.tag);
}

TEST_CASE("golden reader refuses a name that is not there", "[golden]") {
  CHECK_THROWS(golden_set().frame("no such frame"));
}
