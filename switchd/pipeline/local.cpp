#include "switchd/pipeline/local.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/bytes.h"
#include "wire/checksum.h"
#include "wire/frame.h"

namespace iswitch::pipeline {
namespace {

constexpr std::uint16_t ethertype_ipv4 = 0x0800;
constexpr std::uint16_t ethertype_arp = 0x0806;
constexpr std::size_t arp_bytes = 28;
constexpr std::size_t shortest_frame = 60;  // without FCS
constexpr std::size_t longest_reply = 9216;
constexpr std::uint8_t icmp_echo_reply = 0;
constexpr std::uint8_t icmp_echo_request = 8;
constexpr std::uint8_t protocol_icmp = 1;

}  // namespace

Local::Local(const wire::Mac& mac, wire::Ipv4 ip) : mac_(mac), ip_(ip), reply_(longest_reply) {}

Local::Outcome Local::handle(Bytes frame) {
  if (frame.size() < wire::ethernet_bytes) return {};
  switch (wire::load_be16(frame.data() + 12)) {
    case ethertype_arp:
      return handle_arp(frame);
    case ethertype_ipv4:
      return handle_ipv4(frame);
    default:
      return {};
  }
}

// RFC 826: hardware type 1, protocol 0x0800, lengths 6 and 4, operation 1 is a request.
Local::Outcome Local::handle_arp(Bytes frame) {
  if (frame.size() < wire::ethernet_bytes + arp_bytes) return {};
  const std::uint8_t* arp = frame.data() + wire::ethernet_bytes;
  static constexpr std::array<std::uint8_t, 8> request{0, 1, 8, 0, 6, 4, 0, 1};
  if (!std::equal(request.begin(), request.end(), arp)) return {};
  if (wire::load_be32(arp + 24) != ip_.value) return {};
  // Its own, come back: answered, it would go round for ever.
  if (std::equal(mac_.bytes.begin(), mac_.bytes.end(), arp + 8))
    return {true, Counter::l2_drop_bad_source, {}};

  std::uint8_t* out = reply_.data();
  std::fill_n(out, shortest_frame, std::uint8_t{0});
  std::memcpy(out, arp + 8, 6);  // to the asker
  std::memcpy(out + 6, mac_.bytes.data(), 6);
  wire::store_be16(out + 12, ethertype_arp);
  std::uint8_t* answer = out + wire::ethernet_bytes;
  std::memcpy(answer, request.data(), request.size());
  answer[7] = 2;
  std::memcpy(answer + 8, mac_.bytes.data(), 6);
  wire::store_be32(answer + 14, ip_.value);
  std::memcpy(answer + 18, arp + 8, 10);  // the asker's hardware and protocol address
  return {true, Counter::local_arp_answered, {out, shortest_frame}};
}

std::optional<wire::Mac> Local::arp_reply_from(wire::Ipv4 ip, Bytes frame) const {
  if (frame.size() < wire::ethernet_bytes + arp_bytes) return std::nullopt;
  if (!std::equal(mac_.bytes.begin(), mac_.bytes.end(), frame.begin())) return std::nullopt;
  if (wire::load_be16(frame.data() + 12) != ethertype_arp) return std::nullopt;
  const std::uint8_t* arp = frame.data() + wire::ethernet_bytes;
  static constexpr std::array<std::uint8_t, 8> reply{0, 1, 8, 0, 6, 4, 0, 2};
  if (!std::equal(reply.begin(), reply.end(), arp)) return std::nullopt;
  if (wire::load_be32(arp + 14) != ip.value) return std::nullopt;
  wire::Mac mac;
  std::copy_n(arp + 8, mac.bytes.size(), mac.bytes.begin());
  if (mac.is_group() || mac == mac_ || mac == wire::Mac{}) return std::nullopt;
  return mac;
}

// RFC 792. Only whole packets: an echo request in fragments is not reassembled.
Local::Outcome Local::handle_ipv4(Bytes frame) {
  if (frame.size() < wire::ethernet_bytes + wire::ipv4_bytes) return {};
  const std::uint8_t* ip = frame.data() + wire::ethernet_bytes;
  if (wire::load_be32(ip + 16) != ip_.value || ip[9] != protocol_icmp) return {};

  const Outcome malformed{true, Counter::local_drop_malformed, {}};
  const std::size_t header = std::size_t{ip[0] & 0xFu} * 4;
  const std::size_t total = wire::load_be16(ip + 2);
  const bool fragment = (wire::load_be16(ip + 6) & 0x3FFF) != 0;
  if (ip[0] >> 4 != 4 || header != wire::ipv4_bytes || fragment || total < header + 8 ||
      wire::ethernet_bytes + total > std::min(frame.size(), longest_reply)) {
    return malformed;
  }
  if (wire::checksum_field(wire::partial_sum({ip, header})) != 0) return malformed;
  const std::uint8_t* icmp = ip + header;
  if (wire::checksum_field(wire::partial_sum({icmp, total - header})) != 0) return malformed;
  if (icmp[0] != icmp_echo_request || icmp[1] != 0) return {};

  std::uint8_t* out = reply_.data();
  const std::size_t size = std::max(wire::ethernet_bytes + total, shortest_frame);
  std::fill_n(out, shortest_frame, std::uint8_t{0});
  std::memcpy(out, frame.data(), wire::ethernet_bytes + total);
  std::memcpy(out, frame.data() + 6, 6);
  std::memcpy(out + 6, mac_.bytes.data(), 6);
  std::uint8_t* out_ip = out + wire::ethernet_bytes;
  std::memcpy(out_ip + 12, ip + 16, 4);
  std::memcpy(out_ip + 16, ip + 12, 4);
  out_ip[8] = 64;
  std::memset(out_ip + 10, 0, 2);
  const std::uint16_t ip_field = wire::checksum_field(wire::partial_sum({out_ip, header}));
  std::memcpy(out_ip + 10, &ip_field, 2);
  std::uint8_t* out_icmp = out_ip + header;
  out_icmp[0] = icmp_echo_reply;
  std::memset(out_icmp + 2, 0, 2);
  const std::uint16_t icmp_field =
      wire::checksum_field(wire::partial_sum({out_icmp, total - header}));
  std::memcpy(out_icmp + 2, &icmp_field, 2);
  return {true, Counter::local_echo_answered, {out, size}};
}

}  // namespace iswitch::pipeline
