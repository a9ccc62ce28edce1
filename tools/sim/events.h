// The queue of what will happen: virtual time, order by time and then by when it was scheduled, so
// that a run depends on its seed alone. Events are small values; nothing is allocated for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/units.h"

namespace iswitch::sim {

class EventHandler;

struct Event {
  Time at = 0;
  std::uint64_t sequence = 0;
  EventHandler* handler = nullptr;
  std::uint32_t kind = 0;   ///< the handler's own
  std::uint32_t value = 0;  ///< the handler's own: a port, a count, a generation
  void* object = nullptr;   ///< the handler's own: a frame, a buffer
};

/// Whatever events happen to. Handlers outlive the queue's events.
class EventHandler {
 public:
  virtual void handle(const Event& event) = 0;

 protected:
  EventHandler() = default;
  EventHandler(const EventHandler&) = default;
  EventHandler& operator=(const EventHandler&) = default;
  ~EventHandler() = default;
};

class EventQueue {
 public:
  Time now() const { return now_; }
  /// A time in the past counts as now.
  void schedule(Time at, EventHandler& handler, std::uint32_t kind, std::uint32_t value = 0,
                void* object = nullptr);
  /// Runs the next event if it lies not after `limit`; false when there is none.
  bool step(Time limit = never);
  /// Runs all events up to and including `limit`; the time is `limit` afterwards.
  void run_until(Time limit);
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  Time next_at() const { return heap_.empty() ? never : heap_.front().at; }
  std::uint64_t handled() const { return handled_; }

 private:
  static bool before(const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.sequence < b.sequence;
  }
  void sift_up(std::size_t index);
  void sift_down(std::size_t index);

  std::vector<Event>
      heap_;  // 4-ary: fewer levels than a binary heap, children in one cache line pair
  Time now_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t handled_ = 0;
};

}  // namespace iswitch::sim
