// Frames under way: pooled, reference-counted, never written once another owner exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "wire/units.h"

namespace iswitch::sim {

class FramePool;

/// One frame's memory; its bytes follow it.
struct FrameBlock {
  FramePool* pool = nullptr;
  std::uint32_t owners = 0;
  std::uint32_t size = 0;
  std::uint8_t* bytes = nullptr;
};

/// One owner of a frame.
class FrameRef {
 public:
  FrameRef() = default;
  FrameRef(const FrameRef& other) : block_(other.block_) {
    if (block_ != nullptr) ++block_->owners;
  }
  FrameRef(FrameRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  FrameRef& operator=(FrameRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~FrameRef();

  explicit operator bool() const { return block_ != nullptr; }
  Bytes view() const { return {block_->bytes, block_->size}; }
  std::uint32_t size() const { return block_->size; }
  /// To write: copies first when somebody else owns the frame as well.
  std::span<std::uint8_t> own();

  /// An event carries a frame as a plain pointer that owns it.
  FrameBlock* detach() { return std::exchange(block_, nullptr); }
  static FrameRef attach(void* block) { return FrameRef(static_cast<FrameBlock*>(block)); }

 private:
  friend class FramePool;
  explicit FrameRef(FrameBlock* block) : block_(block) {}
  FrameBlock* block_ = nullptr;
};

class FramePool {
 public:
  /// The longest frame that will be asked for.
  explicit FramePool(std::size_t room) : room_((room + 63) / 64 * 64) {}

  FrameRef make(std::size_t size);
  FrameRef copy(Bytes bytes);
  std::size_t in_use() const { return blocks_.size() * per_slab - free_.size(); }
  std::size_t room() const { return room_; }

 private:
  friend class FrameRef;
  static constexpr std::size_t per_slab = 64;
  struct Slab {
    std::unique_ptr<std::uint8_t[]> bytes;
    std::unique_ptr<FrameBlock[]> blocks;
  };
  void grow();

  std::size_t room_;
  std::vector<Slab> blocks_;
  std::vector<FrameBlock*> free_;
};

}  // namespace iswitch::sim
