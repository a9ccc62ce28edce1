// How many packet buffers of which kind the daemon needs, and what they take. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "switchd/control/control.h"

namespace iswitch::switchd {

/// Buffers that a job's slots can own at once: the open sum and every kept result of each slot; in
/// an asynchronous job of a switch with a parent also the sum that waits there while the next one
/// is open.
std::uint64_t payload_buffers_needed(const control::JobConfig& job, bool child);
std::uint64_t payload_buffers_needed(const std::vector<control::JobConfig>& jobs, bool child);

/// What a port's queues can hold at once.
struct QueueDepth {
  std::uint32_t receive = 0;
  std::uint32_t transmit = 0;
};

struct MemoryPlan {
  std::uint32_t frame_buffers = 0;   ///< whole frames: received, or copies on their way out
  std::uint32_t frame_bytes = 0;     ///< data room of one, headroom included
  std::uint32_t header_buffers = 0;  ///< the 64-byte heads of chained results
  std::uint32_t header_bytes = 0;
  std::uint32_t payload_buffers = 0;  ///< sums and kept results
  std::uint32_t payload_bytes = 0;
  /// Of all pools, with what DPDK puts around a buffer.
  std::uint64_t total_bytes() const;
  /// Slots of jobs may own so many; the rest is on its way out of ports.
  std::uint32_t payload_budget = 0;
};

struct MemoryWish {
  std::uint32_t largest_frame = 1518;  ///< bytes that a port may write into one buffer
  std::uint32_t largest_segment = 1440;
  std::vector<QueueDepth> ports;  ///< all queues of each
  std::uint32_t lcores = 1;
  std::uint32_t frame_buffers = 0;    ///< 0: derived
  std::uint32_t payload_buffers = 0;  ///< 0: derived, with room for jobs added later
};
MemoryPlan plan_memory(const MemoryWish& wish, const std::vector<control::JobConfig>& jobs,
                       bool child = false);

}  // namespace iswitch::switchd
