// Frames on their way from one lcore to another, where a port has fewer queues than there are
// lcores: received ones whose shard is there, and ones to send through a transmit queue of its.
// A frame's `port` field says which port of the switch it came by or is for.
#pragma once

#include <rte_mbuf.h>

#include <string>

#include "switchd/dataplane/ring.h"

namespace iswitch::switchd {

using FrameRing = Ring<rte_mbuf*>;

/// From one lcore to one other. It owns what is under way.
struct Handover {
  /// Room; a full ring is a loss like a full queue's, which the protocol repairs.
  static constexpr unsigned capacity = 511;

  Handover(const std::string& received_name, const std::string& to_send_name)
      : received(received_name, capacity), to_send(to_send_name, capacity) {}
  ~Handover() {
    for (FrameRing* ring : {&received, &to_send}) {
      rte_mbuf* frame = nullptr;
      while (ring->ok() && ring->take(frame)) rte_pktmbuf_free(frame);
    }
  }
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;
  bool ok() const { return received.ok() && to_send.ok(); }

  FrameRing received;
  FrameRing to_send;
};

}  // namespace iswitch::switchd
