#include "tools/sim/frames.h"

#include <cstring>

namespace iswitch::sim {

FrameRef::~FrameRef() {
  if (block_ != nullptr && --block_->owners == 0) block_->pool->free_.push_back(block_);
}

std::span<std::uint8_t> FrameRef::own() {
  if (block_->owners > 1) *this = block_->pool->copy(view());
  return {block_->bytes, block_->size};
}

FrameRef FramePool::make(std::size_t size) {
  if (free_.empty()) grow();
  FrameBlock* block = free_.back();
  free_.pop_back();
  block->owners = 1;
  block->size = static_cast<std::uint32_t>(size < room_ ? size : room_);
  return FrameRef(block);
}

FrameRef FramePool::copy(Bytes bytes) {
  FrameRef frame = make(bytes.size());
  std::memcpy(frame.block_->bytes, bytes.data(), frame.size());
  return frame;
}

void FramePool::grow() {
  Slab slab{std::make_unique<std::uint8_t[]>(per_slab * room_),
            std::make_unique<FrameBlock[]>(per_slab)};
  for (std::size_t i = 0; i < per_slab; ++i) {
    slab.blocks[i].pool = this;
    slab.blocks[i].bytes = slab.bytes.get() + i * room_;
    free_.push_back(&slab.blocks[i]);
  }
  blocks_.push_back(std::move(slab));
}

}  // namespace iswitch::sim
