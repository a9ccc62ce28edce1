#include "agent/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace iswitch::agent {

namespace {

std::atomic<std::uint32_t> generation{0};
/// -1 where free. Lock-free, since the child of a fork may take no lock.
std::array<std::atomic<int>, 512> descriptors;

void in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  for (auto& entry : descriptors) {
    const int fd = entry.exchange(-1, std::memory_order_relaxed);
    if (fd >= 0) close(fd);
  }
}

void prepare_once() {
  static const bool done = [] {
    for (auto& entry : descriptors) entry.store(-1, std::memory_order_relaxed);
    pthread_atfork(nullptr, nullptr, in_child);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

std::uint32_t fork_generation() {
  prepare_once();
  return generation.load(std::memory_order_relaxed);
}

bool close_in_children(int fd) {
  prepare_once();
  for (auto& entry : descriptors) {
    int free = -1;
    if (entry.compare_exchange_strong(free, fd, std::memory_order_relaxed)) return true;
  }
  return false;
}

void forget_in_children(int fd) {
  for (auto& entry : descriptors) {
    int expected = fd;
    if (entry.compare_exchange_strong(expected, -1, std::memory_order_relaxed)) return;
  }
}

}  // namespace iswitch::agent
