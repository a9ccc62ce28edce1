// The packet pools: whole frames, 64-byte heads of chained results, payloads (sums).
#pragma once

#include <rte_mempool.h>

#include <memory>
#include <string>

#include "switchd/dataplane/packet_pool.h"
#include "switchd/memory_plan.h"

namespace iswitch::switchd {

struct PoolLevel {
  unsigned size = 0;
  unsigned free = 0;
};

struct Pools {
  Pool frames;
  Pool headers;
  Pool payloads;

  /// Null pools and a line in `error` when memory does not suffice.
  static Pools create(const MemoryPlan& plan, bool dma, std::string& error);
  /// Empty when every buffer is back in its pool, but for at most `kept_frames` that drivers never
  /// give back; else one line with the numbers.
  std::string leaks(std::uint32_t kept_frames = 0) const;
};

PoolLevel level(const rte_mempool* pool);

}  // namespace iswitch::switchd
