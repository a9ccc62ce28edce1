// Fast path for what a switch sends of data: results, and a child switch's sums on their way up.
// One payload, its checksum summed once, 64 header bytes patched per receiver.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "wire/checksum.h"
#include "wire/frame.h"

namespace iswitch::wire {

/// What a result says, the same for every member it goes to.
struct ResultFields {
  JobId job = 0;
  std::uint8_t flags = 0;     ///< data type, ECN-ECHO, PARTIAL
  std::uint16_t workers = 0;  ///< in the sum
  std::uint32_t round = 0;
  std::uint32_t segment = 0;
  MemberMask members = 0;  ///< direct members in the sum
  std::uint32_t payload_bytes = 0;
  PartialSum payload_sum = 0;  ///< partial_sum of the payload; 0 where checksums are off
};

/// What a child switch's contribution says beside its sum's fields.
struct ContributionPlace {
  MemberId member = 0;              ///< the switch's id at its parent
  std::uint32_t operation_tag = 0;  ///< asynchronous: the switch's incarnation
};

/// A result's fields with what all its copies share worked out once: the iSwitch header's bytes,
/// the lengths, and the checksum's part of both and the payload. Or, with a ContributionPlace, a
/// sum on its way to the parent; `workers` and `members` are then what stands in it.
class ResultMessage : public ResultFields {
 public:
  ResultMessage() = default;
  explicit ResultMessage(const ResultFields& fields) { set(fields); }
  /// In place, since a copy of what has just been written would stall on the store buffer.
  void set(const ResultFields& fields);
  void set(const ResultFields& fields, const ContributionPlace& place);

  /// Once set.
  Type type() const { return static_cast<Type>(start_ >> 16 & 0x0F); }

 private:
  friend class ResultTemplate;
  void copy(const ResultFields& fields);
  void finish(const Header& header);

  // The iSwitch header as it stands in the frame's last words of eight bytes: the first has room
  // for the UDP checksum in front.
  std::uint64_t start_ = 0;
  std::uint64_t place_ = 0;
  std::uint64_t set_ = 0;
  std::uint32_t sum_ = 0;           // folded
  std::uint16_t total_length_ = 0;  // these two in memory order
  std::uint16_t udp_length_ = 0;
};

/// Everything of a member's 64 header bytes that does not change from result to result, and the
/// partial sums of it. Built when the member joins.
class ResultTemplate {
 public:
  ResultTemplate() = default;
  /// `route.to.udp_port` is the member's port; a child switch takes results for segment s on
  /// udp_port + s mod member_shards. `udp_checksum` false sends checksum 0.
  ResultTemplate(const Route& route, std::uint16_t member_shards, bool udp_checksum);

  /// Writes bytes [0, 64) of the frame: Ethernet, IPv4, UDP and iSwitch header, checksums right.
  void write(const ResultMessage& result, std::uint8_t* out) const;
  void write(const ResultFields& result, std::uint8_t* out) const {
    write(ResultMessage(result), out);
  }

 private:
  // The frame's first words of eight bytes, zero where a result has its own: the lengths, the
  // checksums and the destination port.
  std::array<std::uint64_t, 5> words_{};
  std::uint32_t ip_sum_ = 0;      // IPv4 header without total length and checksum; folded
  std::uint32_t pseudo_sum_ = 0;  // addresses, protocol, source port; no lengths, no destination
                                  // port; folded
  std::uint16_t port_ = 0;
  std::uint16_t shards_ = 1;
  bool udp_checksum_ = true;
};

// Inline, and in whole words: it is most of what a copy of a result costs.
inline void ResultTemplate::write(const ResultMessage& result, std::uint8_t* out) const {
  // Most members are workers: spare them the division.
  const auto shard = static_cast<std::uint16_t>(shards_ == 1 ? 0 : result.segment % shards_);
  const std::uint16_t port = __builtin_bswap16(static_cast<std::uint16_t>(port_ + shard));
  const std::uint16_t ip_checksum = checksum_field(ip_sum_ + result.total_length_);
  const std::uint16_t found = checksum_field(pseudo_sum_ + result.sum_ + port);
  const std::uint16_t checksum = !udp_checksum_ ? 0 : found == 0 ? 0xFFFF : found;
  const std::array<std::uint64_t, payload_offset / 8> words{
      words_[0],
      words_[1],
      words_[2] | result.total_length_,
      words_[3] | ip_checksum,
      words_[4] | std::uint64_t{port} << 32 | std::uint64_t{result.udp_length_} << 48,
      result.start_ | checksum,
      result.place_,
      result.set_};
  std::memcpy(out, words.data(), sizeof words);
}

}  // namespace iswitch::wire
