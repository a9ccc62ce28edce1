// Last stage: what aggregate has completed goes to the sink, once a result or sum for the parent.
#pragma once

#include <bit>
#include <type_traits>

#include "switchd/pipeline/buffers.h"
#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/outbox.h"

namespace iswitch::pipeline {

/// How many of the delivery's shares the sink has taken.
template <class Handle, class Sink>
unsigned taken(const Delivery<Handle>& delivery, Sink& sink) {
  if constexpr (std::is_void_v<decltype(sink.result(delivery))>) {
    sink.result(delivery);
    return 0;
  } else {
    return sink.result(delivery);
  }
}

/// Empties the outbox.
template <BufferPool Buffers, class Sink>
void deliver(Outbox<typename Buffers::Handle>& outbox, Buffers& buffers, Counters& counters,
             Sink& sink) {
  for (std::size_t i = 0; i < outbox.count; ++i) {
    const Outgoing<typename Buffers::Handle>& out = outbox.list[i];
    const auto shares = static_cast<unsigned>(std::popcount(out.delivery.to));
    const unsigned used = taken(out.delivery, sink);
    if (out.delivery.payload) {
      for (unsigned left = used; left < shares; ++left) buffers.release(out.delivery.payload);
    }
    counters.add(out.counter);
    counters.add(Counter::deliver_copies, out.copies);
  }
  outbox.count = 0;
}

}  // namespace iswitch::pipeline
