// One lcore's way out of one port: a buffer of one burst before the transmit queue.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <array>
#include <cstdint>

#include "switchd/dataplane/handover.h"
#include "switchd/dataplane/port_counters.h"

namespace iswitch::switchd {

/// What the lcore must know of a port's device, picked when the port is opened.
struct PortTraits {
  std::uint16_t ethdev = 0;
  bool may_share =
      true;  ///< false: frames come out at a peer as they are, so nobody else may hold them
  bool chained = false;             ///< results go as header and reference
  bool verifies_checksums = false;  ///< receive offload: IPv4 and UDP
  std::uint32_t longest_frame = 1518;
  std::uint16_t receive_queues = 1;
  std::uint16_t transmit_queues = 1;
};

/// How one lcore uses a port.
struct PortUse {
  PortTraits traits;
  std::uint16_t transmit_queue = 0;
  FrameRing* transmit_by = nullptr;  ///< set: to the lcore whose queue it is
};

class TransmitQueue {
 public:
  static constexpr unsigned burst = 64;

  void open(const PortUse& use, std::uint16_t port, PortCounters& counters) {
    use_ = use;
    port_ = port;
    counters_ = &counters;
    count_ = 0;
  }
  const PortTraits& traits() const { return use_.traits; }
  PortCounters& counters() { return *counters_; }

  /// Takes the frame. `sent` is called with each burst before it is handed over.
  template <class Sent>
  void put(rte_mbuf* frame, const Sent& sent) {
    if (count_ == burst) flush(sent);
    pending_[count_++] = frame;
  }

  template <class Sent>
  void flush(const Sent& sent) {
    if (count_ == 0) return;
    if (use_.transmit_by != nullptr) return hand_over();
    sent(pending_.data(), count_);
    std::array<std::uint32_t, burst>
        lengths;  // after the hand-over the frames are not ours to read
    for (unsigned i = 0; i < count_; ++i) lengths[i] = pending_[i]->pkt_len;
    // A queue that takes a part is asked once more for the rest; what it then refuses is lost, as
    // on a full switch queue, and repeated by its sender.
    unsigned taken = rte_eth_tx_burst(use_.traits.ethdev, use_.transmit_queue, pending_.data(),
                                      static_cast<std::uint16_t>(count_));
    if (taken < count_) {
      taken += rte_eth_tx_burst(use_.traits.ethdev, use_.transmit_queue, pending_.data() + taken,
                                static_cast<std::uint16_t>(count_ - taken));
    }
    std::uint64_t bytes = 0;
    for (unsigned i = 0; i < taken; ++i) bytes += lengths[i];
    counters_->tx_frames.add(taken);
    counters_->tx_bytes.add(bytes);
    if (taken < count_) {
      counters_->tx_full.add(count_ - taken);
      rte_pktmbuf_free_bulk(pending_.data() + taken, count_ - taken);
    }
    count_ = 0;
  }

  /// The link is down: what waits is lost.
  void discard() {
    if (count_ == 0) return;
    counters_->tx_link_down.add(count_);
    rte_pktmbuf_free_bulk(pending_.data(), count_);
    count_ = 0;
  }

 private:
  /// The lcore that sends them counts them.
  void hand_over() {
    for (unsigned i = 0; i < count_; ++i) pending_[i]->port = port_;
    const unsigned taken = use_.transmit_by->put(pending_.data(), count_);
    if (taken < count_) {
      counters_->tx_full.add(count_ - taken);
      rte_pktmbuf_free_bulk(pending_.data() + taken, count_ - taken);
    }
    count_ = 0;
  }

  PortUse use_;
  std::uint16_t port_ = 0;
  PortCounters* counters_ = nullptr;
  unsigned count_ = 0;
  std::array<rte_mbuf*, burst> pending_{};
};

}  // namespace iswitch::switchd
