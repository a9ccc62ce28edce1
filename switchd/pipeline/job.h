// A job in one shard: who may contribute, the slots, and what only some kinds of jobs need.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "switchd/pipeline/admission.h"
#include "switchd/pipeline/parent.h"
#include "switchd/pipeline/slot.h"

namespace iswitch::pipeline {

/// What the slots of an asynchronous job need beside their sums (protocol.md section 5).
template <class Handle>
struct AsyncTables {
  /// By member id and slot: the number of the last accepted push. Empty where there is no row.
  std::array<std::vector<std::uint32_t>, wire::max_members> accepted;
  /// At a child, by slot.
  std::vector<OutstandingPush<Handle>> outstanding;
  /// By slot: the newest update that a worker of this switch had after a restart. Older ones are
  /// theirs to hand back, since they know who is in them.
  std::vector<std::uint32_t> own_newest;
};

/// classify sees the Admission, aggregate all of it.
template <class Handle>
struct Job : Admission {
  /// May throw bad_alloc.
  Job(const datapath::JobSpec& spec_, std::uint32_t slots_here) : slots(slots_here, spec_.history) {
    this->spec = spec_;
    const bool is_async = spec_.mode == wire::Mode::async;
    if (is_async) {
      async = std::make_unique<AsyncTables<Handle>>();
      async->own_newest.resize(slots_here);
    }
    if (!spec_.child) return;
    link = std::make_unique<ParentLink>();
    if (is_async) {
      async->outstanding.resize(slots_here);
    } else {
      link->asked.resize(slots.places());
    }
  }

  SlotTable<Handle> slots;
  std::uint32_t base_round = 0;                ///< of the last Start
  datapath::Resumption resumption;             ///< of the last Start, where `resumed`
  std::uint32_t highest_round = 0xFFFF'FFFF;   ///< seen; base_round - 1 where none was
  std::uint32_t scanned = 0;                   ///< next slot that housekeep looks at
  std::unique_ptr<AsyncTables<Handle>> async;  ///< of an asynchronous job
  std::unique_ptr<ParentLink> link;            ///< of a child job
};

}  // namespace iswitch::pipeline
