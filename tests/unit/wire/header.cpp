#include "wire/header.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "wire/control.h"

using namespace iswitch;
using namespace iswitch::wire;

namespace {

std::vector<std::uint8_t> message(const Header& header, std::size_t payload) {
  std::vector<std::uint8_t> bytes(header_bytes + payload);
  write_header(header, bytes.data());
  return bytes;
}

Fault parse(const std::vector<std::uint8_t>& bytes) {
  Message out;
  return parse_message(bytes, out);
}

constexpr Action actions[] = {
    Action::join, Action::leave, Action::reset,  Action::set_threshold, Action::force_broadcast,
    Action::help, Action::halt,  Action::resume, Action::ping,          Action::rejoin};

Header control(Type type, Action action) {
  Header header;
  header.type = type;
  header.flags = static_cast<std::uint8_t>(action);
  return header;
}

}  // namespace

TEST_CASE("a header's fields stand where the table says, big-endian", "[header]") {
  Header header;
  header.type = Type::result;
  header.flags = flag::ecn_echo | flag::partial;
  header.job = 0x0102;
  header.member = 0x0304;
  header.round = 0x05060708;
  header.segment = 0x090A0B0C;
  header.set = 0x0D0E0F1011121314;
  const std::vector<std::uint8_t> expected = {0x11, 0x30, 1,  2,  3,  4,  5,  6,  7,  8,  9,
                                              10,   11,   12, 13, 14, 15, 16, 17, 18, 19, 20};
  CHECK(message(header, 0) == expected);
}

TEST_CASE("what is written is read back", "[header]") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    Header header;
    header.type = random() % 2 == 0 ? Type::contribution : Type::result;
    header.flags =
        static_cast<std::uint8_t>(random()) & static_cast<std::uint8_t>(~flag::reserved_mask);
    header.job = static_cast<JobId>(random());
    header.member = static_cast<std::uint16_t>(random());
    header.round = static_cast<std::uint32_t>(random());
    header.segment = static_cast<std::uint32_t>(random());
    header.set = random();
    const auto bytes = message(header, random() % 10 * 4);
    Message out;
    REQUIRE(parse_message(bytes, out) == Fault::none);
    CHECK(out.header == header);
    CHECK(out.payload.data() == bytes.data() + header_bytes);
    CHECK(out.payload.size() == bytes.size() - header_bytes);
  }
}

TEST_CASE("set holds operation tag and workers of a contribution", "[header]") {
  Header header;
  header.set = contribution_set(0xDEADBEEF, 12);
  CHECK(header.set == 0xDEADBEEF0000000C);
  CHECK(header.operation_tag() == 0xDEADBEEF);
  CHECK(header.workers() == 12);
}

TEST_CASE("fewer than 22 bytes are no header", "[header]") {
  for (std::size_t size = 0; size < header_bytes; ++size) {
    std::vector<std::uint8_t> bytes = message({}, 0);
    bytes.resize(size);
    bytes.shrink_to_fit();
    CHECK(parse(bytes) == Fault::short_header);
  }
}

TEST_CASE("version 1 and types 0 to 3 alone", "[header]") {
  for (unsigned first = 0; first < 256; ++first) {
    auto bytes = message({}, 0);
    bytes[0] = static_cast<std::uint8_t>(first);
    INFO("first byte " << first);
    if (first / 16 != 1)
      CHECK(parse(bytes) == Fault::version);
    else if (first % 16 > 3)
      CHECK(parse(bytes) == Fault::type);
    else if (first % 16 < 2)
      CHECK(parse(bytes) == Fault::none);
    else
      CHECK(parse(bytes) == Fault::action);  // flags 0 is no action
  }
}

TEST_CASE("reserved flag bits are zero in data", "[header]") {
  for (unsigned flags = 0; flags < 256; ++flags) {
    Header header;
    header.type = GENERATE(Type::contribution, Type::result);
    header.flags = static_cast<std::uint8_t>(flags);
    const bool settled = (flags & 4) != 0 && header.type != Type::result;
    const bool reserved = settled || (flags & 64) != 0 || (flags & 128) != 0;
    INFO("flags " << flags);
    CHECK(parse(message(header, 4)) == (reserved ? Fault::reserved_bits : Fault::none));
  }
}

TEST_CASE("a data payload is whole floats, at most the longest segment", "[header]") {
  for (std::size_t size : {0u, 4u, 1440u, 8924u, 8928u})
    CHECK(parse(message({}, size)) == Fault::none);
  for (std::size_t size : {1u, 2u, 3u, 5u, 1438u, 8927u, 8929u})
    CHECK(parse(message({}, size)) == Fault::payload_alignment);
  for (std::size_t size : {8932u, 9000u, 65000u})
    CHECK(parse(message({}, size)) == Fault::payload_length);
}

TEST_CASE("control has one length an action", "[header]") {
  const auto request_size = [](Action action) -> std::size_t {
    switch (action) {
      case Action::join:
        return 16 + 16;
      case Action::rejoin:
        return 52 + 16;
      case Action::reset:
        return 4 + 16;
      case Action::set_threshold:
        return 2 + 16;
      case Action::force_broadcast:
      case Action::help:
        return 8 + 16;
      default:
        return 16;
    }
  };
  for (const Action action : actions) {
    for (std::size_t size = 0; size <= 90; ++size) {
      INFO(action_name(action) << ", " << size << " bytes");
      CHECK(parse(message(control(Type::request, action), size)) ==
            (size == request_size(action) ? Fault::none : Fault::control_length));
      CHECK(parse(message(control(Type::reply, action), size)) ==
            (size == 56 ? Fault::none : Fault::control_length));
    }
  }
}

TEST_CASE("actions 1 to 10 alone", "[header]") {
  for (unsigned code = 0; code < 256; ++code) {
    INFO("action " << code);
    const bool known = code >= 1 && code <= 10;
    CHECK(parse(message(control(Type::reply, static_cast<Action>(code)), 56)) ==
          (known ? Fault::none : Fault::action));
  }
}

TEST_CASE("control fields that must be zero", "[header]") {
  for (const Action action : actions) {
    Header header = control(Type::reply, action);
    header.segment = 1;
    CHECK(parse(message(header, 56)) == Fault::control_fields);
    header = control(Type::request, action);
    header.segment = 0x80000000;
    CHECK(parse(message(header, request_body_bytes(action) + tag_bytes)) == Fault::control_fields);
  }
  for (std::size_t at = 0; at < JoinBody::bytes; ++at) {
    auto join = message(control(Type::request, Action::join), 32);
    join[header_bytes + at] = 1;
    INFO("Join byte " << at);
    CHECK(parse(join) == (at == 3 ? Fault::control_fields : Fault::none));
  }
  for (std::size_t at = 0; at < RejoinBody::bytes; ++at) {
    auto rejoin = message(control(Type::request, Action::rejoin), 68);
    rejoin[header_bytes + at] = 1;
    INFO("Rejoin byte " << at);
    CHECK(parse(rejoin) == (at == 3 ? Fault::control_fields : Fault::none));
  }
  for (std::size_t at = 0; at < ReplyBody::bytes; ++at) {
    auto reply = message(control(Type::reply, Action::ping), 56);
    reply[header_bytes + at] = 1;
    INFO("reply byte " << at);
    const bool reserved = at == 5 || at == 30 || at == 31;
    CHECK(parse(reply) == (reserved ? Fault::control_fields : Fault::none));
  }
}

TEST_CASE("every fault has a counter name of its own", "[header]") {
  std::set<std::string> names;
  for (unsigned i = 0; i < static_cast<unsigned>(Fault::count_); ++i) {
    const std::string name = fault_name(static_cast<Fault>(i));
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos);
    CHECK(names.insert(name).second);
  }
  CHECK(std::string(fault_name(Fault::none)) == "none");
  CHECK(std::string(fault_name(Fault::truncated)) == "truncated");
  CHECK(std::string(fault_name(Fault::udp_checksum)) == "udp_checksum");
  CHECK(std::string(fault_name(Fault::short_header)) == "short_header");
  CHECK(std::string(fault_name(Fault::payload_length)) == "payload_length");
  CHECK(std::string(fault_name(Fault::control_fields)) == "control_fields");
  CHECK(std::string(fault_name(static_cast<Fault>(200))) == "unknown");
}
