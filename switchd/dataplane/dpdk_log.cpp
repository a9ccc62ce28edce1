#include "switchd/dataplane/dpdk_log.h"

#include <rte_log.h>

#include <cstdio>
#include <mutex>
#include <string_view>

#include "switchd/log.h"

namespace iswitch::switchd {
namespace {

std::mutex mutex;
std::string partial;      // text without its line end yet
std::string first_error;  // guarded by mutex

void take_line(std::string_view line, int dpdk_level) {
  if (line.empty()) return;
  log(LogLevel::debug, "dpdk: ", line);
  if (dpdk_level > 0 && dpdk_level <= static_cast<int>(RTE_LOG_ERR) && first_error.empty()) {
    first_error = line;
  }
}

ssize_t write_log(void* /*cookie*/, const char* data, std::size_t size) {
  const std::lock_guard lock(mutex);
  const int level = rte_log_cur_msg_loglevel();
  partial.append(data, size);
  for (std::size_t end = partial.find('\n'); end != std::string::npos; end = partial.find('\n')) {
    take_line(std::string_view(partial).substr(0, end), level);
    partial.erase(0, end + 1);
  }
  constexpr std::size_t longest_line = 4096;
  if (partial.size() > longest_line) partial.clear();
  return static_cast<ssize_t>(size);
}

}  // namespace

void capture_dpdk_log() {
  static FILE* stream = [] {
    cookie_io_functions_t functions{};
    functions.write = write_log;
    FILE* file = fopencookie(nullptr, "w", functions);
    if (file != nullptr) std::setvbuf(file, nullptr, _IOLBF, 0);
    return file;
  }();
  if (stream != nullptr) rte_openlog_stream(stream);
}

void forget_dpdk_error() {
  const std::lock_guard lock(mutex);
  first_error.clear();
}

std::string dpdk_reason() {
  const std::lock_guard lock(mutex);
  return first_error.empty() ? std::string() : text(" (DPDK: ", first_error, ")");
}

}  // namespace iswitch::switchd
