// Payload memory for tests: blocks that notice a write while they are shared, a write past the
// promised room, use after the last release, and blocks not given back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "wire/header.h"

namespace iswitch::testing {

class BlockPool {
 public:
  static constexpr std::size_t room = wire::max_segment_bytes;

  struct Block {
    alignas(64) std::array<std::uint8_t, room + 64> bytes{};
    unsigned owners = 0;
    std::uint64_t frozen = 0;  ///< hash of the bytes since the block is shared
  };

  struct Handle {
    Block* block = nullptr;
    explicit operator bool() const { return block != nullptr; }
  };

  explicit BlockPool(std::size_t capacity) : capacity_(capacity) {}

  Handle acquire() {
    if (in_use_ == capacity_) return {};
    Block* block = nullptr;
    if (free_.empty()) {
      blocks_.push_back(std::make_unique<Block>());
      block = blocks_.back().get();
    } else {
      block = free_.back();
      free_.pop_back();
    }
    // Not cleared, as the contract says: whoever relies on zeros gets NaNs.
    block->bytes.fill(0xFF);
    block->owners = 1;
    ++in_use_;
    return {block};
  }

  void share(Handle handle, unsigned n) {
    check(handle, "shared after its release");
    if (handle.block->owners == 1) handle.block->frozen = hash(*handle.block);
    handle.block->owners += n;
  }

  void release(Handle handle) {
    check(handle, "released twice");
    if (handle.block->owners == 0) return;
    if (--handle.block->owners > 0) return;
    for (std::size_t i = room; i < handle.block->bytes.size(); ++i) {
      if (handle.block->bytes[i] != 0xFF) complain("written past the room");
    }
    free_.push_back(handle.block);
    --in_use_;
  }

  std::uint8_t* data(Handle handle) {
    check(handle, "read after its release");
    return handle.block->bytes.data();
  }

  std::size_t in_use() const { return in_use_; }
  void set_capacity(std::size_t capacity) { capacity_ = capacity; }
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  void check(Handle handle, const char* what) {
    if (handle.block->owners == 0) complain(what);
    if (handle.block->owners > 1 && hash(*handle.block) != handle.block->frozen)
      complain("written while shared");
  }
  void complain(const char* what) { complaints_.emplace_back(what); }

  static std::uint64_t hash(const Block& block) {
    std::uint64_t value = 0xCBF2'9CE4'8422'2325u;  // FNV-1a
    for (const std::uint8_t byte : block.bytes) value = (value ^ byte) * 0x100'0000'01B3u;
    return value;
  }

  std::size_t capacity_;
  std::size_t in_use_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;
  std::vector<std::string> complaints_;
};

}  // namespace iswitch::testing
