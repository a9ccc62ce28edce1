// Any bytes as a datagram: parse_message and the readers of every control body read nothing past
// them, what they accept is written back to the same bytes, and a tag is right for one message
// alone.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fuzz/require.h"
#include "wire/control.h"

namespace {

using namespace iswitch;
using namespace iswitch::wire;
using fuzz::require;

constexpr std::array<std::uint8_t, 16> key = {1, 2,  3,  4,  5,  6,  7,  8,
                                              9, 10, 11, 12, 13, 14, 15, 16};
constexpr Ipv4 client_ip{0x0A4D0001};
constexpr std::uint16_t client_port = 40001;
constexpr Client client{key, client_ip, client_port};

ControlHeader control_header(const Header& header) {
  ControlHeader out;
  out.action = static_cast<Action>(header.flags);
  out.job = header.job;
  out.member = header.member;
  out.request_id = header.round;
  out.nonce = header.set;
  return out;
}

/// Nothing where a body holds values that its reader refuses.
std::optional<ControlDatagram> written(const Message& message) {
  const ControlHeader header = control_header(message.header);
  if (message.header.type == Type::reply) {
    const auto body = read_reply(message.payload);
    if (!body) return std::nullopt;
    return write_reply(header, *body, client);
  }
  switch (header.action) {
    case Action::join: {
      const auto body = read_join(message.payload);
      if (!body) return std::nullopt;
      return write_join(header, *body, client);
    }
    case Action::rejoin: {
      const auto body = read_rejoin(message.payload);
      if (!body) return std::nullopt;
      return write_rejoin(header, *body, client);
    }
    case Action::reset:
      return write_reset(header, read_reset(message.payload), client);
    case Action::set_threshold:
      return write_set_threshold(header, read_set_threshold(message.payload), client);
    case Action::force_broadcast:
    case Action::help:
      return write_slot_request(header, read_slot(message.payload), client);
    case Action::leave:
    case Action::halt:
    case Action::resume:
    case Action::ping:
      break;
  }
  return write_plain_request(header, client);
}

void check_tag(const ControlDatagram& good, Bytes received) {
  require(tag_is_right(key, good.view(), client_ip, client_port), "a written tag is right");
  require(!tag_is_right({}, good.view(), client_ip, client_port), "a tag needs its key");
  const bool same_tag =
      std::equal(received.end() - tag_bytes, received.end(), good.view().end() - tag_bytes);
  require(tag_is_right(key, received, client_ip, client_port) == same_tag,
          "no other tag is right for the same message");
}

void check_bodies(Bytes any) {
  (void)read_join(any);
  (void)read_rejoin(any);
  (void)read_reply(any);
  (void)read_slot(any);
  (void)read_reset(any);
  (void)read_set_threshold(any);
  (void)tag_is_right(key, any, client_ip, client_port);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes datagram(data, size);
  check_bodies(datagram);
  Message message;
  const Fault fault = parse_message(datagram, message);
  require(fault < Fault::count_, "a fault has a name");
  if (fault != Fault::none || message.header.is_data()) return 0;
  require(size <= max_control_bytes, "no control message is longer than the longest");
  const auto again = written(message);
  if (!again) return 0;
  require(again->size == size, "what is written is as long");
  require(std::equal(datagram.begin(), datagram.end() - tag_bytes, again->bytes.begin()),
          "what is written is the same bytes");
  check_tag(*again, datagram);
  return 0;
}
