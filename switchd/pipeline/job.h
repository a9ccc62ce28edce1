// A job in one shard: who may contribute, and the slots.
#pragma once

#include <cstdint>

#include "switchd/pipeline/admission.h"
#include "switchd/pipeline/slot.h"

namespace iswitch::pipeline {

/// classify sees the Admission, aggregate all of it.
template <class Handle>
struct Job : Admission {
  /// May throw bad_alloc.
  Job(const datapath::JobSpec& spec_, std::uint32_t slots_here) : slots(slots_here, spec_.history) {
    this->spec = spec_;
  }

  SlotTable<Handle> slots;
  std::uint32_t highest_round = 0xFFFF'FFFF;  ///< seen; base_round - 1 where none was
  std::uint32_t scanned = 0;                  ///< next slot that housekeep looks at
};

}  // namespace iswitch::pipeline
