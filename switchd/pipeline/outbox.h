// What aggregate hands to deliver.
#pragma once

#include <array>
#include <cstdint>

#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/frame.h"

namespace iswitch::pipeline {

/// A result, or a sum for the parent, on its way to deliver. It holds a share of its payload for
/// each copy: the slot may complete again, and let go of the payload, before the sink is called,
/// and a fresh sum, which nobody else holds yet, is shared at the least cost.
template <class Handle>
struct Outgoing {
  Delivery<Handle> delivery;
  std::uint16_t copies = 0;                    ///< for members
  Counter counter = Counter::deliver_results;  ///< what it is counted as
};

/// In order. A frame or an order's step makes two at most: a parent's result may let the next sum
/// go up, a duplicate may be answered while a sum is sent up again.
template <class Handle>
struct Outbox {
  std::array<Outgoing<Handle>, std::size_t{2} * max_burst> list{};
  std::size_t count = 0;
};

}  // namespace iswitch::pipeline
