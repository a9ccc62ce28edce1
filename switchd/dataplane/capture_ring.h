// Recorded frames on their way from an lcore to whoever writes them out. Bounded: what does not fit
// is counted. One lcore records, the control thread takes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "switchd/datapath/datapath.h"
#include "switchd/pipeline/counters.h"
#include "wire/units.h"

struct rte_mbuf;

namespace iswitch::switchd {

enum class Direction : std::uint8_t { received = 1, transmitted = 2 };

struct CapturedFrame {
  Time at = 0;  ///< monotonic
  datapath::PortId port = 0;
  Direction direction = Direction::received;
  std::uint32_t original_bytes = 0;
  Bytes bytes;  ///< valid until the next take()
};

class CaptureRing {
 public:
  /// `bytes` is rounded up to a power of two.
  explicit CaptureRing(std::size_t bytes);

  /// The union of what all captures want; set by the control thread at any time.
  void want(datapath::PortMask ports, std::uint32_t snap) {
    ports_.store(ports, std::memory_order_relaxed);
    snap_.store(snap, std::memory_order_relaxed);
  }

  /// lcore: the first bytes of every frame, whatever its chain of buffers.
  void record(rte_mbuf* const* frames, unsigned count, datapath::PortId port, Direction direction,
              Time at);

  /// Control thread: false when empty.
  bool take(CapturedFrame& out);

  /// Frames of a port that found no room.
  std::uint64_t dropped(datapath::PortId port) const { return dropped_[port].get(); }

 private:
  struct Header {
    Time at;
    std::uint32_t original_bytes;
    std::uint32_t captured_bytes;
    datapath::PortId port;
    Direction direction;
  };
  void write(std::uint64_t at, const void* from, std::size_t size);
  void read(std::uint64_t at, void* to, std::size_t size) const;

  std::vector<std::uint8_t> buffer_;
  std::uint64_t mask_;
  std::atomic<datapath::PortMask> ports_{0};  // written by control, read by the lcore
  std::atomic<std::uint32_t> snap_{0};        // likewise
  std::array<pipeline::Tally, datapath::max_ports> dropped_;  // written by the lcore
  alignas(64) std::atomic<std::uint64_t> head_{0};            // bytes ever written; by the lcore
  alignas(64) std::atomic<std::uint64_t> tail_{0};            // bytes ever taken; by control
  std::vector<std::uint8_t> taken_;                           // control's
};

}  // namespace iswitch::switchd
