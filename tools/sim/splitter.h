// Where one port of a switch leads to several hosts (a switch has 64 ports at most, and 64 workers
// leave none for the parent): each gets what is addressed to it, and everything that is nobody's.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/sim/host_node.h"
#include "tools/sim/link.h"

namespace iswitch::sim {

class Splitter final : public EventHandler {
 public:
  void add(HostNode& host) { hosts_.push_back({&host, 0}); }
  void handle(const Event& event) override;

  std::uint64_t arrived() const { return arrived_; }
  /// Frames given to a host.
  std::uint64_t given(const HostNode& host) const;

 private:
  struct Behind {
    HostNode* host;
    std::uint64_t given;
  };
  std::vector<Behind> hosts_;
  std::uint64_t arrived_ = 0;
};

}  // namespace iswitch::sim
