// Last stage: what aggregate has completed goes to the sink, once a result or sum for the parent.
#pragma once

#include "switchd/pipeline/buffers.h"
#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/outbox.h"

namespace iswitch::pipeline {

/// Empties the outbox.
template <BufferPool Buffers, class Sink>
void deliver(Outbox<typename Buffers::Handle>& outbox, Buffers& buffers, Counters& counters,
             Sink& sink) {
  for (std::size_t i = 0; i < outbox.count; ++i) {
    const Outgoing<typename Buffers::Handle>& out = outbox.list[i];
    sink.result(out.delivery);
    if (out.delivery.payload) buffers.release(out.delivery.payload);
    counters.add(out.counter);
    counters.add(Counter::deliver_copies, out.copies);
  }
  outbox.count = 0;
}

}  // namespace iswitch::pipeline
