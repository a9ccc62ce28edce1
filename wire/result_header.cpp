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

inline void ResultMessage::copy(const ResultFields& fields) {
  job = fields.job;
  flags = fields.flags;
  workers = fields.workers;
  round = fields.round;
  segment = fields.segment;
  members = fields.members;
  payload_bytes = fields.payload_bytes;
  payload_sum = fields.payload_sum;
}

inline void ResultMessage::finish(const Header& header) {
  write_header(header, header_.data());
  const auto udp_length = static_cast<std::uint16_t>(udp_bytes + header_bytes + payload_bytes);
  udp_length_ = __builtin_bswap16(udp_length);
  total_length_ = __builtin_bswap16(static_cast<std::uint16_t>(ipv4_bytes + udp_length));
  // The length counts twice: in the pseudo header and in the UDP header.
  sum_ = payload_sum + memory_order(fold(header_sum(header) + 2 * PartialSum{udp_length}));
}

// The header is made from the copies, one field a load: from `fields`, which the caller has just
// written, compilers take neighbours in one wide load, and that stalls on the store buffer.
void ResultMessage::set(const ResultFields& fields) {
  copy(fields);
  finish({.type = Type::result,
          .flags = flags,
          .job = job,
          .member = workers,
          .round = round,
          .segment = segment,
          .set = members});
}

void ResultMessage::set(const ResultFields& fields, const ContributionPlace& place) {
  copy(fields);
  finish({.type = Type::contribution,
          .flags = flags,
          .job = job,
          .member = place.member,
          .round = round,
          .segment = segment,
          .set = contribution_set(place.operation_tag, workers)});
}

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

void ResultTemplate::write(const ResultMessage& result, std::uint8_t* out) const {
  // Most members are workers: spare them the division.
  const auto shard = static_cast<std::uint16_t>(shards_ == 1 ? 0 : result.segment % shards_);
  const std::uint16_t port = __builtin_bswap16(static_cast<std::uint16_t>(port_ + shard));

  std::memcpy(out, bytes_.data(), encapsulation_bytes);
  std::memcpy(out + encapsulation_bytes, result.header_.data(), header_bytes);
  const std::uint16_t ip_checksum = checksum_field(ip_sum_ + result.total_length_);
  std::memcpy(out + total_length_at, &result.total_length_, 2);
  std::memcpy(out + ip_checksum_at, &ip_checksum, 2);
  std::memcpy(out + destination_port_at, &port, 2);
  std::memcpy(out + udp_length_at, &result.udp_length_, 2);
  if (!udp_checksum_) return;

  const std::uint16_t checksum = checksum_field(pseudo_sum_ + result.sum_ + port);
  const std::uint16_t field = checksum == 0 ? 0xFFFF : checksum;
  std::memcpy(out + udp_checksum_at, &field, 2);
}

}  // namespace iswitch::wire
