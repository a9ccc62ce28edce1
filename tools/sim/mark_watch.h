// Whether a switch carries congestion marks on, seen from outside: by what comes in and what goes
// out. A result whose sum has a member all of whose contributions came with Congestion Experienced
// or ECN-ECHO must have ECN-ECHO, as must one that came from the parent with Congestion
// Experienced. Synchronous jobs.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tools/sim/world.h"
#include "wire/control.h"
#include "wire/result_header.h"

namespace iswitch::sim {

class MarkWatch {
 public:
  explicit MarkWatch(World& world) : world_(world) {}

  void add_job(wire::JobId job, std::uint32_t slots) { jobs_[job].resize(slots); }
  /// Before the switch gets it. A result that is not the parent's is one that a member hands back
  /// after a restart: what it says of congestion is history.
  void received(Bytes frame, bool from_parent);
  /// A result for members.
  void sent(const wire::ResultFields& result, const std::string& node);
  void forget();
  std::uint64_t marks_seen() const { return marks_; }

 private:
  struct Slot {
    bool used = false;
    std::uint32_t round = 0;
    wire::MemberMask marked = 0, unmarked = 0;
    bool from_parent_marked = false, from_parent_unmarked = false;
    bool judged = false;
  };
  World& world_;
  std::map<wire::JobId, std::vector<Slot>> jobs_;
  std::uint64_t marks_ = 0;
};

}  // namespace iswitch::sim
