#include "switchd/dataplane/packet_pool.h"

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#include <algorithm>

#include "wire/pages.h"

namespace iswitch::switchd {

namespace {

/// Huge pages are there since EAL started.
void use_each_page_of(rte_mempool* pool) {
  if (rte_eal_has_hugepages() != 0) return;
  const auto use = [](rte_mempool*, void*, rte_mempool_memhdr* chunk, unsigned) {
    use_each_page(static_cast<std::uint8_t*>(chunk->addr), chunk->len);
  };
  rte_mempool_mem_iter(pool, use, nullptr);
}

}  // namespace

Pool create_pool(const char* name, std::uint32_t buffers, std::uint32_t bytes, bool dma,
                 PoolOrder order) {
  constexpr unsigned cache_size = 256;
  // Without the flag, memory in 4 KiB pages (--no-huge) gets one buffer a page, every one at the
  // same offset: they then share cache sets and a touch costs ten times as much.
  const unsigned flags = dma ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG;
  const bool usual = order == PoolOrder::usual;
  const auto element = static_cast<unsigned>(sizeof(rte_mbuf) + bytes);
  const unsigned cache = usual ? std::min(cache_size, buffers / 4) : 0;
  Pool pool(rte_mempool_create_empty(name, buffers, element, cache,
                                     sizeof(rte_pktmbuf_pool_private), SOCKET_ID_ANY, flags));
  if (pool == nullptr) return nullptr;
  const bool ordered =
      (!usual && rte_mempool_set_ops_byname(pool.get(), "stack", nullptr) == 0) ||
      rte_mempool_set_ops_byname(pool.get(), rte_mbuf_best_mempool_ops(), nullptr) == 0;
  if (!ordered) return nullptr;
  rte_pktmbuf_pool_private room{};
  room.mbuf_data_room_size = static_cast<std::uint16_t>(bytes);
  rte_pktmbuf_pool_init(pool.get(), &room);
  if (rte_mempool_populate_default(pool.get()) < 0) return nullptr;
  use_each_page_of(pool.get());
  rte_mempool_obj_iter(pool.get(), rte_pktmbuf_init, nullptr);
  return pool;
}

}  // namespace iswitch::switchd
