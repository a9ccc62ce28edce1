// Frames on their way from one lcore to another, where a port has fewer queues than there are
// lcores: received ones whose shard is there, and ones to send through a transmit queue of its.
// A frame's `port` field says which port of the switch it came by or is for.
#pragma once

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <string>

namespace iswitch::switchd {

/// A bounded ring of frames from one thread to another. It owns what it holds.
class FrameRing {
 public:
  /// Room; a full ring is a loss like a full queue's, which the protocol repairs.
  static constexpr unsigned capacity = 511;

  /// Test ok() before use.
  explicit FrameRing(const std::string& name)
      : ring_(rte_ring_create(name.c_str(), capacity + 1, SOCKET_ID_ANY,
                              RING_F_SP_ENQ | RING_F_SC_DEQ)) {}
  ~FrameRing() {
    rte_mbuf* frame = nullptr;
    while (ring_ != nullptr && take(&frame, 1) == 1) rte_pktmbuf_free(frame);
    rte_ring_free(ring_);
  }
  FrameRing(const FrameRing&) = delete;
  FrameRing& operator=(const FrameRing&) = delete;

  bool ok() const { return ring_ != nullptr; }
  /// How many of them, from the first on, had room; the others stay the caller's.
  unsigned put(rte_mbuf** frames, unsigned count) {
    return rte_ring_sp_enqueue_burst(ring_, reinterpret_cast<void**>(frames), count, nullptr);
  }
  unsigned take(rte_mbuf** frames, unsigned most) {
    return rte_ring_sc_dequeue_burst(ring_, reinterpret_cast<void**>(frames), most, nullptr);
  }

 private:
  rte_ring* ring_;
};

/// From one lcore to one other.
struct Handover {
  Handover(const std::string& received_name, const std::string& to_send_name)
      : received(received_name), to_send(to_send_name) {}
  bool ok() const { return received.ok() && to_send.ok(); }

  FrameRing received;
  FrameRing to_send;
};

}  // namespace iswitch::switchd
