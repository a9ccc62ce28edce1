// What this machine has: CPUs the process may use, huge pages, the locked-memory limit, kernel
// interfaces. Asked of the kernel, without rights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace iswitch::switchd {

/// "0, 2, 3"
std::string numbers(const std::vector<std::uint16_t>& list, std::string_view between = ", ");

/// CPUs that the calling thread may run on, ascending.
std::vector<std::uint16_t> allowed_cpus();

/// Puts the calling thread's CPU affinity back when it goes out of scope.
class AffinityGuard {
 public:
  AffinityGuard();
  ~AffinityGuard();
  AffinityGuard(const AffinityGuard&) = delete;
  AffinityGuard& operator=(const AffinityGuard&) = delete;

 private:
  std::vector<unsigned long> mask_;
};

struct HugePages {
  std::uint64_t page_bytes = 0;
  std::uint64_t free = 0;
  std::uint64_t reserved = 0;
  std::uint64_t free_bytes() const { return page_bytes * free; }
};
/// Every size that has reserved pages, largest free memory first.
std::vector<HugePages> huge_pages();

/// Bytes that this process can still lock (RLIMIT_MEMLOCK); UINT64_MAX where it does not matter.
std::uint64_t lockable_bytes();

struct KernelInterface {
  unsigned index = 0;  ///< changes when it is deleted and made again
  bool up = false;     ///< administratively
  bool carrier = false;
  std::uint32_t mtu = 0;
};
/// Nothing when there is no such interface in this network namespace.
std::optional<KernelInterface> kernel_interface(const std::string& name);

/// Monotonic nanoseconds: the time line of the whole daemon.
std::int64_t monotonic_now();

}  // namespace iswitch::switchd
