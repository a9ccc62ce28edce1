#include "switchd/dataplane/pools.h"

#include <rte_errno.h>

#include "switchd/dataplane/dpdk_log.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

std::string leak(const char* what, const rte_mempool* pool, std::uint32_t kept = 0) {
  if (pool == nullptr) return {};
  const PoolLevel now = level(pool);
  if (now.free + kept >= now.size) return {};
  return text(' ', what, ' ', now.size - now.free, " of ", now.size, ';');
}

}  // namespace

PoolLevel level(const rte_mempool* pool) {
  if (pool == nullptr) return {};
  return {pool->size, rte_mempool_avail_count(pool)};
}

Pools Pools::create(const MemoryPlan& plan, bool dma, std::string& error) {
  forget_dpdk_error();
  Pools pools;
  pools.frames = create_pool("frames", plan.frame_buffers, plan.frame_bytes, dma);
  if (pools.frames) {
    pools.headers = create_pool("headers", plan.header_buffers, plan.header_bytes, dma);
  }
  if (pools.headers) {
    pools.payloads = create_pool("payloads", plan.payload_buffers, plan.payload_bytes, dma);
  }
  if (pools.payloads == nullptr) {
    error = text("memory for packet buffers does not suffice: ", plan.total_bytes() >> 20,
                 " MiB are needed for ", plan.frame_buffers, " frames of ", plan.frame_bytes,
                 " bytes, ", plan.payload_buffers, " sums of ", plan.payload_bytes, " and ",
                 plan.header_buffers, " heads of ", plan.header_bytes,
                 "; free memory, reserve more huge pages, or set fewer slots or memory limits",
                 dpdk_reason());
    return {};
  }
  return pools;
}

std::string Pools::leaks(std::uint32_t kept_frames) const {
  return leak("frames", frames.get(), kept_frames) + leak("heads", headers.get()) +
         leak("sums", payloads.get());
}

}  // namespace iswitch::switchd
