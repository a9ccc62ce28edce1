#include "agent/dpdk/eal.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <vector>

#include "switchd/dataplane/machine.h"

namespace iswitch::agent {

namespace {

using switchd::AffinityGuard;

// Address space that is touched as far as it is used: buffers of a few ports.
constexpr const char* megabytes = "256";

std::mutex start_mutex;
bool ours = false;      // guarded by start_mutex, as the rest here
pid_t started_in = 0;   // the process in which EAL was first seen running
std::string failed_so;  // EAL can be tried once only

std::mutex log_mutex;
std::string partial_line;  // guarded by log_mutex
std::string first_error;   // guarded by log_mutex

ssize_t take_log(void* /*cookie*/, const char* data, std::size_t size) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  const int level = rte_log_cur_msg_loglevel();
  partial_line.append(data, size);
  const std::size_t end = partial_line.find('\n');
  if (end != std::string::npos) {
    if (level <= static_cast<int>(RTE_LOG_ERR) && first_error.empty()) {
      first_error = partial_line.substr(0, end);
    }
    partial_line.clear();
  }
  return static_cast<ssize_t>(size);
}

/// A library writes nothing on the application's terminal.
void take_over_log() {
  cookie_io_functions_t functions{};
  functions.write = take_log;
  FILE* const stream = fopencookie(nullptr, "w", functions);
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, 0);
  rte_openlog_stream(stream);
}

std::vector<std::string> arguments(const std::string& pci_device) {
  std::vector<std::string> out{"iswitch-agent"};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, when the first agent with a device joins
  if (const char* given = std::getenv("ISWITCH_EAL_ARGUMENTS")) {
    std::istringstream words(given);
    for (std::string word; words >> word;) out.push_back(word);
    return out;
  }
  std::string lcores;
  for (const std::uint16_t cpu : switchd::allowed_cpus()) {
    lcores += lcores.empty() ? "0@(" : ",";
    lcores += std::to_string(cpu);
  }
  lcores += ')';
  out.insert(out.end(), {"--no-huge", "--no-shconf", "-m", megabytes, "--no-telemetry",
                         "--file-prefix=iswitch-agent", "--lcores", lcores});
  if (pci_device.empty()) {
    out.emplace_back("--no-pci");
  } else {
    out.insert(out.end(), {"-a", pci_device});
  }
  return out;
}

/// EAL makes a folder of its prefix; without shared files it stays empty.
void remove_runtime_folder() {
  const std::string folder = rte_eal_get_runtime_dir();
  if (folder.empty()) return;
  rmdir(folder.c_str());
  rmdir(folder.substr(0, folder.rfind('/')).c_str());
}

}  // namespace

std::string start_eal(const std::string& pci_device) {
  const std::lock_guard<std::mutex> lock(start_mutex);
  const bool runs = ours || rte_socket_count() > 0;
  if (!failed_so.empty()) return failed_so;
  if (runs) {
    if (started_in == 0) started_in = getpid();
    if (started_in == getpid()) return {};
    return "DPDK was started by the process that forked this one, and does not survive fork(): "
           "join before forking, or start worker processes with spawn";
  }
  std::vector<std::string> words = arguments(pci_device);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  take_over_log();
  forget_dpdk_error();
  // The calling thread keeps its CPUs, and EAL's threads take none of the application's signals.
  const AffinityGuard affinity;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int outcome = rte_eal_init(static_cast<int>(words.size()), argv.data());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (outcome < 0) {
    failed_so = std::string("DPDK does not start: ") + rte_strerror(rte_errno) + dpdk_reason();
    return failed_so;
  }
  ours = true;
  started_in = getpid();
  remove_runtime_folder();
  return {};
}

void forget_dpdk_error() {
  const std::lock_guard<std::mutex> lock(log_mutex);
  first_error.clear();
}

std::string dpdk_reason() {
  const std::lock_guard<std::mutex> lock(log_mutex);
  return first_error.empty() ? std::string() : " (DPDK: " + first_error + ")";
}

}  // namespace iswitch::agent
