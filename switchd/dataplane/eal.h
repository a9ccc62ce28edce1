// Start and end of DPDK's environment abstraction layer, with arguments derived from the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace iswitch::switchd {

struct EalWish {
  std::vector<std::string> pci_devices;  ///< probed at start; everything else on PCI is left alone
  bool needs_shared_segments =
      false;                       ///< memif zero-copy and virtio-user want one file a page size
  std::uint64_t memory_bytes = 0;  ///< of all pools
  bool huge_pages = false;
  std::vector<std::uint16_t> control_cpus;
  std::vector<std::uint16_t> poller_cpus;  ///< one lcore each, from poller_lcore on
  std::string prefix;                      ///< names this process's DPDK files
};

/// Pure: argv of rte_eal_init, the program's name first.
std::vector<std::string> eal_arguments(const EalWish& wish);

/// Which CPUs poll and which run everything else; where none is left, the first poller's.
struct CpuPlan {
  std::vector<std::uint16_t> pollers;
  std::vector<std::uint16_t> control;
};
/// `wanted` pollers; where it is empty, the last CPU.
CpuPlan plan_cpus(const std::vector<std::uint16_t>& allowed,
                  const std::vector<std::uint16_t>& wanted = {});

/// EAL's number of the first poller.
inline constexpr unsigned poller_lcore = 1;

/// EAL, started. The destructor ends it and removes its runtime directory.
class Eal {
 public:
  /// Null on failure; `error` is one line. The calling thread's CPU affinity is left as it was.
  static std::unique_ptr<Eal> start(const EalWish& wish, std::string& error);
  ~Eal();
  Eal(const Eal&) = delete;
  Eal& operator=(const Eal&) = delete;

 private:
  Eal() = default;
  std::string runtime_directory_;
  bool started_ = false;
};

}  // namespace iswitch::switchd
