// A workload for the pipeline over plain memory: frames of every member for every slot, payload
// memory without bookkeeping, and a sink that only writes the headers of the copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "switchd/pipeline/pipeline.h"

namespace iswitch::bench {

/// Memory of huge alignment as a packet pool gives it: blocks of whole cache lines, an odd number
/// of them apart, so that blocks do not fall onto the same cache sets.
class Blocks {
 public:
  Blocks(std::size_t count, std::size_t bytes);
  std::size_t size() const { return count_; }
  std::uint8_t* operator[](std::size_t i) { return memory_.get() + i * stride_; }
  const std::uint8_t* operator[](std::size_t i) const { return memory_.get() + i * stride_; }

 private:
  struct Free {
    void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t{4096}); }
  };
  std::size_t count_;
  std::size_t stride_;
  std::unique_ptr<std::uint8_t[], Free> memory_;
};

/// Buffers: a free list over plain blocks, and a count of owners each.
class PlainBuffers {
 public:
  struct Handle {
    std::uint32_t number = 0;  ///< block + 1
    explicit operator bool() const { return number != 0; }
  };
  PlainBuffers(std::size_t count, std::size_t bytes);

  Handle acquire() {
    if (free_.empty()) return {};
    const Handle handle = free_.back();
    free_.pop_back();
    owners_[handle.number - 1] = 1;
    return handle;
  }
  void share(Handle handle, unsigned n) { owners_[handle.number - 1] += n; }
  void release(Handle handle) {
    if (--owners_[handle.number - 1] == 0) free_.push_back(handle);
  }
  std::uint8_t* data(Handle handle) { return blocks_[handle.number - 1]; }

 private:
  Blocks blocks_;
  std::vector<std::uint32_t> owners_;
  std::vector<Handle> free_;
};

/// Writes each copy's 64 header bytes and remembers the results for the check afterwards.
class HeaderSink {
 public:
  struct Seen {
    std::uint32_t segment;
    std::uint32_t bytes;
    PlainBuffers::Handle payload;
  };
  HeaderSink() : headers_(256, wire::payload_offset) {}

  void forward(unsigned, pipeline::PortMask) {}
  void transmit(pipeline::PortId, Bytes) {}
  bool control(const datapath::ControlFrame&) { return true; }
  void notice(const datapath::Notice&) {}
  void result(const pipeline::Delivery<PlainBuffers::Handle>& delivery) {
    for (wire::MemberMask left = delivery.to; left != 0; left &= left - 1) {
      const auto member = static_cast<unsigned>(std::countr_zero(left));
      delivery.destinations[member].header.write(delivery.fields, headers_[next_]);
      next_ = (next_ + 1) % headers_.size();
    }
    seen.push_back({delivery.fields.segment, delivery.fields.payload_bytes, delivery.payload});
  }

  std::vector<Seen> seen;

 private:
  Blocks headers_;
  std::size_t next_ = 0;
};

struct Shape {
  std::size_t segment_bytes = 1440;
  unsigned members = 4;
  std::uint32_t slots = 8;
};

/// One contribution of each member to each slot, in the order in which members with a window of
/// the burst's size arrive: a window of one member, then the same of the next.
class Workload {
 public:
  explicit Workload(const Shape& shape);

  std::size_t packets() const { return burst_.size(); }
  /// All frames say the next round now (headers and checksums patched, not timed).
  void next_round();
  /// The whole round through the pipeline, a burst at a time.
  void run_pipeline();
  /// Empty when the last run gave one right result for each slot.
  std::string check();

  /// The additions of one round alone, with the same kernels, memory and order.
  void run_additions();
  /// The checksum's sum over each payload alone.
  std::uint64_t run_checksums() const;

  static constexpr unsigned burst = 32;

 private:
  struct Work {
    unsigned member;
    std::uint32_t slot;
  };
  float value(unsigned member, std::uint32_t slot, std::size_t i) const;

  Shape shape_;
  Blocks frames_;
  Blocks sums_;
  PlainBuffers buffers_;
  HeaderSink sink_;
  pipeline::Pipeline<PlainBuffers> pipeline_;
  std::vector<Work> order_;
  std::vector<pipeline::Frame> burst_;
  std::uint32_t round_ = 0xFFFF'FFFF;
};

}  // namespace iswitch::bench
