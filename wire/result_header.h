// Fast path for what a switch sends of data: results, and a child switch's sums on their way up.
// One payload, its checksum summed once, 64 header bytes patched per receiver.
#pragma once

#include <array>
#include <cstdint>

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
  Type type() const { return static_cast<Type>(header_[0] & 0x0F); }

 private:
  friend class ResultTemplate;
  void copy(const ResultFields& fields);
  void finish(const Header& header);

  PartialSum sum_ = 0;
  std::array<std::uint8_t, header_bytes> header_{};
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
  std::array<std::uint8_t, encapsulation_bytes> bytes_{};
  PartialSum ip_sum_ = 0;      // IPv4 header without total length and checksum
  PartialSum pseudo_sum_ = 0;  // addresses, protocol, source port; no lengths, no destination port
  std::uint16_t port_ = 0;
  std::uint16_t shards_ = 1;
  bool udp_checksum_ = true;
};

}  // namespace iswitch::wire
