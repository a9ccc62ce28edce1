// Last stage: what aggregate has completed goes to the sink, once a result.
#pragma once

#include "switchd/pipeline/aggregate.h"
#include "switchd/pipeline/buffers.h"
#include "switchd/pipeline/counters.h"

namespace iswitch::pipeline {

/// Empties the outbox.
template <BufferPool Buffers, class Sink>
void deliver(Outbox<typename Buffers::Handle>& outbox, Buffers& buffers, Counters& counters,
             Sink& sink) {
  for (std::size_t i = 0; i < outbox.count; ++i) {
    const Outgoing<typename Buffers::Handle>& out = outbox.list[i];
    sink.result(out.delivery);
    if (out.delivery.payload) buffers.release(out.delivery.payload);
    counters.add(out.again ? Counter::deliver_replays : Counter::deliver_results);
    counters.add(Counter::deliver_copies, out.copies);
  }
  outbox.count = 0;
}

}  // namespace iswitch::pipeline
