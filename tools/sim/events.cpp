#include "tools/sim/events.h"

#include <algorithm>

namespace iswitch::sim {

void EventQueue::schedule(Time at, EventHandler& handler, std::uint32_t kind, std::uint32_t value,
                          void* object) {
  heap_.push_back({std::max(at, now_), sequence_++, &handler, kind, value, object});
  sift_up(heap_.size() - 1);
}

bool EventQueue::step(Time limit) {
  if (heap_.empty() || heap_.front().at > limit) return false;
  const Event event = heap_.front();
  heap_.front() = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) sift_down(0);
  now_ = event.at;
  ++handled_;
  event.handler->handle(event);
  return true;
}

void EventQueue::run_until(Time limit) {
  while (step(limit)) {
  }
  now_ = std::max(now_, limit);
}

void EventQueue::sift_up(std::size_t index) {
  const Event event = heap_[index];
  while (index > 0) {
    const std::size_t parent = (index - 1) / 4;
    if (!before(event, heap_[parent])) break;
    heap_[index] = heap_[parent];
    index = parent;
  }
  heap_[index] = event;
}

void EventQueue::sift_down(std::size_t index) {
  const Event event = heap_[index];
  const std::size_t size = heap_.size();
  while (true) {
    const std::size_t first = 4 * index + 1;
    if (first >= size) break;
    std::size_t least = first;
    for (std::size_t child = first + 1; child < std::min(first + 4, size); ++child) {
      if (before(heap_[child], heap_[least])) least = child;
    }
    if (!before(heap_[least], event)) break;
    heap_[index] = heap_[least];
    index = least;
  }
  heap_[index] = event;
}

}  // namespace iswitch::sim
