#include "tools/sim/checking_pool.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "tools/sim/hash.h"

namespace iswitch::sim {

namespace {

constexpr std::uint8_t free_byte = 0xDB;
constexpr std::uint8_t fresh_byte = 0xFB;  // floats of it are NaN-free but absurd: -2.6e36
constexpr std::uint8_t tail_byte = 0xC7;
constexpr std::size_t tail_bytes = 64;

struct AlignedDelete {
  void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t{64}); }
};

}  // namespace

struct CheckingPool::Block {
  std::unique_ptr<std::uint8_t[], AlignedDelete> bytes;
  unsigned owners = 0;
  bool sealed = false;  // was shared: must not change until it is free
  std::uint64_t seal = 0;
};

CheckingPool::CheckingPool(World& world, std::size_t room, std::size_t capacity)
    : world_(world),
      room_((room + 63) / 64 * 64),
      capacity_(capacity),
      free_pattern_(room_, free_byte) {}

CheckingPool::~CheckingPool() {
  if (in_use_ != 0) {
    world_.violation("buffers", format("%zu buffers were not given back to the pool", in_use_));
  }
}

std::uint64_t CheckingPool::hash(const Block& block) const {
  return hash_bytes({block.bytes.get(), room_});
}

void CheckingPool::check_tail(const Block& block) {
  const std::uint8_t* tail = block.bytes.get() + room_;
  if (std::any_of(tail, tail + tail_bytes, [](std::uint8_t b) { return b != tail_byte; })) {
    world_.violation("buffers", "a buffer was written beyond its room");
  }
}

CheckingPool::Handle CheckingPool::acquire() {
  ++acquired_;
  if (plant_every_ != 0 && acquired_ % plant_every_ == 0) {
    for (const auto& block : blocks_) {
      if (!block->sealed || block->owners == 0) continue;
      ++block->owners;
      return Handle(block.get());
    }
  }
  if (in_use_ == capacity_) {
    ++exhausted_;
    return {};
  }
  if (free_.empty()) {
    auto block = std::make_unique<Block>();
    block->bytes.reset(
        static_cast<std::uint8_t*>(::operator new[](room_ + tail_bytes, std::align_val_t{64})));
    std::memset(block->bytes.get(), free_byte, room_);
    std::memset(block->bytes.get() + room_, tail_byte, tail_bytes);
    free_.push_back(block.get());
    blocks_.push_back(std::move(block));
  }
  Block* block = free_.back();
  free_.pop_back();
  if (std::memcmp(block->bytes.get(), free_pattern_.data(), room_) != 0) {
    world_.violation("buffers", "a buffer was written after its last release");
  }
  std::memset(block->bytes.get(), fresh_byte, room_);
  block->owners = 1;
  block->sealed = false;
  ++in_use_;
  return Handle(block);
}

void CheckingPool::share(Handle handle, unsigned n) {
  Block* block = handle.block();
  if (block == nullptr || block->owners == 0) {
    world_.violation("buffers", "share() of a buffer that nobody owns");
    return;
  }
  if (!block->sealed) {
    block->sealed = true;
    block->seal = hash(*block);
  }
  block->owners += n;
}

void CheckingPool::release(Handle handle) {
  Block* block = handle.block();
  if (block == nullptr || block->owners == 0) {
    world_.violation("buffers", "release() of a buffer that nobody owns");
    return;
  }
  if (--block->owners != 0) return;
  if (block->sealed && hash(*block) != block->seal) {
    world_.violation("buffers", "a buffer was written while it was shared");
  }
  check_tail(*block);
  std::memset(block->bytes.get(), free_byte, room_);
  free_.push_back(block);
  --in_use_;
}

std::uint8_t* CheckingPool::data(Handle handle) {
  Block* block = handle.block();
  if (block == nullptr || block->owners == 0) {
    world_.violation("buffers", "data() of a buffer that nobody owns");
    return nullptr;
  }
  return block->bytes.get();
}

}  // namespace iswitch::sim
