#include "switchd/dataplane/pools.h"

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#include <algorithm>

#include "switchd/dataplane/dpdk_log.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

constexpr unsigned cache_size = 256;

std::string leak(const char* what, const rte_mempool* pool, std::uint32_t kept = 0) {
  if (pool == nullptr) return {};
  const PoolLevel now = level(pool);
  if (now.free + kept >= now.size) return {};
  return text(' ', what, ' ', now.size - now.free, " of ", now.size, ';');
}

}  // namespace

Pool create_pool(const char* name, std::uint32_t buffers, std::uint32_t bytes, bool dma) {
  // Without the flag, memory in 4 KiB pages (--no-huge) gets one buffer a page, every one at the
  // same offset: they then share cache sets and a touch costs ten times as much.
  const unsigned flags = dma ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG;
  const auto element = static_cast<unsigned>(sizeof(rte_mbuf) + bytes);
  const unsigned cache = std::min(cache_size, buffers / 4);
  Pool pool(rte_mempool_create_empty(name, buffers, element, cache,
                                     sizeof(rte_pktmbuf_pool_private), SOCKET_ID_ANY, flags));
  if (pool == nullptr) return nullptr;
  if (rte_mempool_set_ops_byname(pool.get(), rte_mbuf_best_mempool_ops(), nullptr) != 0)
    return nullptr;
  rte_pktmbuf_pool_private room{};
  room.mbuf_data_room_size = static_cast<std::uint16_t>(bytes);
  rte_pktmbuf_pool_init(pool.get(), &room);
  if (rte_mempool_populate_default(pool.get()) < 0) return nullptr;
  rte_mempool_obj_iter(pool.get(), rte_pktmbuf_init, nullptr);
  return pool;
}

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
