// The 22-byte iSwitch header (protocol.md section 2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/bytes.h"
#include "wire/units.h"

namespace iswitch::wire {

using JobId = std::uint16_t;
using MemberId = std::uint16_t;    ///< 0..63; no_member where there is none yet
using MemberMask = std::uint64_t;  ///< bit i = member i

inline constexpr unsigned protocol_version = 1;
inline constexpr std::size_t header_bytes = 22;
inline constexpr unsigned max_members = 64;
inline constexpr MemberId no_member = 0xFFFF;
inline constexpr std::size_t min_segment_bytes = 32;
inline constexpr std::size_t max_segment_bytes = 8928;
inline constexpr std::size_t default_segment_bytes = 1440;
inline constexpr std::uint16_t default_udp_port = 17170;

enum class Type : std::uint8_t { contribution = 0, result = 1, request = 2, reply = 3 };
enum class DataType : std::uint8_t { float32 = 0, float16 = 1, bfloat16 = 2, int32 = 3 };
enum class Mode : std::uint8_t { sync = 0, async = 1 };

namespace flag {
inline constexpr std::uint8_t data_type_mask = 0b0000'0011;
inline constexpr std::uint8_t settled = 1u << 2;  ///< of a result (section 9)
inline constexpr std::uint8_t retransmit = 1u << 3;
inline constexpr std::uint8_t ecn_echo = 1u << 4;
inline constexpr std::uint8_t partial = 1u << 5;
inline constexpr std::uint8_t reserved_mask = 0b1100'0100;
}  // namespace flag

/// All 22 bytes, in host order. `flags` is the action code in control packets; `member` is the
/// number of workers in a result; `set` is operation tag << 32 | workers in a contribution, the
/// member bitmap in a result, the nonce in control packets.
struct Header {
  Type type = Type::contribution;
  std::uint8_t flags = 0;
  JobId job = 0;
  std::uint16_t member = 0;
  std::uint32_t round = 0;
  std::uint32_t segment = 0;
  std::uint64_t set = 0;

  std::uint32_t operation_tag() const { return static_cast<std::uint32_t>(set >> 32); }
  std::uint32_t workers() const { return static_cast<std::uint32_t>(set); }
  bool is_data() const { return type == Type::contribution || type == Type::result; }
  DataType data_type() const { return static_cast<DataType>(flags & flag::data_type_mask); }
  bool operator==(const Header&) const = default;
};

inline constexpr std::uint64_t contribution_set(std::uint32_t operation_tag,
                                                std::uint32_t workers) {
  return std::uint64_t{operation_tag} << 32 | workers;
}

void write_header(const Header& header, std::uint8_t* out);

/// Why bytes are not a message or a frame of this protocol. One counter each in every consumer;
/// `fault_name` is the counter's name.
enum class Fault : std::uint8_t {
  none,
  // frame
  truncated,   ///< shorter than its headers or than the IPv4 total length says
  vlan,        ///< VLAN tag in front of a packet that would be ours
  ip_options,  ///< IHL is not 5
  fragment,
  ip_checksum,
  udp_length,  ///< UDP length differs from the IPv4 payload
  udp_checksum,
  control_port,  ///< control to another port than base
  // message
  short_header,  ///< fewer than 22 bytes
  version,
  type,  ///< unknown, or its DSCP is the other kind's
  reserved_bits,
  payload_alignment,  ///< payload not a multiple of 4
  payload_length,     ///< payload above max_segment_bytes
  action,             ///< unknown action code
  control_length,     ///< body or tag missing, or bytes too many
  control_fields,     ///< round/segment fields or reserved bytes that must be zero are not
  count_
};
const char* fault_name(Fault fault);

/// A checked message: the header and the bytes behind it (a view into what was parsed).
struct Message {
  Header header;
  Bytes payload;  ///< data: the gradient; control: body and tag
};

/// What sections 2 and 6 say of control packets beyond the header's first byte.
Fault check_control(const Header& header, Bytes payload);

inline Fault check_data(const Header& header, Bytes payload) {
  const unsigned allowed = header.type == Type::result ? flag::settled : 0u;
  if ((header.flags & flag::reserved_mask & ~allowed) != 0) return Fault::reserved_bits;
  if (payload.size() % 4 != 0) return Fault::payload_alignment;
  if (payload.size() > max_segment_bytes) return Fault::payload_length;
  return Fault::none;
}

/// Checks a UDP payload against sections 2 and 6 (lengths, versions, reserved bits, the body length
/// of each action); what depends on a job or a member is not its business. `out` is meaningful only
/// for Fault::none. Inline: every received frame comes this way.
inline Fault parse_message(Bytes datagram, Message& out) {
  if (datagram.size() < header_bytes) return Fault::short_header;
  const std::uint8_t* p = datagram.data();
  if (p[0] >> 4 != protocol_version) return Fault::version;
  if ((p[0] & 0x0F) > static_cast<std::uint8_t>(Type::reply)) return Fault::type;
  // Field by field into its place: a copy of the whole, made of narrow stores and wide loads, would
  // stall on the store buffer.
  out.header.type = static_cast<Type>(p[0] & 0x0F);
  out.header.flags = p[1];
  out.header.job = load_be16(p + 2);
  out.header.member = load_be16(p + 4);
  out.header.round = load_be32(p + 6);
  out.header.segment = load_be32(p + 10);
  out.header.set = load_be64(p + 14);
  out.payload = datagram.subspan(header_bytes);
  return out.header.is_data() ? check_data(out.header, out.payload)
                              : check_control(out.header, out.payload);
}

}  // namespace iswitch::wire
