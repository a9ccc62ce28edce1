// One direction of a cable: rate, delay, a queue in bytes with drop-tail and ECN marks, and seeded
// faults. A frame costs one event, its arrival; of those that arrive in order only the first one's
// lies in the event queue.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tools/sim/world.h"

namespace iswitch::sim {

/// Kinds of events that nodes get from links; a node's own kinds start at first_own_event.
inline constexpr std::uint32_t arrival_event = 0;  ///< value = port, object = frame (owned)
inline constexpr std::uint32_t first_own_event = 16;

struct LinkFaults {
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;  ///< this frame alone is late by up to reorder_delay
  double corrupt = 0;  ///< a burst of flipped bits behind the Ethernet header
  double spike = 0;    ///< the line stands still for up to spike_delay
  Time reorder_delay = 0;
  Time spike_delay = 0;
  /// A planted bug: corrupt the payload and make the checksums right again.
  bool reseal = false;
  bool any() const { return loss > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || spike > 0; }
};

struct LinkSpec {
  std::uint64_t bits_per_second = 10'000'000'000;  ///< 0: no time on the line
  Time delay = microsecond;
  std::uint32_t queue_bytes =
      1U << 20;  ///< waiting and being sent; a frame that does not fit is dropped
  std::uint32_t ecn_threshold_bytes = 0;  ///< at or above, an ECN-capable frame is marked; 0: never
  LinkFaults faults;
};

struct LinkCounters {
  std::uint64_t sent = 0;  ///< offered by the sender
  std::uint64_t lost = 0, overflow = 0, duplicated = 0, corrupted = 0, reordered = 0, marked = 0,
                spikes = 0, cut = 0;
  std::uint64_t delivered = 0;  ///< arrivals scheduled: sent + duplicated - lost - overflow - cut
  std::uint64_t bytes = 0;      ///< of the frames that went onto the line
  std::uint64_t deepest_queue = 0;
};

/// Sees what comes out of links.
class LinkTap {
 public:
  /// `tag`: as given to Link::set_tap().
  virtual void crossed(Time at, unsigned tag, Bytes frame) = 0;

 protected:
  LinkTap() = default;
  LinkTap(const LinkTap&) = default;
  LinkTap& operator=(const LinkTap&) = default;
  ~LinkTap() = default;
};

/// A queue in an array that grows: no allocation once it is as large as it ever must be.
template <class T>
class Fifo {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T& front() { return ring_[first_]; }
  T& back() { return ring_[(first_ + size_ - 1) & (ring_.size() - 1)]; }
  void push_back(T value) {
    if (size_ == ring_.size()) grow();
    ring_[(first_ + size_++) & (ring_.size() - 1)] = std::move(value);
  }
  void pop_front() {
    ring_[first_] = T{};
    first_ = (first_ + 1) & (ring_.size() - 1);
    --size_;
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  void grow() {
    std::vector<T> larger(std::max<std::size_t>(8, ring_.size() * 2));
    for (std::size_t i = 0; i < size_; ++i)
      larger[i] = std::move(ring_[(first_ + i) & (ring_.size() - 1)]);
    ring_ = std::move(larger);
    first_ = 0;
  }
  std::vector<T> ring_;  // a power of two
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

class Link final : public EventHandler {
 public:
  /// Frames come out at `to`, port `to_port`. `from_node` is for the trace.
  Link(World& world, const LinkSpec& spec, std::uint16_t from_node, EventHandler& to,
       std::uint32_t to_port, Random random);

  /// When the frame has left the sender, or now if it was dropped before the line.
  Time send(FrameRef frame);
  void handle(const Event& event) override;

  /// What leaves before then is lost.
  void cut_until(Time until) { cut_until_ = until; }
  void set_tap(LinkTap* tap, unsigned tag) {
    tap_ = tap;
    tap_tag_ = tag;
  }
  void set_faults(const LinkFaults& faults) { spec_.faults = faults; }
  const LinkSpec& spec() const { return spec_; }
  const LinkCounters& counters() const { return counters_; }

 private:
  enum Kind : std::uint32_t { next_kind, stray_kind };
  struct Waiting {
    Time departs = 0;
    std::uint32_t bytes = 0;
  };
  struct Arriving {
    Time at = 0;
    FrameRef frame;
  };
  std::uint64_t queued(Time now);
  void corrupt(FrameRef& frame);
  void mark(FrameRef& frame, std::uint64_t queued);
  void deliver(FrameRef frame, Time at);
  void give(FrameRef frame);

  World& world_;
  LinkSpec spec_;
  std::uint16_t from_node_;
  EventHandler& to_;
  std::uint32_t to_port_;
  Random random_;
  LinkCounters counters_;
  Fifo<Waiting> waiting_;
  Fifo<Arriving> arriving_;  // in order; next_kind is scheduled for the first
  std::uint64_t queued_bytes_ = 0;
  Time line_free_ = 0;
  Time cut_until_ = 0;
  LinkTap* tap_ = nullptr;
  unsigned tap_tag_ = 0;
};

}  // namespace iswitch::sim
