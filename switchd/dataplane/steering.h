// A port's hardware sorts contributions by shard: frames for UDP port base + s of the switch's
// address go to receive queue s, everything else to queue 0 (rte_flow).
#pragma once

#include <rte_flow.h>

#include <cstdint>
#include <vector>

#include "wire/frame.h"

namespace iswitch::switchd {

class Steering {
 public:
  Steering() = default;
  ~Steering() { stop(); }
  Steering(const Steering&) = delete;
  Steering& operator=(const Steering&) = delete;

  /// `ethdev` is started and has rules.ports receive queues. False: the device cannot, and nothing
  /// is left behind.
  bool start(std::uint16_t ethdev, const wire::FrameRules& rules);
  void stop();

 private:
  std::uint16_t ethdev_ = 0;
  std::vector<rte_flow*> flows_;
};

}  // namespace iswitch::switchd
