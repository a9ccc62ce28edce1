// The way that nearly every frame at a switch takes: a well-formed contribution to it, found by a
// few comparisons of whole words. What it says no to may still be one; parse_headers tells.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "wire/bytes.h"
#include "wire/checksum.h"
#include "wire/frame.h"

namespace iswitch::wire {

class ContributionPattern {
 public:
  explicit ContributionPattern(const FrameRules& rules);

  /// True: parse_headers would give Origin::ours, Fault::none and this very packet. False:
  /// `packet` is as it was.
  bool parse(Bytes frame, Offload offload, Packet& packet) const;

 private:
  // Offsets in the frame; the layout is wire/frame.cpp's.
  static constexpr std::size_t first_word = 12;  // EtherType
  static constexpr std::size_t total_length_at = 16;
  static constexpr std::size_t source_ip_at = 26;
  static constexpr std::size_t udp_at = 34;
  static constexpr std::uint64_t pseudo_protocol = 17 << 8;  // UDP, in memory order

  static std::uint64_t load64(const std::uint8_t* p) {
    std::uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
  }
  static std::uint64_t load32(const std::uint8_t* p) {
    std::uint32_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
  }
  static std::uint64_t halves(std::uint64_t word) { return (word & 0xFFFF'FFFF) + (word >> 32); }

  bool matches(const std::uint8_t* frame) const {
    std::uint64_t differs = 0;
    for (std::size_t i = 0; i < expected_.size(); ++i)
      differs |= (load64(frame + first_word + 8 * i) ^ expected_[i]) & mask_[i];
    return differs == 0;
  }

  // Bytes 12 to 44: EtherType to the iSwitch header's flags.
  std::array<std::uint64_t, 4> expected_{};
  std::array<std::uint64_t, 4> mask_{};
  std::uint16_t udp_port_ = 0;
  std::uint16_t ports_ = 1;
};

// Inline: every received frame comes this way. Loads of the fields' own widths, straight into
// registers, and each field into its place.
inline bool ContributionPattern::parse(Bytes frame, Offload offload, Packet& packet) const {
  if (frame.size() < payload_offset) return false;
  const std::uint8_t* p = frame.data();
  if (!matches(p)) return false;
  const std::uint16_t port = load_be16(p + udp_at + 2);
  if (static_cast<std::uint16_t>(port - udp_port_) >= ports_) return false;

  const std::size_t total = load_be16(p + total_length_at);
  const std::size_t payload = total - (payload_offset - ethernet_bytes);  // wraps where it is short
  if (payload > max_segment_bytes || payload % 4 != 0 || total > frame.size() - ethernet_bytes ||
      load_be16(p + udp_at + 4) != total - ipv4_bytes)
    return false;

  // IPv4 header: 20 bytes from 14; UDP and iSwitch header: 30 from 34.
  const std::uint64_t addresses = halves(load64(p + source_ip_at));
  if (!offload.ip_checksum_good) {
    const std::uint64_t sum = halves(load64(p + ethernet_bytes)) +
                              halves(load64(p + ethernet_bytes + 8)) +
                              load32(p + ethernet_bytes + 16);
    if (fold(sum) != 0xFFFF) return false;
  }
  const std::uint64_t udp_header = load64(p + udp_at);
  packet.unverified = !offload.udp_checksum_good && udp_header >> 48 != 0;
  packet.outer_sum = addresses + pseudo_protocol + (udp_header >> 32 & 0xFFFF) +
                     halves(udp_header) + halves(load64(p + udp_at + 8)) +
                     halves(load64(p + udp_at + 16)) + load32(p + udp_at + 24) +
                     (load32(p + udp_at + 26) >> 16);

  packet.message.header.type = Type::contribution;
  packet.message.header.flags = p[encapsulation_bytes + 1];
  packet.message.header.job = load_be16(p + encapsulation_bytes + 2);
  packet.message.header.member = load_be16(p + encapsulation_bytes + 4);
  packet.message.header.round = load_be32(p + encapsulation_bytes + 6);
  packet.message.header.segment = load_be32(p + encapsulation_bytes + 10);
  packet.message.header.set = load_be64(p + encapsulation_bytes + 14);
  packet.message.payload = {p + payload_offset, payload};
  std::memcpy(packet.destination_mac.bytes.data(), p, 6);
  std::memcpy(packet.source.mac.bytes.data(), p + 6, 6);
  packet.source.ip.value = load_be32(p + source_ip_at);
  packet.source.udp_port = load_be16(p + udp_at);
  packet.destination_port = port;
  packet.ecn = static_cast<Ecn>(p[ethernet_bytes + 1] & 3);
  return true;
}

}  // namespace iswitch::wire
