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

// Field by field into its place: a copy of the whole, made of narrow stores and wide loads, would
// stall on the store buffer.
void read_header(const std::uint8_t* p, Header& header) {
  header.type = static_cast<Type>(p[0] & 0x0F);
  header.flags = p[1];
  header.job = load_be16(p + 2);
  header.member = load_be16(p + 4);
  header.round = load_be32(p + 6);
  header.segment = load_be32(p + 10);
  header.set = load_be64(p + 14);
}

Fault check_data(const Header& header, Bytes payload) {
  if ((header.flags & flag::reserved_mask) != 0) return Fault::reserved_bits;
  if (payload.size() % 4 != 0) return Fault::payload_alignment;
  if (payload.size() > max_segment_bytes) return Fault::payload_length;
  return Fault::none;
}

bool reserved_bytes_are_zero(const Header& header, Bytes body) {
  if (header.type == Type::reply) return body[5] == 0 && load_be16(body.data() + 30) == 0;
  return header.flags != static_cast<std::uint8_t>(Action::join) || body[3] == 0;
}

Fault check_control(const Header& header, Bytes payload) {
  if (header.flags < static_cast<std::uint8_t>(Action::join) ||
      header.flags > static_cast<std::uint8_t>(Action::ping))
    return Fault::action;
  const std::size_t body = header.type == Type::reply
                               ? ReplyBody::bytes
                               : request_body_bytes(static_cast<Action>(header.flags));
  if (payload.size() != body + tag_bytes) return Fault::control_length;
  if (header.segment != 0 || !reserved_bytes_are_zero(header, payload.first(body)))
    return Fault::control_fields;
  return Fault::none;
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

Fault parse_message(Bytes datagram, Message& out) {
  if (datagram.size() < header_bytes) return Fault::short_header;
  const std::uint8_t first = datagram[0];
  if (first >> 4 != protocol_version) return Fault::version;
  if ((first & 0x0F) > static_cast<std::uint8_t>(Type::reply)) return Fault::type;
  read_header(datagram.data(), out.header);
  out.payload = datagram.subspan(header_bytes);
  return out.header.is_data() ? check_data(out.header, out.payload)
                              : check_control(out.header, out.payload);
}

}  // namespace iswitch::wire
