#include "switchd/dataplane/machine.h"

#include <dirent.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>

#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

constexpr std::size_t most_cpus = 8192;

std::vector<unsigned long> affinity_mask() {
  std::vector<unsigned long> mask(most_cpus / (8 * sizeof(unsigned long)));
  auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
  if (sched_getaffinity(0, mask.size() * sizeof(unsigned long), set) != 0) mask.clear();
  return mask;
}

std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  file >> value;
  return file ? value : 0;
}

}  // namespace

std::string numbers(const std::vector<std::uint16_t>& list, std::string_view between) {
  std::string out;
  for (const std::uint16_t number : list) out += text(out.empty() ? "" : between, number);
  return out;
}

std::vector<std::uint16_t> allowed_cpus() {
  const std::vector<unsigned long> mask = affinity_mask();
  constexpr std::size_t word_bits = 8 * sizeof(unsigned long);
  std::vector<std::uint16_t> cpus;
  for (std::size_t cpu = 0; cpu < mask.size() * word_bits; ++cpu) {
    if ((mask[cpu / word_bits] >> (cpu % word_bits) & 1) != 0) {
      cpus.push_back(static_cast<std::uint16_t>(cpu));
    }
  }
  return cpus;
}

AffinityGuard::AffinityGuard() : mask_(affinity_mask()) {}

AffinityGuard::~AffinityGuard() {
  if (mask_.empty()) return;
  sched_setaffinity(0, mask_.size() * sizeof(unsigned long),
                    reinterpret_cast<const cpu_set_t*>(mask_.data()));
}

std::vector<HugePages> huge_pages() {
  constexpr const char* root = "/sys/kernel/mm/hugepages";
  std::vector<HugePages> out;
  DIR* directory = opendir(root);
  if (directory == nullptr) return out;
  while (const dirent* entry = readdir(directory)) {  // NOLINT(concurrency-mt-unsafe)
    const std::string name = entry->d_name;           // "hugepages-2048kB"
    constexpr std::string_view prefix = "hugepages-";
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    HugePages pages;
    pages.page_bytes = std::strtoull(name.c_str() + prefix.size(), nullptr, 10) * 1024;
    pages.free = number_in(std::string(root) + '/' + name + "/free_hugepages");
    pages.reserved = number_in(std::string(root) + '/' + name + "/nr_hugepages");
    if (pages.reserved > 0) out.push_back(pages);
  }
  closedir(directory);
  std::sort(out.begin(), out.end(),
            [](const HugePages& a, const HugePages& b) { return a.free_bytes() > b.free_bytes(); });
  return out;
}

std::uint64_t lockable_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  // With CAP_IPC_LOCK (in the first user namespace only) the limit does not count: try it.
  const std::size_t beyond = limit.rlim_cur + 4096;
  void* probe = mmap(nullptr, beyond, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
  if (probe != MAP_FAILED) {
    munmap(probe, beyond);
    return UINT64_MAX;
  }
  return limit.rlim_cur;
}

std::optional<KernelInterface> kernel_interface(const std::string& name) {
  if (name.empty() || name.size() >= IFNAMSIZ) return std::nullopt;
  KernelInterface out;
  out.index = if_nametoindex(name.c_str());
  if (out.index == 0) return std::nullopt;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  ifreq request{};
  std::memcpy(request.ifr_name, name.c_str(), name.size());
  const bool flags_known = ioctl(fd, SIOCGIFFLAGS, &request) == 0;
  if (flags_known) {
    out.up = (request.ifr_flags & IFF_UP) != 0;
    out.carrier = (request.ifr_flags & IFF_RUNNING) != 0;
  }
  const bool mtu_known = ioctl(fd, SIOCGIFMTU, &request) == 0;
  if (mtu_known) out.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
  close(fd);
  if (!flags_known || !mtu_known) return std::nullopt;
  return out;
}

std::int64_t monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace iswitch::switchd
