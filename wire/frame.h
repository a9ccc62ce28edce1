// Ethernet II + IPv4 + UDP around an iSwitch message (protocol.md section 1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/address.h"
#include "wire/checksum.h"
#include "wire/header.h"

namespace iswitch::wire {

inline constexpr std::size_t ethernet_bytes = 14;
inline constexpr std::size_t ipv4_bytes = 20;
inline constexpr std::size_t udp_bytes = 8;
inline constexpr std::size_t encapsulation_bytes = ethernet_bytes + ipv4_bytes + udp_bytes;  // 42
/// The gradient starts here: one cache line.
inline constexpr std::size_t payload_offset = encapsulation_bytes + header_bytes;  // 64
static_assert(payload_offset == 64);

/// The smallest MTU (of IPv4 packets) that carries a segment of so many bytes.
constexpr std::uint32_t mtu_for_segment(std::uint32_t segment_bytes) {
  return static_cast<std::uint32_t>(payload_offset - ethernet_bytes) + segment_bytes;
}
/// The largest segment, a multiple of 32, that an MTU carries; 0: none.
constexpr std::uint32_t largest_segment(std::uint32_t mtu) {
  constexpr auto unit = static_cast<std::uint32_t>(min_segment_bytes);
  const std::uint32_t room = mtu < mtu_for_segment(0) ? 0 : mtu - mtu_for_segment(0);
  constexpr auto most = static_cast<std::uint32_t>(max_segment_bytes);
  return room > most ? most : room / unit * unit;
}
static_assert(max_segment_bytes % min_segment_bytes == 0);

enum class Ecn : std::uint8_t { not_ect = 0, ect1 = 1, ect0 = 2, ce = 3 };

/// What makes a frame *ours*, for a switch or for a member with its own packet transport.
struct FrameRules {
  Ipv4 ip;
  std::uint16_t udp_port = default_udp_port;  ///< base
  std::uint16_t ports = 1;                    ///< shards: [base, base + ports) are ours
  std::uint8_t data_tos = 0xAC;               ///< DSCP 43, ECN bits zero
  std::uint8_t control_tos = 0xBC;            ///< DSCP 47, ECN bits zero
};

/// Checksums that the port has already verified.
struct Offload {
  bool ip_checksum_good = false;
  bool udp_checksum_good = false;
};

enum class Origin : std::uint8_t { ordinary, ours };

/// A frame that is ours, taken apart; views point into the frame.
struct Packet {
  Message message;
  Endpoint source;
  Mac destination_mac;
  std::uint16_t destination_port = 0;  ///< UDP
  Ecn ecn = Ecn::not_ect;
  /// Left to payload_is_right: the UDP checksum's sum over everything but the payload.
  bool unverified = false;
  PartialSum outer_sum = 0;
};

/// Ordinary traffic: origin is ordinary, fault none, `packet` untouched. Ours and well-formed:
/// fault none and `packet` filled. Ours and malformed: the first rule broken. Never reads past
/// `frame`.
struct ParsedFrame {
  Origin origin = Origin::ordinary;
  Fault fault = Fault::none;
};
ParsedFrame parse_frame(const FrameRules& rules, Bytes frame, Offload offload, Packet& packet);

/// The same, but the payload of a well-formed contribution is not read: its checksum is to be
/// verified by payload_is_right when the payload is about to be used, so that memory is read once.
/// Until then nothing in `packet` may be believed. Everything else is verified here.
ParsedFrame parse_headers(const FrameRules& rules, Bytes frame, Offload offload, Packet& packet);

/// What parse_headers left open, by any variant of partial_sum. False: Fault::udp_checksum.
inline bool payload_is_right(const Packet& packet, PartialSum (*sum)(Bytes)) {
  return !packet.unverified || fold(packet.outer_sum + sum(packet.message.payload)) == 0xFFFF;
}

/// The shard that a frame is for: the one at whose port a frame of ours is addressed; 0 for
/// everything else, ordinary or malformed. Looks at the headers only.
std::uint16_t shard_of(const FrameRules& rules, Bytes frame);

// ---- writing

/// One direction of a conversation.
struct Route {
  Endpoint from;
  Endpoint to;
  std::uint8_t tos = 0;  ///< DSCP and ECN as on the wire
};

/// Ethernet, IPv4 (TTL 64, DF, identification 0, right checksum) and UDP headers for a message of
/// `message_bytes`, UDP checksum field zero, into out[0..42).
void write_encapsulation(const Route& route, std::size_t message_bytes, std::uint8_t* out);

/// Sets the UDP checksum of a whole frame written in one piece (0 is sent as 0xFFFF).
void set_udp_checksum(std::span<std::uint8_t> frame);

}  // namespace iswitch::wire
