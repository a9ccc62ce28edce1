// Payload memory of the pipeline (BufferPool) over mbufs: a handle is an mbuf whose data room holds
// a sum. Used by one lcore; shares are given back by whoever frees the frame they hang on.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>

namespace iswitch::switchd {

class MbufBuffers {
 public:
  using Handle = rte_mbuf*;

  explicit MbufBuffers(rte_mempool* pool) : pool_(pool) {}

  Handle acquire() {
    rte_mbuf* buffer = rte_mbuf_raw_alloc(pool_);
    if (buffer == nullptr) return nullptr;
    // As rte_pktmbuf_reset() would, but for what stays as it was made.
    buffer->data_off = RTE_PKTMBUF_HEADROOM;
    buffer->ol_flags = 0;
    buffer->next = nullptr;
    buffer->nb_segs = 1;
    return buffer;
  }
  void share(Handle buffer, unsigned owners) {
    rte_mbuf_refcnt_update(buffer, static_cast<std::int16_t>(owners));
  }
  void release(Handle buffer) { rte_pktmbuf_free_seg(buffer); }
  std::uint8_t* data(Handle buffer) { return rte_pktmbuf_mtod(buffer, std::uint8_t*); }

 private:
  rte_mempool* pool_;
};

}  // namespace iswitch::switchd
