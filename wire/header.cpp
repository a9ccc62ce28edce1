#include "wire/header.h"

#include <array>

#include "wire/bytes.h"
#include "wire/control.h"

namespace iswitch::wire {
namespace {

constexpr std::array<const char*, static_cast<std::size_t>(Fault::count_)> fault_names = {
    "none",        "truncated",      "vlan",          "ip_options",        "fragment",
    "ip_checksum", "udp_length",     "udp_checksum",  "control_port",      "short_header",
    "version",     "type",           "reserved_bits", "payload_alignment", "payload_length",
    "action",      "control_length", "control_fields"};

bool reserved_bytes_are_zero(const Header& header, Bytes body) {
  if (header.type == Type::reply) return body[5] == 0 && load_be16(body.data() + 30) == 0;
  const auto action = static_cast<Action>(header.flags);
  const bool joins = action == Action::join || action == Action::rejoin;
  return !joins || body[3] == 0;
}

}  // namespace

const char* fault_name(Fault fault) {
  const auto index = static_cast<std::size_t>(fault);
  return index < fault_names.size() ? fault_names[index] : "unknown";
}

void write_header(const Header& header, std::uint8_t* out) {
  out[0] = static_cast<std::uint8_t>(protocol_version << 4 | static_cast<unsigned>(header.type));
  out[1] = header.flags;
  store_be16(out + 2, header.job);
  store_be16(out + 4, header.member);
  store_be32(out + 6, header.round);
  store_be32(out + 10, header.segment);
  store_be64(out + 14, header.set);
}

Fault check_control(const Header& header, Bytes payload) {
  if (header.flags < static_cast<std::uint8_t>(Action::join) ||
      header.flags > static_cast<std::uint8_t>(last_action))
    return Fault::action;
  const std::size_t body = header.type == Type::reply
                               ? ReplyBody::bytes
                               : request_body_bytes(static_cast<Action>(header.flags));
  if (payload.size() != body + tag_bytes) return Fault::control_length;
  if (header.segment != 0 || !reserved_bytes_are_zero(header, payload.first(body)))
    return Fault::control_fields;
  return Fault::none;
}

}  // namespace iswitch::wire
