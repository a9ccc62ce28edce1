// A child job's side of its parent: where sums go up, and what waits for an answer from there.
#pragma once

#include <cstdint>
#include <vector>

#include "switchd/pipeline/frame.h"

namespace iswitch::pipeline {

/// Allocated for child jobs only. Orders write the place, aggregate the rest.
struct ParentLink {
  datapath::ParentSpec spec;
  Destination way_up;
  /// A result came with Congestion Experienced: the next sum says so (section 8).
  bool echo = false;
  /// Synchronous, by place in the ring of kept results: members whose contribution was passed up
  /// because only the parent can compare its operation tag.
  std::vector<MemberMask> asked;
};

/// Asynchronous: the one push of a slot that is outstanding at the parent.
template <class Handle>
struct OutstandingPush {
  Handle payload{};
  MemberMask members = 0;
  Time opened_at = 0;
  std::uint32_t number = 0;  ///< of the push, or of the last one where none is outstanding
  std::uint32_t workers = 0;
  std::uint16_t bytes = 0;
  std::uint16_t checksum = 0;
  std::uint8_t flags = 0;
  bool waiting = false;
};

}  // namespace iswitch::pipeline
