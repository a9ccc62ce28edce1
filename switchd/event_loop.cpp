#include "switchd/event_loop.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace iswitch::switchd {
namespace {

// The number is in the low half, the generation in the high one.
std::uint64_t token(int fd, std::uint64_t generation) {
  return generation << 32 | static_cast<std::uint32_t>(fd);
}

}  // namespace

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

EventLoop::~EventLoop() {
  if (epoll_ >= 0) close(epoll_);
}

bool EventLoop::add(int fd, std::uint32_t events, Callback callback) {
  epoll_event event{};
  generation_ = (generation_ + 1) & UINT32_MAX;
  event.events = events;
  event.data.u64 = token(fd, generation_);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return false;
  entries_[fd] = {std::move(callback), generation_};
  return true;
}

void EventLoop::change(int fd, std::uint32_t events) const {
  const auto entry = entries_.find(fd);
  if (entry == entries_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, entry->second.generation);
  epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) {
  if (entries_.erase(fd) > 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::run_once(Time now, Time deadline) {
  constexpr Time longest_wait = 10 * second;
  const Time wait = std::clamp<Time>(deadline - now, 0, longest_wait);
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                               static_cast<int>((wait + millisecond - 1) / millisecond));
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    const int fd = static_cast<int>(static_cast<std::uint32_t>(event.data.u64));
    const auto entry = entries_.find(fd);
    if (entry == entries_.end() || entry->second.generation != event.data.u64 >> 32) continue;
    // A copy: the callback may remove itself.
    const Callback callback = entry->second.callback;
    callback(event.events);
  }
}

}  // namespace iswitch::switchd
