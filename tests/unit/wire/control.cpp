#include "wire/control.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "slow.h"

using namespace iswitch;
using namespace iswitch::wire;

namespace {

const std::vector<std::uint8_t> key = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
const Client keyed{key, Ipv4{0x0A4D0003}, 40003};
const ControlHeader some_header{Action::ping, 0x0102, 7, 0x11223344, 0x8877665544332211};

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

/// The message, after checking what is common to all.
Message parsed(const ControlDatagram& datagram, Type type, Action action) {
  Message message;
  REQUIRE(parse_message(datagram.view(), message) == Fault::none);
  CHECK(message.header.type == type);
  CHECK(message.header.flags == static_cast<std::uint8_t>(action));
  CHECK(message.header.job == some_header.job);
  CHECK(message.header.member == some_header.member);
  CHECK(message.header.round == some_header.request_id);
  CHECK(message.header.segment == 0);
  CHECK(message.header.set == some_header.nonce);
  CHECK(tag_is_right(key, datagram.view(), keyed.ip, keyed.udp_port));
  return message;
}

ControlHeader header_for(Action action) {
  ControlHeader header = some_header;
  header.action = action;
  return header;
}

/// HMAC-SHA256-128 of any text of 6 bytes or more: its end passes for the client's address and
/// port.
Tag hmac(const std::vector<std::uint8_t>& hmac_key, std::string_view text) {
  const auto bytes = bytes_of(text);
  const std::size_t split = bytes.size() - 6;
  const Ipv4 ip{std::uint32_t{slow::get16(bytes, split)} << 16 | slow::get16(bytes, split + 2)};
  return control_tag(hmac_key, Bytes(bytes).first(split), ip, slow::get16(bytes, split + 4));
}

}  // namespace

TEST_CASE("Join round trip", "[control]") {
  JoinBody body;
  body.kind = MemberKind::child_switch;
  body.data_type = DataType::int32;
  body.mode = Mode::async;
  body.wanted_member = 61;
  body.shards = 4;
  body.max_segment_bytes = 8928;
  body.incarnation = 0xFEEDBEEF;
  const auto datagram = write_join(header_for(Action::join), body, keyed);
  const auto message = parsed(datagram, Type::request, Action::join);
  const auto back = read_join(message.payload);
  REQUIRE(back);
  CHECK(*back == body);
}

TEST_CASE("Rejoin round trip", "[control]") {
  RejoinBody body;
  body.join.kind = MemberKind::child_switch;
  body.join.wanted_member = 0x0102;
  body.join.shards = 0x0304;
  body.join.max_segment_bytes = 0x05060708;
  body.join.incarnation = 0x090A0B0C;
  body.origin = 0x11121314;
  body.newest = 0x21222324;
  body.slots = 0x31323334;
  body.segment_bytes = 0x41424344;
  body.position = 0x5152535455565758;
  body.end = 0x6162636465666768;
  body.life = 0x71727374;
  const auto datagram = write_rejoin(header_for(Action::rejoin), body, keyed);
  CHECK(datagram.size == 22 + 52 + 16);
  const auto message = parsed(datagram, Type::request, Action::rejoin);
  const std::vector<std::uint8_t> expected = {
      1,    0,    0,    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,
      10,   11,   12,   0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32,
      0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57,
      0x58, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x71, 0x72, 0x73, 0x74};
  const Bytes sent = message.payload.first(RejoinBody::bytes);
  CHECK(std::vector<std::uint8_t>(sent.begin(), sent.end()) == expected);
  const auto back = read_rejoin(message.payload);
  REQUIRE(back);
  CHECK(*back == body);
}

TEST_CASE("a Rejoin that no member could mean is none", "[control]") {
  const auto reads = [](const RejoinBody& body) {
    const auto datagram = write_rejoin({}, body, {});
    return read_rejoin(datagram.view().subspan(header_bytes)).has_value();
  };
  RejoinBody body;
  body.position = 7;
  body.end = 7;
  CHECK(reads(body));
  body.end = 6;
  CHECK_FALSE(reads(body));
  body.position = 0;
  body.join.mode = Mode::async;
  CHECK_FALSE(reads(body));
  body.end = 0;
  CHECK(reads(body));
  body.join.shards = 1;  // of a worker
  CHECK_FALSE(reads(body));
  for (std::size_t size = 0; size < RejoinBody::bytes; ++size)
    CHECK_FALSE(read_rejoin(std::vector<std::uint8_t>(size)));
}

TEST_CASE("what a reply to a Rejoin says of the stream", "[control]") {
  const Resumed on{Resumed::Fresh::none, 0x89ABCDEF, 0x7FFFFFFF};
  CHECK(encode_resumed({Resumed::Fresh::went_on, 0, 0, 0x89ABCDEF}) == 0x4000000589ABCDEF);
  CHECK(decode_resumed(0x4000000589ABCDEF) == Resumed{Resumed::Fresh::went_on, 0, 0, 0x89ABCDEF});
  CHECK(encode_resumed(on) == 0xFFFFFFFF89ABCDEF);
  CHECK(decode_resumed(0xFFFFFFFF89ABCDEF) == on);
  CHECK(encode_resumed({Resumed::Fresh::none, 5, 3}) == 0x8000000300000005);
  CHECK(decode_resumed(0x8000000300000005) == Resumed{Resumed::Fresh::none, 5, 3});
  const Resumed apart{Resumed::Fresh::too_far_apart, 0, 1025};
  CHECK(encode_resumed(apart) == 0x0000000400000401);
  CHECK(decode_resumed(0x0000000400000401) == apart);
  for (unsigned reason = 1; reason <= 6; ++reason) {
    const Resumed fresh{static_cast<Resumed::Fresh>(reason), 0, 0};
    CHECK(encode_resumed(fresh) == std::uint64_t{reason} << 32);
    CHECK(decode_resumed(std::uint64_t{reason} << 32) == fresh);
    CHECK(std::string(fresh_reason_name(fresh.fresh)) != "unknown");
  }
  CHECK(encode_life(0x89ABCDEF) == 0x89ABCDEF);
  CHECK(decode_life(0x89ABCDEF) == 0x89ABCDEFu);
  for (const std::uint64_t other : {std::uint64_t{0}, std::uint64_t{1} << 32 | 1,
                                    std::uint64_t{1} << 62 | 1, std::uint64_t{1} << 63 | 1})
    CHECK_FALSE(decode_life(other));
  // Neither zero nor a reason of later days is one that is known.
  CHECK(decode_resumed(0).fresh == Resumed::Fresh::stranger);
  CHECK(decode_resumed(std::uint64_t{7} << 32).fresh == Resumed::Fresh::stranger);
  CHECK(std::string(fresh_reason_name(static_cast<Resumed::Fresh>(7))) == "unknown");
}

TEST_CASE("reply round trip", "[control]") {
  ReplyBody body;
  body.status = Status::mismatch;
  body.state = JobState::halted;
  body.mode = Mode::async;
  body.data_type = DataType::bfloat16;
  body.member = 63;
  body.members_now = 0x0102;
  body.members_expected = 0x0304;
  body.threshold = 0x0506;
  body.shards = 0x0708;
  body.segment_bytes = 0x090A0B0C;
  body.slots = 0x0D0E0F10;
  body.base_round = 0x11121314;
  body.history = 0x1516;
  body.missing = 0x1718191A1B1C1D1E;
  const auto datagram = write_reply(header_for(Action::help), body, keyed);
  const auto message = parsed(datagram, Type::reply, Action::help);
  const std::vector<std::uint8_t> expected = {
      0,    11,   2, 1,  2,    0,    0,    63,   1,    2,    3,    4,    5,    6,
      7,    8,    9, 10, 11,   12,   13,   14,   15,   16,   0x11, 0x12, 0x13, 0x14,
      0x15, 0x16, 0, 0,  0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E};
  const Bytes sent = message.payload.first(ReplyBody::bytes);
  CHECK(std::vector<std::uint8_t>(sent.begin(), sent.end()) == expected);
  const auto back = read_reply(message.payload);
  REQUIRE(back);
  CHECK(*back == body);
}

TEST_CASE("requests without a body", "[control]") {
  const auto action = GENERATE(Action::leave, Action::halt, Action::resume, Action::ping);
  const auto datagram = write_plain_request(header_for(action), keyed);
  CHECK(datagram.size == 38);
  parsed(datagram, Type::request, action);
}

TEST_CASE("Reset, SetH, FBcast and Help round trip", "[control]") {
  const auto reset = write_reset(header_for(Action::reset), 0xA1B2C3D4, keyed);
  CHECK(read_reset(parsed(reset, Type::request, Action::reset).payload) == 0xA1B2C3D4);
  const auto threshold = write_set_threshold(header_for(Action::set_threshold), 0xB1B2, keyed);
  CHECK(read_set_threshold(parsed(threshold, Type::request, Action::set_threshold).payload) ==
        0xB1B2);
  for (const Action action : {Action::force_broadcast, Action::help}) {
    const auto slot = write_slot_request(header_for(action), {0x01020304, 0xF5F6F7F8}, keyed);
    const SlotBody back = read_slot(parsed(slot, Type::request, action).payload);
    CHECK(back.segment == 0x01020304);
    CHECK(back.round == 0xF5F6F7F8);
  }
}

TEST_CASE("a Join with values outside their enumeration is none", "[control]") {
  const auto good = write_join(header_for(Action::join), {}, keyed);
  const auto with = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::uint8_t> body(good.bytes.begin() + header_bytes,
                                   good.bytes.begin() + header_bytes + JoinBody::bytes);
    body[at] = value;
    if (at == 0) body[7] = value;  // a switch has shards
    return read_join(body).has_value();
  };
  for (unsigned value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    INFO(value);
    CHECK(with(0, byte) == (value <= 1));
    CHECK(with(1, byte) == (value <= 3));
    CHECK(with(2, byte) == (value <= 1));
    CHECK(with(3, byte) == (value == 0));
  }
}

TEST_CASE("a worker has no shards, a switch at least one", "[control]") {
  const auto join = [](MemberKind kind, std::uint16_t shards) {
    JoinBody body;
    body.kind = kind;
    body.shards = shards;
    const auto datagram = write_join({}, body, {});
    return read_join(datagram.view().subspan(header_bytes)).has_value();
  };
  CHECK(join(MemberKind::worker, 0));
  CHECK_FALSE(join(MemberKind::worker, 1));
  CHECK_FALSE(join(MemberKind::child_switch, 0));
  CHECK(join(MemberKind::child_switch, 1));
}

TEST_CASE("a reply with values outside their enumeration is none", "[control]") {
  const auto good = write_reply(some_header, {}, keyed);
  const auto with = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::uint8_t> body(good.bytes.begin() + header_bytes,
                                   good.bytes.begin() + header_bytes + ReplyBody::bytes);
    body[at] = value;
    return read_reply(body).has_value();
  };
  for (unsigned value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    INFO(value);
    CHECK(with(2, byte) == (value <= 2));
    CHECK(with(3, byte) == (value <= 1));
    CHECK(with(4, byte) == (value <= 3));
    for (const std::size_t reserved : {5u, 30u, 31u}) CHECK(with(reserved, byte) == (value == 0));
  }
}

TEST_CASE("bodies that are too short are none and nothing is read past them", "[control]") {
  for (std::size_t size = 0; size < ReplyBody::bytes; ++size) {
    const std::vector<std::uint8_t> body(size);
    INFO(size);
    CHECK_FALSE(read_reply(body));
    if (size < JoinBody::bytes) CHECK_FALSE(read_join(body));
    CHECK(read_slot(body).segment == 0);
    CHECK(read_reset(body) == 0);
    CHECK(read_set_threshold(body) == 0);
  }
}

TEST_CASE("tags are HMAC-SHA256 of RFC 4231, cut to 16 bytes", "[control]") {
  const Tag case2{0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
                  0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7};
  CHECK(hmac(bytes_of("Jefe"), "what do ya want for nothing?") == case2);
  const Tag case6{0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f,
                  0x0d, 0x8a, 0x26, 0xaa, 0xcb, 0xf5, 0xb7, 0x7f};
  CHECK(hmac(std::vector<std::uint8_t>(131, 0xAA),
             "Test Using Larger Than Block-Size Key - Hash Key First") == case6);
}

TEST_CASE("a tag covers header, body, address, port and key", "[control]") {
  const auto datagram = write_slot_request(header_for(Action::help), {7, 5}, keyed);
  REQUIRE(tag_is_right(key, datagram.view(), keyed.ip, keyed.udp_port));
  for (std::size_t bit = 0; bit < 8 * datagram.size; ++bit) {
    auto changed = datagram;
    changed.bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    INFO("bit " << bit);
    CHECK_FALSE(tag_is_right(key, changed.view(), keyed.ip, keyed.udp_port));
  }
  for (int bit = 0; bit < 32; ++bit)
    CHECK_FALSE(
        tag_is_right(key, datagram.view(), Ipv4{keyed.ip.value ^ 1u << bit}, keyed.udp_port));
  for (int bit = 0; bit < 16; ++bit)
    CHECK_FALSE(tag_is_right(key, datagram.view(), keyed.ip,
                             static_cast<std::uint16_t>(keyed.udp_port ^ 1 << bit)));
  for (std::size_t i = 0; i < key.size(); ++i) {
    auto other = key;
    other[i] ^= 0x80;
    CHECK_FALSE(tag_is_right(other, datagram.view(), keyed.ip, keyed.udp_port));
  }
}

TEST_CASE("keys of 16 to 1024 bytes count to their last byte", "[control]") {
  for (const std::size_t size : {16u, 32u, 63u, 64u, 65u, 1023u, 1024u}) {
    std::vector<std::uint8_t> one(size, 0x5A);
    const auto datagram = write_plain_request(some_header, {one, keyed.ip, keyed.udp_port});
    CHECK(tag_is_right(one, datagram.view(), keyed.ip, keyed.udp_port));
    one.back() ^= 1;
    CHECK_FALSE(tag_is_right(one, datagram.view(), keyed.ip, keyed.udp_port));
  }
}

TEST_CASE("without a key the tag is sixteen zero bytes, and nothing else will do", "[control]") {
  const Client open{{}, keyed.ip, keyed.udp_port};
  const auto datagram = write_plain_request(some_header, open);
  for (std::size_t i = 0; i < tag_bytes; ++i) CHECK(datagram.bytes[header_bytes + i] == 0);
  CHECK(tag_is_right({}, datagram.view(), keyed.ip, keyed.udp_port));
  CHECK_FALSE(tag_is_right(key, datagram.view(), keyed.ip, keyed.udp_port));
  const auto tagged = write_plain_request(some_header, keyed);
  CHECK_FALSE(tag_is_right({}, tagged.view(), keyed.ip, keyed.udp_port));
}

TEST_CASE("what is too short to hold a tag has none", "[control]") {
  for (std::size_t size = 0; size < header_bytes + tag_bytes; ++size) {
    const std::vector<std::uint8_t> bytes(size);
    CHECK_FALSE(tag_is_right({}, bytes, keyed.ip, keyed.udp_port));
  }
}

TEST_CASE("operation tags are CRC-32C over twenty bytes", "[control]") {
  const auto text = bytes_of("123456789");
  REQUIRE(slow::crc32c(text) == 0xE3069283);  // the check value of the CRC catalogue
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    Operation operation;
    operation.kind = static_cast<OperationKind>(random() % 3);
    operation.data_type = static_cast<DataType>(random() % 4);
    operation.root = static_cast<std::uint32_t>(random());
    operation.elements = random();
    operation.user_tag = static_cast<std::uint32_t>(random());
    slow::FrameBytes bytes(20);
    bytes[0] = static_cast<std::uint8_t>(operation.kind);
    bytes[1] = static_cast<std::uint8_t>(operation.data_type);
    slow::put32(bytes, 4, operation.root);
    slow::put32(bytes, 8, static_cast<std::uint32_t>(operation.elements >> 32));
    slow::put32(bytes, 12, static_cast<std::uint32_t>(operation.elements));
    slow::put32(bytes, 16, operation.user_tag);
    CHECK(operation_tag(operation) == slow::crc32c(bytes));
  }
}

TEST_CASE("codes have names", "[control]") {
  CHECK(std::string(action_name(Action::join)) == "join");
  CHECK(std::string(action_name(Action::ping)) == "ping");
  CHECK(std::string(action_name(Action::rejoin)) == "rejoin");
  CHECK(std::string(action_name(static_cast<Action>(0))) == "unknown");
  CHECK(std::string(action_name(static_cast<Action>(11))) == "unknown");
  CHECK(std::string(status_name(Status::ok)) == "ok");
  CHECK(std::string(status_name(Status::no_such_job)) == "no such job");
  CHECK(std::string(status_name(Status::unsupported)) == "unsupported");
  CHECK(std::string(status_name(Status::mismatch)) == "mismatch");
  CHECK(std::string(status_name(static_cast<Status>(12))) == "unknown");
  CHECK(std::string(job_state_name(JobState::halted)) == "halted");
  CHECK(std::string(job_state_name(static_cast<JobState>(3))) == "unknown");
}
