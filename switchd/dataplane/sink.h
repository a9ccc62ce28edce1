// Where the pipeline's output goes in the daemon: frames into transmit queues, messages into rings.
// Owned by one lcore.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "switchd/datapath/datapath.h"
#include "switchd/dataplane/capture_ring.h"
#include "switchd/dataplane/refusal.h"
#include "switchd/dataplane/ring.h"
#include "switchd/dataplane/stage_clock.h"
#include "switchd/dataplane/transmit.h"
#include "switchd/pipeline/frame.h"
#include "wire/frame.h"

namespace iswitch::switchd {

class MbufSink {
 public:
  using PortMask = datapath::PortMask;
  using PortId = datapath::PortId;
  using Delivery = pipeline::Delivery<rte_mbuf*>;

  /// To the control thread.
  struct Rings {
    Ring<datapath::ControlFrame>& control;
    Ring<datapath::Notice>& notices;
    Ring<Refusal>& refusals;
  };
  /// `clock` may be null, and is the caller's.
  MbufSink(rte_mempool* frames, rte_mempool* headers, const Rings& rings, StageClock* clock)
      : frames_(frames), headers_(headers), rings_(rings), clock_(clock) {}
  ~MbufSink() { rte_pktmbuf_free_bulk(heads_.data(), heads_left_); }
  MbufSink(const MbufSink&) = delete;
  MbufSink& operator=(const MbufSink&) = delete;

  // ---- ports, changed between bursts only

  TransmitQueue& queue(PortId port) { return queues_[port]; }
  void open_port(PortId port, const PortUse& use, PortCounters& counters) {
    const PortTraits& traits = use.traits;
    queues_[port].open(use, port, counters);
    set(chained_, port, traits.chained);
    set(open_, port, true);
    set(shareable_, port, traits.may_share);
  }
  void close_port(PortId port) {
    queues_[port].discard();
    set(open_, port, false);
    set(up_, port, false);
  }
  PortMask open_ports() const { return open_; }
  /// Of the open ports those whose link is up. What goes to the others is dropped: a device that is
  /// down would send it when it comes back, long after anybody wants it.
  void set_up(PortMask up) {
    for (PortMask left = up_ & ~up; left != 0; left &= left - 1) {
      queues_[static_cast<unsigned>(std::countr_zero(left))].discard();
    }
    up_ = up & open_;
  }

  /// Every burst that leaves in this turn is recorded in `capture`; null: none is.
  void begin_turn(CaptureRing* capture, Time now) {
    capture_ = capture;
    now_ = now;
  }

  void flush() {
    for (PortMask left = pending_; left != 0; left &= left - 1) {
      const auto port = static_cast<PortId>(std::countr_zero(left));
      queues_[port].flush(Recorder{*this, port});
    }
    pending_ = 0;
  }

  // ---- a burst

  void begin_burst(rte_mbuf** burst, PortId port) {
    burst_ = burst;
    ingress_ = port;
    forwarded_ = 0;
  }
  /// Bit i: frame i was taken by forward().
  std::uint64_t forwarded() const { return forwarded_; }
  /// Something was put into a ring since the last call.
  bool take_wake() {
    const bool wake = wake_;
    wake_ = false;
    return wake;
  }

  /// Takes the frame.
  void send(PortId port, rte_mbuf* frame) {
    if ((up_ >> port & 1) == 0) {
      link_down(port);
      rte_pktmbuf_free(frame);
      return;
    }
    if (frame->pkt_len > queues_[port].traits().longest_frame) {
      queues_[port].counters().tx_oversized.add(1);
      rte_pktmbuf_free(frame);
      return;
    }
    put(port, frame);
  }

  void stage(LoopStage stage) {
    if (clock_ != nullptr && clock_->on) [[unlikely]]
      clock_->mark(stage);
  }

  // ---- what a pipeline asks of its sink

  void stage(pipeline::Stage ended) { stage(stage_of(ended)); }

  void forward(unsigned index, PortMask ports) {
    rte_mbuf* frame = burst_[index];
    forwarded_ |= std::uint64_t{1} << index;
    if (std::has_single_bit(ports))
      return send(static_cast<PortId>(std::countr_zero(ports)), frame);
    // Ports that hand the very buffer to a peer get copies of their own.
    for (PortMask left = ports & ~shareable_; left != 0; left &= left - 1) {
      const auto port = static_cast<PortId>(std::countr_zero(left));
      if (rte_mbuf* copy = rte_pktmbuf_copy(frame, frames_, 0, UINT32_MAX)) {
        send(port, copy);
      } else {
        no_buffer(port);
      }
    }
    const PortMask sharing = ports & shareable_;
    if (sharing == 0) return rte_pktmbuf_free(frame);
    rte_mbuf_refcnt_update(frame, static_cast<std::int16_t>(std::popcount(sharing) - 1));
    for (PortMask left = sharing; left != 0; left &= left - 1) {
      send(static_cast<PortId>(std::countr_zero(left)), frame);
    }
  }

  void transmit(PortId port, Bytes bytes) {
    rte_mbuf* frame = new_frame(static_cast<std::uint32_t>(bytes.size()));
    if (frame == nullptr) return no_buffer(port);
    std::memcpy(rte_pktmbuf_mtod(frame, void*), bytes.data(), bytes.size());
    send(port, frame);
  }

  bool control(const datapath::ControlFrame& frame) {
    wake_ = true;
    return rings_.control.put(frame);
  }

  void notice(const datapath::Notice& notice) {
    wake_ = true;
    if (!rings_.notices.put(notice)) notices_lost_.add(1);
  }
  const pipeline::Tally& notices_lost() const { return notices_lost_; }

  /// An example of each reason goes to the control thread, at most one in a second.
  void refused(unsigned index, pipeline::Counter reason) {
    Sampled& sampled = sampled_[static_cast<std::size_t>(reason)];
    ++sampled.count;
    if (now_ < sampled.next) return;
    const rte_mbuf* frame = burst_[index];
    Refusal refusal;
    refusal.reason = reason;
    refusal.port = ingress_;
    refusal.count = sampled.count;
    refusal.frame_bytes = frame->data_len;
    std::memcpy(refusal.head.data(), rte_pktmbuf_mtod(frame, const void*),
                std::min<std::size_t>(refusal.head.size(), frame->data_len));
    if (!rings_.refusals.put(refusal)) return;
    sampled = {now_ + second, 0};
    wake_ = true;
  }

  unsigned result(const Delivery& delivery) {
    if (delivery.payload != nullptr) {
      const std::uint32_t bytes = delivery.fields.payload_bytes;
      delivery.payload->data_len = static_cast<std::uint16_t>(bytes);
      delivery.payload->pkt_len = bytes;
    }
    unsigned shares_used = 0;
    for (std::uint64_t left = delivery.to; left != 0; left &= left - 1) {
      const pipeline::Destination& destination =
          delivery.destinations[static_cast<unsigned>(std::countr_zero(left))];
      const PortId port = destination.port;
      if ((up_ >> port & 1) == 0) {
        link_down(port);
        continue;
      }
      // Most of what a copy costs is the call, were it one through a pointer.
      const bool used = (chained_ >> port & 1) != 0 ? emit_chained(delivery, destination)
                                                    : emit_copied(delivery, destination);
      if (used) ++shares_used;
    }
    return shares_used;
  }

 private:
  struct Recorder {
    MbufSink& sink;
    PortId port;
    void operator()(rte_mbuf** frames, unsigned count) const {
      if (sink.capture_ != nullptr) {
        sink.capture_->record(frames, count, port, Direction::transmitted, sink.now_);
      }
    }
  };

  static void set(PortMask& mask, PortId port, bool value) {
    const PortMask bit = PortMask{1} << port;
    mask = value ? mask | bit : mask & ~bit;
  }

  void put(PortId port, rte_mbuf* frame) {
    pending_ |= PortMask{1} << port;
    queues_[port].put(frame, Recorder{*this, port});
  }

  rte_mbuf* new_frame(std::uint32_t size) {
    rte_mbuf* frame = rte_pktmbuf_alloc(frames_);
    if (frame == nullptr) return nullptr;
    if (size > rte_pktmbuf_tailroom(frame)) {
      rte_pktmbuf_free(frame);
      return nullptr;
    }
    frame->data_len = static_cast<std::uint16_t>(size);
    frame->pkt_len = size;
    return frame;
  }

  // These give true when they use up a share of the payload.

  bool emit_chained(const Delivery& delivery, const pipeline::Destination& destination) {
    if (heads_left_ == 0 && !take_heads()) {
      no_buffer(destination.port);
      return false;
    }
    rte_mbuf* head = heads_[--heads_left_];
    // As rte_pktmbuf_reset() would, but for what stays as it was made and what nobody reads.
    head->data_off = RTE_PKTMBUF_HEADROOM;
    head->ol_flags = 0;
    destination.header.write(delivery.fields, rte_pktmbuf_mtod(head, std::uint8_t*));
    head->data_len = wire::payload_offset;
    head->pkt_len =
        static_cast<std::uint32_t>(wire::payload_offset) + delivery.fields.payload_bytes;
    head->next = delivery.payload;
    head->nb_segs = delivery.payload != nullptr ? 2 : 1;
    put(destination.port, head);
    return delivery.payload != nullptr;
  }

  [[gnu::noinline]] bool emit_copied(const Delivery& delivery,
                                     const pipeline::Destination& destination) {
    const std::uint32_t bytes = delivery.fields.payload_bytes;
    rte_mbuf* frame = new_frame(static_cast<std::uint32_t>(wire::payload_offset) + bytes);
    if (frame == nullptr) {
      no_buffer(destination.port);
      return false;
    }
    auto* out = rte_pktmbuf_mtod(frame, std::uint8_t*);
    destination.header.write(delivery.fields, out);
    if (delivery.payload != nullptr) {
      rte_memcpy(out + wire::payload_offset,
                 rte_pktmbuf_mtod(delivery.payload, const std::uint8_t*), bytes);
    }
    put(destination.port, frame);
    return false;
  }

  /// Many at a time, since each asking of a pool costs as much as a head. Near the pool's end one.
  [[gnu::noinline]] bool take_heads() {
    auto* list = reinterpret_cast<void**>(heads_.data());
    if (rte_mempool_get_bulk(headers_, list, heads_.size()) == 0) {
      heads_left_ = heads_.size();
    } else if (rte_mempool_get(headers_, list) == 0) {
      heads_left_ = 1;
    }
    return heads_left_ > 0;
  }

  void link_down(PortId port) { queues_[port].counters().tx_link_down.add(1); }
  void no_buffer(PortId port) { queues_[port].counters().tx_no_buffer.add(1); }

  rte_mempool* frames_;
  rte_mempool* headers_;
  std::array<rte_mbuf*, 32> heads_{};  // taken and not yet used
  unsigned heads_left_ = 0;
  Rings rings_;
  StageClock* const clock_;
  pipeline::Tally notices_lost_;

  std::array<TransmitQueue, datapath::max_ports> queues_;
  PortMask open_ = 0;
  PortMask up_ = 0;  // a part of open_
  PortMask shareable_ = 0;
  PortMask chained_ = 0;
  PortMask pending_ = 0;

  struct Sampled {
    Time next = 0;
    std::uint32_t count = 0;  // since the last one that was told
  };
  std::array<Sampled, pipeline::counter_count> sampled_{};

  rte_mbuf** burst_ = nullptr;
  PortId ingress_ = 0;
  std::uint64_t forwarded_ = 0;
  bool wake_ = false;
  CaptureRing* capture_ = nullptr;
  Time now_ = 0;
};

}  // namespace iswitch::switchd
