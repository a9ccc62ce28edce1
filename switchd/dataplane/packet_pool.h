// A pool of packet buffers.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <memory>

namespace iswitch::switchd {

struct PoolDeleter {
  void operator()(rte_mempool* pool) const { rte_mempool_free(pool); }
};
using Pool = std::unique_ptr<rte_mempool, PoolDeleter>;

enum class PoolOrder : std::uint8_t {
  usual,      ///< as DPDK chooses, with a cache for each lcore
  last_first  ///< no caches; the buffer used last is the next one, so that few are in use
};

/// Null where memory does not suffice. `bytes` is a buffer's data room, headroom included; `dma`:
/// some port reads buffers by physical address.
Pool create_pool(const char* name, std::uint32_t buffers, std::uint32_t bytes, bool dma,
                 PoolOrder order = PoolOrder::usual);

}  // namespace iswitch::switchd
