// What somebody should be told about a refused contribution, coalesced: the same about one member
// at most once a millisecond, so that no flood fills the ring to the control side.
#pragma once

#include <array>
#include <span>

#include "switchd/pipeline/admission.h"
#include "switchd/pipeline/counters.h"

namespace iswitch::pipeline {

class Notices {
 public:
  explicit Notices(Counters& counters) : counters_(counters) { sources_.fill(long_ago); }

  /// About a member of `job`.
  void tell(Admission& job, const datapath::Notice& notice, Time now);
  /// The source is nobody's. Sources share a small table: at most one notice a millisecond for each
  /// of its places, whoever it is for.
  void tell_stranger(const datapath::Notice& notice, Time now);

  /// An ARP reply of the parent.
  void tell_parent(const datapath::Notice& notice, Time now) { give(parent_told_, notice, now); }

  /// Given since the last clear(), in order; at most one for each frame of a burst.
  std::span<const datapath::Notice> pending() const { return {pending_.data(), count_}; }
  void clear() { count_ = 0; }

 private:
  void give(Time& last, const datapath::Notice& notice, Time now);

  static constexpr Time interval = millisecond;
  Counters& counters_;
  std::array<datapath::Notice, max_burst> pending_{};
  std::size_t count_ = 0;
  Time parent_told_ = long_ago;
  std::array<Time, 256> sources_;  ///< when a notice was last given, by a hash of the source
};

}  // namespace iswitch::pipeline
