// Restart without loss, protocol.md section 9: what members that come back say of the stream they
// were part of, and what it comes to. Values and functions of them alone.
#pragma once

#include <cstdint>
#include <optional>

#include "wire/control.h"

namespace iswitch::control {

class MemberTable;

/// What one member, or all members of a switch together, were to a stream.
struct Stream {
  std::uint32_t origin = 0;         ///< base_round of its start
  std::uint32_t newest = 0;         ///< round, number or base_round that was seen or used in it
  std::uint32_t slots = 0;          ///< as they were, likewise segment_bytes
  std::uint32_t segment_bytes = 0;  ///< of the job
  std::uint64_t position = 0;       ///< synchronous: the first one whose result somebody lacks
  std::uint64_t end = 0;            ///< one after the last one whose result somebody has
  bool operator==(const Stream&) const = default;
};
Stream stream_of(const wire::RejoinBody& body);

/// One stream of all members, or why there is none.
struct Gathered {
  wire::Resumed::Fresh fresh = wire::Resumed::Fresh::none;
  Stream stream;  ///< meaningful where fresh is none
};
Gathered gather(const MemberTable& members);

/// Latest `newest` of all members that came back; none where nobody did.
std::optional<std::uint32_t> newest_of(const MemberTable& members);

/// What a root makes of it, in a job with so many slots of that size.
wire::Resumed judge(const Gathered& gathered, std::uint32_t slots, std::uint32_t segment_bytes);

/// Where the stream goes on, from what the parent's reply says of it and what it was told: the
/// first position is not newer than `stream.position`, and at most 2^31 older.
std::uint64_t first_position(const Stream& stream, const wire::Resumed& resumed);

}  // namespace iswitch::control
