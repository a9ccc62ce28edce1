#include "switchd/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "wire/frame.h"

namespace iswitch::switchd {
namespace {

constexpr std::uint32_t headroom = 128;  // RTE_PKTMBUF_HEADROOM
constexpr std::uint32_t mbuf_overhead =
    256;  // struct rte_mbuf, mempool header and trailer, rounded up
// One lcore's mempool cache and one burst from every port, per pool.
constexpr std::uint32_t cache_slack = 512 + 256;
constexpr std::uint32_t burst = 64;
// What a ring between two lcores holds (Handover::capacity), rounded up.
constexpr std::uint32_t handover_room = 512;
// Room for jobs that an operator adds: two of the default size.
constexpr std::uint32_t spare_payload_buffers = 4096;

std::uint32_t round_up(std::uint32_t value, std::uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::uint64_t payload_buffers_needed(const control::JobConfig& job, bool child) {
  const unsigned sums = child && job.mode == wire::Mode::async ? 2 : 1;
  return std::uint64_t{job.slots} * (sums + control::history_in_force(job));
}

std::uint64_t payload_buffers_needed(const std::vector<control::JobConfig>& jobs, bool child) {
  return std::accumulate(jobs.begin(), jobs.end(), std::uint64_t{0},
                         [child](std::uint64_t sum, const control::JobConfig& job) {
                           return sum + payload_buffers_needed(job, child);
                         });
}

std::uint64_t MemoryPlan::total_bytes() const {
  const auto pool = [](std::uint64_t buffers, std::uint64_t bytes) {
    return buffers * (bytes + mbuf_overhead);
  };
  return pool(frame_buffers, frame_bytes) + pool(header_buffers, header_bytes) +
         pool(payload_buffers, payload_bytes);
}

MemoryPlan plan_memory(const MemoryWish& wish, const std::vector<control::JobConfig>& jobs,
                       bool child) {
  std::uint32_t receive = 0;
  std::uint32_t transmit = 0;
  for (const QueueDepth& depth : wish.ports) {
    receive += depth.receive + burst;
    transmit += depth.transmit + burst;
  }
  // Each lcore has a cache in each pool, and rings to and from each other one.
  const std::uint32_t between =
      cache_slack * wish.lcores + handover_room * wish.lcores * (wish.lcores - 1);
  MemoryPlan plan;
  plan.frame_bytes = round_up(headroom + std::max(2048u, wish.largest_frame), 64);
  plan.frame_buffers =
      wish.frame_buffers != 0 ? wish.frame_buffers : receive + transmit + 2 * between - cache_slack;
  plan.header_bytes = round_up(headroom + wire::payload_offset, 64);
  plan.header_buffers = transmit + between;
  plan.payload_bytes = round_up(headroom + wish.largest_segment, 64);
  // A result that was pushed out of its slot may still wait in a transmit queue.
  const std::uint32_t in_flight = std::min(transmit, 4096u) + between;
  const std::uint64_t needed = payload_buffers_needed(jobs, child);
  const std::uint64_t budget =
      wish.payload_buffers != 0 ? wish.payload_buffers : needed + spare_payload_buffers;
  plan.payload_budget = static_cast<std::uint32_t>(std::min<std::uint64_t>(budget, UINT32_MAX / 2));
  plan.payload_buffers = plan.payload_budget + in_flight;
  return plan;
}

}  // namespace iswitch::switchd
