#include "wire/result_header.h"

#include <cstring>

#include "wire/bytes.h"

namespace iswitch::wire {
namespace {

constexpr std::size_t total_length_at = 16;
constexpr std::size_t ip_checksum_at = 24;
constexpr std::size_t source_ip_at = 26;
constexpr std::size_t source_port_at = 34;
constexpr std::size_t destination_port_at = 36;
constexpr std::size_t udp_length_at = 38;
constexpr std::size_t udp_checksum_at = 40;
constexpr std::uint8_t protocol_udp = 17;

PartialSum memory_order(std::uint16_t value) { return __builtin_bswap16(value); }

// From the values, not from the bytes just written: reading those back with other widths would
// stall on the store buffer. All fields lie at even offsets, so that a 32-bit field may be added
// whole: 2^16 is 1 in one's-complement arithmetic.
PartialSum header_sum(const Header& header) {
  const std::uint64_t first = protocol_version << 12 | static_cast<unsigned>(header.type) << 8;
  return first + header.flags + header.job + header.member + header.round + header.segment +
         (header.set >> 32) + (header.set & 0xFFFF'FFFF);
}

}  // namespace

ResultTemplate::ResultTemplate(const Route& route, std::uint16_t member_shards, bool udp_checksum)
    : port_(route.to.udp_port),
      shards_(member_shards == 0 ? std::uint16_t{1} : member_shards),
      udp_checksum_(udp_checksum) {
  write_encapsulation(route, 0, bytes_.data());
  std::memset(bytes_.data() + total_length_at, 0, 2);
  std::memset(bytes_.data() + ip_checksum_at, 0, 2);
  ip_sum_ = partial_sum({bytes_.data() + ethernet_bytes, ipv4_bytes});
  pseudo_sum_ = partial_sum({bytes_.data() + source_ip_at, 8}) + memory_order(protocol_udp) +
                partial_sum({bytes_.data() + source_port_at, 2});
}

void ResultTemplate::write(const ResultFields& result, std::uint8_t* out) const {
  const auto udp_length =
      static_cast<std::uint16_t>(udp_bytes + header_bytes + result.payload_bytes);
  const auto total_length = static_cast<std::uint16_t>(ipv4_bytes + udp_length);
  // Most members are workers: spare them the division.
  const auto shard = static_cast<std::uint16_t>(shards_ == 1 ? 0 : result.segment % shards_);
  const auto port = static_cast<std::uint16_t>(port_ + shard);
  const Header header{.type = Type::result,
                      .flags = result.flags,
                      .job = result.job,
                      .member = result.workers,
                      .round = result.round,
                      .segment = result.segment,
                      .set = result.members};

  std::memcpy(out, bytes_.data(), encapsulation_bytes);
  store_be16(out + total_length_at, total_length);
  const std::uint16_t ip_checksum = checksum_field(ip_sum_ + memory_order(total_length));
  std::memcpy(out + ip_checksum_at, &ip_checksum, sizeof ip_checksum);
  store_be16(out + destination_port_at, port);
  store_be16(out + udp_length_at, udp_length);
  write_header(header, out + encapsulation_bytes);
  if (!udp_checksum_) return;

  // The length counts twice: in the pseudo header and in the UDP header.
  const PartialSum big_endian = header_sum(header) + port + 2 * PartialSum{udp_length};
  const std::uint16_t checksum =
      checksum_field(pseudo_sum_ + result.payload_sum + memory_order(fold(big_endian)));
  const std::uint16_t field = checksum == 0 ? 0xFFFF : checksum;
  std::memcpy(out + udp_checksum_at, &field, sizeof field);
}

}  // namespace iswitch::wire
