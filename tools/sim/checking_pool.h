// The pipeline's payload memory with every rule of buffers.h checked: no write while shared, none
// after release, none beyond the room, no handle given back twice, none kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/sim/world.h"

namespace iswitch::sim {

class CheckingPool {
 public:
  struct Block;
  class Handle {
   public:
    Handle() = default;
    explicit Handle(Block* block) : block_(block) {}
    explicit operator bool() const { return block_ != nullptr; }
    bool operator==(const Handle&) const = default;
    Block* block() const { return block_; }

   private:
    Block* block_ = nullptr;
  };

  /// `room`: the longest segment. At most `capacity` buffers exist at a time.
  CheckingPool(World& world, std::size_t room, std::size_t capacity);
  ~CheckingPool();
  CheckingPool(const CheckingPool&) = delete;
  CheckingPool& operator=(const CheckingPool&) = delete;

  Handle acquire();
  void share(Handle handle, unsigned n);
  void release(Handle handle);
  std::uint8_t* data(Handle handle);

  std::size_t in_use() const { return in_use_; }
  std::uint64_t exhausted() const { return exhausted_; }

  /// A planted bug: every n-th acquire() hands out a buffer that is still shared; 0: never.
  void plant_shared(unsigned every) { plant_every_ = every; }

 private:
  std::uint64_t hash(const Block& block) const;
  void check_tail(const Block& block);

  World& world_;
  std::size_t room_;  // what is promised, rounded up to a cache line
  std::size_t capacity_;
  std::vector<std::uint8_t> free_pattern_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;
  std::size_t in_use_ = 0;
  std::uint64_t exhausted_ = 0;
  unsigned plant_every_ = 0;
  std::uint64_t acquired_ = 0;
};

}  // namespace iswitch::sim
