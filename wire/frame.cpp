#include "wire/frame.h"

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"
#include "wire/checksum.h"

namespace iswitch::wire {
namespace {

constexpr std::uint16_t ether_type_ipv4 = 0x0800;
constexpr std::uint16_t ether_type_vlan = 0x8100;
constexpr std::uint16_t ether_type_qinq = 0x88A8;
constexpr std::size_t ether_type_at = 12;
constexpr std::size_t vlan_tag_bytes = 4;

// Offsets within the IPv4 header, then within the UDP header.
constexpr std::size_t tos_at = 1;
constexpr std::size_t total_length_at = 2;
constexpr std::size_t fragment_at = 6;
constexpr std::size_t ttl_at = 8;
constexpr std::size_t protocol_at = 9;
constexpr std::size_t ip_checksum_at = 10;
constexpr std::size_t source_ip_at = 12;
constexpr std::size_t destination_ip_at = 16;
constexpr std::size_t destination_port_at = 2;
constexpr std::size_t udp_length_at = 4;
constexpr std::size_t udp_checksum_at = 6;

constexpr std::uint8_t version_and_ihl = 0x45;
constexpr std::uint8_t protocol_udp = 17;
constexpr std::uint8_t time_to_live = 64;
constexpr std::uint16_t dont_fragment = 0x4000;
constexpr std::uint16_t fragment_bits = 0x3FFF;  // more fragments, offset
constexpr std::uint8_t dscp_mask = 0xFC;

PartialSum memory_order(std::uint16_t value) { return __builtin_bswap16(value); }

PartialSum ip_header_sum(const std::uint8_t* ip) {
  std::uint64_t a;
  std::uint64_t b;
  std::uint32_t c;
  std::memcpy(&a, ip, sizeof a);
  std::memcpy(&b, ip + 8, sizeof b);
  std::memcpy(&c, ip + 16, sizeof c);
  return (a & 0xFFFF'FFFF) + (a >> 32) + (b & 0xFFFF'FFFF) + (b >> 32) + c;
}

PartialSum pseudo_header_sum(const std::uint8_t* ip, std::size_t udp_length) {
  std::uint64_t addresses;
  std::memcpy(&addresses, ip + source_ip_at, sizeof addresses);
  return (addresses & 0xFFFF'FFFF) + (addresses >> 32) + memory_order(protocol_udp) +
         memory_order(static_cast<std::uint16_t>(udp_length));
}

/// Pseudo header, UDP header and its payload; `udp` is what the UDP length says.
PartialSum udp_sum(const std::uint8_t* ip, Bytes udp) {
  return pseudo_header_sum(ip, udp.size()) + partial_sum(udp);
}

/// The same without the message's payload. Loads of the fields' own widths, straight into
/// registers: through a copy, narrow stores and wide loads would stall on the store buffer.
PartialSum outer_udp_sum(const std::uint8_t* ip, Bytes udp) {
  static_assert(udp_bytes + header_bytes == 3 * 8 + 4 + 2);
  PartialSum sum = pseudo_header_sum(ip, udp.size());
  for (std::size_t at : {0, 8, 16}) {
    std::uint64_t words;
    std::memcpy(&words, udp.data() + at, sizeof words);
    sum += (words & 0xFFFF'FFFF) + (words >> 32);
  }
  std::uint32_t words;
  std::uint16_t word;
  std::memcpy(&words, udp.data() + 24, sizeof words);
  std::memcpy(&word, udp.data() + 28, sizeof word);
  return sum + words + word;
}

/// The destination IP, DSCP and protocol of at least 20 bytes that should be an IPv4 header.
bool addressed_to_us(const FrameRules& rules, const std::uint8_t* ip) {
  const std::uint8_t dscp = ip[tos_at] & dscp_mask;
  return load_be32(ip + destination_ip_at) == rules.ip.value && ip[protocol_at] == protocol_udp &&
         (dscp == (rules.data_tos & dscp_mask) || dscp == (rules.control_tos & dscp_mask)) &&
         ip[0] >> 4 == 4;
}

bool is_our_port(const FrameRules& rules, std::uint16_t port) {
  return static_cast<std::uint16_t>(port - rules.udp_port) < rules.ports;
}

/// What stands between an IPv4 header and its UDP header being read at its usual place.
Fault header_fault(const std::uint8_t* ip) {
  if (ip[0] != version_and_ihl) return Fault::ip_options;
  if ((load_be16(ip + fragment_at) & fragment_bits) != 0) return Fault::fragment;
  return Fault::none;
}

/// `ip` has been found addressed to us, `fault` its header_fault. Where the ports cannot be read,
/// it is taken as ours.
bool may_be_our_port(const FrameRules& rules, Bytes ip, Fault fault) {
  constexpr std::size_t end = ipv4_bytes + destination_port_at + 2;
  if (fault != Fault::none || ip.size() < end) return true;
  return is_our_port(rules, load_be16(ip.data() + end - 2));
}

/// A frame without an IPv4 EtherType: ours only as one that hides our packet behind VLAN tags.
ParsedFrame parse_other(const FrameRules& rules, Bytes frame) {
  std::size_t at = ether_type_at;
  while (frame.size() >= at + vlan_tag_bytes + 2) {
    const std::uint16_t type = load_be16(frame.data() + at);
    if (type != ether_type_vlan && type != ether_type_qinq) break;
    at += vlan_tag_bytes;
  }
  if (at == ether_type_at || load_be16(frame.data() + at) != ether_type_ipv4) return {};
  const Bytes ip = frame.subspan(at + 2);
  if (ip.size() < ipv4_bytes || !addressed_to_us(rules, ip.data()) ||
      !may_be_our_port(rules, ip, header_fault(ip.data())))
    return {};
  return {Origin::ours, Fault::vlan};
}

/// IPv4 and UDP rules of a frame that is ours, but for the UDP checksum; `udp` is set to the
/// datagram with its header.
Fault check_encapsulation(Bytes frame, Offload offload, Bytes& udp) {
  if (frame.size() < encapsulation_bytes) return Fault::truncated;
  const std::uint8_t* ip = frame.data() + ethernet_bytes;
  const std::size_t total = load_be16(ip + total_length_at);
  if (total < ipv4_bytes + udp_bytes || total > frame.size() - ethernet_bytes)
    return Fault::truncated;
  if (!offload.ip_checksum_good && fold(ip_header_sum(ip)) != 0xFFFF) return Fault::ip_checksum;
  udp = frame.subspan(ethernet_bytes + ipv4_bytes, total - ipv4_bytes);
  return load_be16(udp.data() + udp_length_at) == udp.size() ? Fault::none : Fault::udp_length;
}

bool has_udp_checksum(Bytes udp, Offload offload) {
  return !offload.udp_checksum_good && load_be16(udp.data() + udp_checksum_at) != 0;
}

Fault check_kind(const FrameRules& rules, std::uint8_t tos, std::uint16_t port,
                 const Header& header) {
  const std::uint8_t right = header.is_data() ? rules.data_tos : rules.control_tos;
  if (((tos ^ right) & dscp_mask) != 0) return Fault::type;
  if (!header.is_data() && port != rules.udp_port) return Fault::control_port;
  return Fault::none;
}

}  // namespace

ParsedFrame parse_frame(const FrameRules& rules, Bytes frame, Offload offload, Packet& packet) {
  const ParsedFrame parsed = parse_headers(rules, frame, offload, packet);
  const bool good = parsed.origin == Origin::ours && parsed.fault == Fault::none;
  if (good && !payload_is_right(packet, &partial_sum)) return {Origin::ours, Fault::udp_checksum};
  return parsed;
}

ParsedFrame parse_headers(const FrameRules& rules, Bytes frame, Offload offload, Packet& packet) {
  if (frame.size() < ethernet_bytes + ipv4_bytes) return {};
  const std::uint8_t* p = frame.data();
  if (load_be16(p + ether_type_at) != ether_type_ipv4) return parse_other(rules, frame);
  const std::uint8_t* ip = p + ethernet_bytes;
  if (!addressed_to_us(rules, ip)) return {};
  const Fault ip_fault = header_fault(ip);
  if (!may_be_our_port(rules, frame.subspan(ethernet_bytes), ip_fault)) return {};

  const auto ours = [](Fault fault) { return ParsedFrame{Origin::ours, fault}; };
  if (ip_fault != Fault::none) return ours(ip_fault);
  Bytes datagram;
  if (const Fault fault = check_encapsulation(frame, offload, datagram); fault != Fault::none)
    return ours(fault);
  const std::uint8_t* udp = datagram.data();
  packet.destination_port = load_be16(udp + destination_port_at);
  Fault fault = parse_message(datagram.subspan(udp_bytes), packet.message);
  if (fault == Fault::none)
    fault = check_kind(rules, ip[tos_at], packet.destination_port, packet.message.header);

  // A wrong checksum comes before whatever the message seems to say.
  const bool checks = has_udp_checksum(datagram, offload);
  packet.unverified =
      checks && fault == Fault::none && packet.message.header.type == Type::contribution;
  if (packet.unverified) {
    packet.outer_sum = outer_udp_sum(ip, datagram);
  } else if (checks && fold(udp_sum(ip, datagram)) != 0xFFFF) {
    return ours(Fault::udp_checksum);
  }
  if (fault != Fault::none) return ours(fault);

  std::memcpy(packet.destination_mac.bytes.data(), p, 6);
  std::memcpy(packet.source.mac.bytes.data(), p + 6, 6);
  packet.source.ip.value = load_be32(ip + source_ip_at);
  packet.source.udp_port = load_be16(udp);
  packet.ecn = static_cast<Ecn>(ip[tos_at] & 3);
  return ours(Fault::none);
}

std::uint16_t shard_of(const FrameRules& rules, Bytes frame) {
  if (frame.size() < encapsulation_bytes) return 0;
  const std::uint8_t* ip = frame.data() + ethernet_bytes;
  if (load_be16(frame.data() + ether_type_at) != ether_type_ipv4 || !addressed_to_us(rules, ip) ||
      header_fault(ip) != Fault::none)
    return 0;
  const std::uint16_t port = load_be16(ip + ipv4_bytes + destination_port_at);
  return is_our_port(rules, port) ? static_cast<std::uint16_t>(port - rules.udp_port)
                                  : std::uint16_t{0};
}

void write_encapsulation(const Route& route, std::size_t message_bytes, std::uint8_t* out) {
  std::memcpy(out, route.to.mac.bytes.data(), 6);
  std::memcpy(out + 6, route.from.mac.bytes.data(), 6);
  store_be16(out + ether_type_at, ether_type_ipv4);

  std::uint8_t* ip = out + ethernet_bytes;
  std::memset(ip, 0, ipv4_bytes);
  ip[0] = version_and_ihl;
  ip[tos_at] = route.tos;
  store_be16(ip + total_length_at,
             static_cast<std::uint16_t>(ipv4_bytes + udp_bytes + message_bytes));
  store_be16(ip + fragment_at, dont_fragment);
  ip[ttl_at] = time_to_live;
  ip[protocol_at] = protocol_udp;
  store_be32(ip + source_ip_at, route.from.ip.value);
  store_be32(ip + destination_ip_at, route.to.ip.value);
  const std::uint16_t checksum = checksum_field(ip_header_sum(ip));
  std::memcpy(ip + ip_checksum_at, &checksum, sizeof checksum);

  std::uint8_t* udp = ip + ipv4_bytes;
  store_be16(udp, route.from.udp_port);
  store_be16(udp + destination_port_at, route.to.udp_port);
  store_be16(udp + udp_length_at, static_cast<std::uint16_t>(udp_bytes + message_bytes));
  store_be16(udp + udp_checksum_at, 0);
}

void set_udp_checksum(std::span<std::uint8_t> frame) {
  if (frame.size() < encapsulation_bytes) return;
  const std::uint8_t* ip = frame.data() + ethernet_bytes;
  std::uint8_t* udp = frame.data() + ethernet_bytes + ipv4_bytes;
  const std::size_t length = std::min<std::size_t>(load_be16(udp + udp_length_at),
                                                   frame.size() - ethernet_bytes - ipv4_bytes);
  store_be16(udp + udp_checksum_at, 0);
  const std::uint16_t checksum = checksum_field(udp_sum(ip, {udp, length}));
  const std::uint16_t field = checksum == 0 ? 0xFFFF : checksum;
  std::memcpy(udp + udp_checksum_at, &field, sizeof field);
}

}  // namespace iswitch::wire
