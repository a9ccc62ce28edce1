// epoll with a callback a descriptor: what the control thread waits on.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "wire/units.h"

namespace iswitch::switchd {

class EventLoop {
 public:
  /// `events` is what epoll reports (EPOLLIN, EPOLLOUT, EPOLLHUP, ...).
  using Callback = std::function<void(std::uint32_t events)>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  bool ok() const { return epoll_ >= 0; }

  /// The descriptor stays the caller's; remove() it before closing. False when the kernel refuses.
  bool add(int fd, std::uint32_t events, Callback callback);
  void change(int fd, std::uint32_t events) const;
  /// Also from within a callback; none of this descriptor runs afterwards.
  void remove(int fd);

  /// Waits until `deadline` (monotonic) at most and runs the callbacks of what is ready.
  void run_once(Time now, Time deadline);

 private:
  struct Entry {
    Callback callback;
    std::uint64_t generation;  ///< a descriptor's number may be used again within one round
  };
  int epoll_;
  std::uint64_t generation_ = 0;
  std::unordered_map<int, Entry> entries_;
};

}  // namespace iswitch::switchd
