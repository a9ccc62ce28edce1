// A habit of DPDK 22.11's net_memif that a switch cannot have and the driver has no argument for.
// Its call is caught here: this definition stands before the C library's for everything in the
// process, and changes nothing else.
//
// When a client goes, DPDK's interrupt thread unmaps the memory that it shared, at once: also while
// a packet loop is between finding the port connected and the end of its burst, and the switch
// would end by a segmentation fault, the sooner the busier its cores are. Here the memory stays
// where it is for as long as no burst takes.
#include <rte_interrupts.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>  // NOLINT(modernize-deprecated-headers): clock_gettime is POSIX
#include <unistd.h>

#include <cstddef>
#include <deque>

namespace {

constexpr time_t seconds_kept = 2;

struct Kept {
  void* address;
  std::size_t bytes;
  time_t until;
};

int plain_munmap(void* address, std::size_t bytes) {
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}

/// Called by one thread, DPDK's for interrupts.
void unmap_later(void* address, std::size_t bytes) {
  static std::deque<Kept> kept;  // the latest client's stays until the next one goes
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  while (!kept.empty() && kept.front().until <= now.tv_sec) {
    plain_munmap(kept.front().address, kept.front().bytes);
    kept.pop_front();
  }
  kept.push_back({address, bytes, now.tv_sec + seconds_kept});
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int munmap(void* address,
                                                             std::size_t bytes) noexcept {
  if (rte_thread_is_intr() == 0) return plain_munmap(address, bytes);
  unmap_later(address, bytes);
  return 0;
}
