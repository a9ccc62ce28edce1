#include "switchd/dataplane/eal.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "switchd/dataplane/dpdk_log.h"
#include "switchd/dataplane/interrupts.h"
#include "switchd/dataplane/machine.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

// EAL's own needs beside the pools: rings, queues, hash tables, allocator headers.
constexpr std::uint64_t base_bytes = 32ull << 20;

/// A private directory for this process, in the user's runtime directory where there is one.
std::string make_runtime_directory() {
  const char* service = std::getenv("RUNTIME_DIRECTORY");  // NOLINT(concurrency-mt-unsafe)
  const char* user = std::getenv("XDG_RUNTIME_DIR");       // NOLINT(concurrency-mt-unsafe)
  for (const char* base : std::initializer_list<const char*>{service, user, "/run", "/tmp"}) {
    if (base == nullptr || *base != '/') continue;
    std::string path = text(base, "/iswitch-dpdk-XXXXXX");
    if (mkdtemp(path.data()) != nullptr) return path;
  }
  return {};
}

/// EAL takes its runtime directory from RUNTIME_DIRECTORY (systemd's name for it); put back at the
/// end.
class RuntimeDirectoryVariable {
 public:
  explicit RuntimeDirectoryVariable(const std::string& path) {
    const char* old = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    had_ = old != nullptr;
    if (had_) old_ = old;
    setenv(name, path.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~RuntimeDirectoryVariable() {
    if (had_) {
      setenv(name, old_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    } else {
      unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
    }
  }
  RuntimeDirectoryVariable(const RuntimeDirectoryVariable&) = delete;
  RuntimeDirectoryVariable& operator=(const RuntimeDirectoryVariable&) = delete;

 private:
  static constexpr const char* name = "RUNTIME_DIRECTORY";
  bool had_ = false;
  std::string old_;
};

}  // namespace

std::vector<std::string> eal_arguments(const EalWish& wish) {
  std::vector<std::string> out{"switchd"};
  out.emplace_back("--lcores");
  std::string lcores = text("0@(", numbers(wish.control_cpus, ","), ')');
  for (std::size_t i = 0; i < wish.poller_cpus.size(); ++i)
    lcores += text(',', poller_lcore + i, '@', wish.poller_cpus[i]);
  out.push_back(std::move(lcores));
  out.emplace_back("--main-lcore=0");
  out.push_back("--file-prefix=" + wish.prefix);
  out.emplace_back("--no-telemetry");
  if (wish.huge_pages) {
    out.emplace_back("--in-memory");
    if (wish.needs_shared_segments) out.emplace_back("--single-file-segments");
  } else {
    const std::uint64_t megabytes = (wish.memory_bytes + base_bytes + (1u << 20) - 1) >> 20;
    out.emplace_back("--no-huge");
    out.emplace_back("--no-shconf");
    out.emplace_back("-m");
    out.push_back(text(megabytes));
  }
  if (wish.pci_devices.empty()) {
    out.emplace_back("--no-pci");
  } else {
    for (const std::string& device : wish.pci_devices) {
      out.emplace_back("-a");
      out.push_back(device);
    }
  }
  return out;
}

CpuPlan plan_cpus(const std::vector<std::uint16_t>& allowed,
                  const std::vector<std::uint16_t>& wanted) {
  CpuPlan plan;
  if (allowed.empty()) return plan;
  plan.pollers = wanted;
  if (plan.pollers.empty()) plan.pollers.push_back(allowed.back());
  std::copy_if(
      allowed.begin(), allowed.end(), std::back_inserter(plan.control), [&](std::uint16_t cpu) {
        return std::find(plan.pollers.begin(), plan.pollers.end(), cpu) == plan.pollers.end();
      });
  if (plan.control.empty()) plan.control.push_back(plan.pollers.front());
  return plan;
}

std::unique_ptr<Eal> Eal::start(const EalWish& wish, std::string& error) {
  std::unique_ptr<Eal> eal(new Eal);
  eal->runtime_directory_ = make_runtime_directory();
  if (eal->runtime_directory_.empty()) {
    error =
        "no private directory for DPDK can be made in XDG_RUNTIME_DIR, /run or /tmp; make one "
        "writable";
    return nullptr;
  }
  std::vector<std::string> arguments = eal_arguments(wish);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  capture_dpdk_log();
  forget_dpdk_error();
  const AffinityGuard affinity;
  const RuntimeDirectoryVariable variable(eal->runtime_directory_);
  if (rte_eal_init(static_cast<int>(arguments.size()), argv.data()) < 0) {
    error = text("DPDK does not start: ", rte_strerror(rte_errno), dpdk_reason());
    return nullptr;
  }
  eal->started_ = true;
  return eal;
}

Eal::~Eal() {
  if (started_) {
    rest_interrupt_thread();
    rte_eal_cleanup();
  }
  std::error_code ignored;
  std::filesystem::remove_all(runtime_directory_, ignored);
}

}  // namespace iswitch::switchd
