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
// What ResultTemplate::write puts into its words of eight bytes.
static_assert(total_length_at % 8 == 0 && ip_checksum_at % 8 == 0);
static_assert(destination_port_at % 8 == 4 && destination_port_at / 8 == 4);
static_assert(encapsulation_bytes == 5 * 8 + 2 && payload_offset == 64);
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
  start_ = std::uint64_t{static_cast<std::uint8_t>(protocol_version << 4 |
                                                   static_cast<unsigned>(header.type))}
               << 16 |
           std::uint64_t{header.flags} << 24 | std::uint64_t{__builtin_bswap16(header.job)} << 32 |
           std::uint64_t{__builtin_bswap16(header.member)} << 48;
  place_ = std::uint64_t{__builtin_bswap32(header.segment)} << 32 | __builtin_bswap32(header.round);
  set_ = __builtin_bswap64(header.set);
  const auto udp_length = static_cast<std::uint16_t>(udp_bytes + header_bytes + payload_bytes);
  udp_length_ = __builtin_bswap16(udp_length);
  total_length_ = __builtin_bswap16(static_cast<std::uint16_t>(ipv4_bytes + udp_length));
  // The length counts twice: in the pseudo header and in the UDP header.
  sum_ = fold(payload_sum + memory_order(fold(header_sum(header) + 2 * PartialSum{udp_length})));
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
  std::array<std::uint8_t, payload_offset> bytes{};
  write_encapsulation(route, 0, bytes.data());
  std::memset(bytes.data() + total_length_at, 0, 2);
  std::memset(bytes.data() + ip_checksum_at, 0, 2);
  ip_sum_ = fold(partial_sum({bytes.data() + ethernet_bytes, ipv4_bytes}));
  pseudo_sum_ = fold(partial_sum({bytes.data() + source_ip_at, 8}) + memory_order(protocol_udp) +
                     partial_sum({bytes.data() + source_port_at, 2}));
  std::memset(bytes.data() + destination_port_at, 0, 4);  // and the UDP length
  std::memcpy(words_.data(), bytes.data(), sizeof words_);
}

}  // namespace iswitch::wire
