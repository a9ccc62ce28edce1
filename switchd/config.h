// The daemon's configuration: one JSON file, read strictly. Every error is found at once and names
// its JSON pointer, the value and what is allowed (docs/config.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "switchd/control/control.h"
#include "switchd/datapath/datapath.h"
#include "switchd/json_error.h"
#include "wire/address.h"

namespace iswitch::switchd {

/// How results leave a port.
enum class TransmitMode : std::uint8_t {
  automatic,  ///< chained where the port says it can
  chained,    ///< a 64-byte header and a reference to the shared sum
  copied,     ///< one linear frame a member
};

struct PortConfig {
  std::string name;
  std::string device;  ///< DPDK device string or PCI address
  std::uint16_t mtu = 1500;
  TransmitMode transmit = TransmitMode::automatic;
};

/// Limits given by hand; what is absent is derived from ports, jobs and the machine.
struct MemoryConfig {
  std::optional<bool> huge_pages;
  std::optional<std::uint32_t> frame_buffers;
  std::optional<std::uint32_t> payload_buffers;
};

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error };

struct Config {
  std::string name;
  datapath::SwitchAddress address;
  Time mac_age = 300 * second;  ///< a learned address not seen for so long is forgotten
  std::vector<PortConfig> ports;
  std::vector<control::JobConfig> jobs;
  std::optional<control::ParentConfig>
      parent;                              ///< the switch above; `port` is the place in `ports`
  std::vector<std::uint16_t> poller_cpus;  ///< a shard each; empty: one, picked from the affinity
  MemoryConfig memory;
  bool poll_busy = false;
  Time idle_after = 100 * millisecond;
  std::string admin_socket;  ///< empty: the default places
  std::string metrics;       ///< "address:port" of the Prometheus endpoint; empty: none
  LogLevel log_level = LogLevel::info;
};

/// A value that is meaningful only when `errors` is empty.
template <class T>
struct Loaded {
  T value{};
  JsonErrors errors;
  bool ok() const { return errors.empty(); }
};

/// `text` is the file's contents. Key files are read, relative paths from the working directory.
Loaded<Config> parse_config(std::string_view text);
Loaded<Config> load_config(const std::string& path);

/// One job object (add-job). It must get along with the ports' MTUs and with there being a parent.
Loaded<control::JobConfig> parse_job(std::string_view text, std::string_view pointer,
                                     const std::vector<PortConfig>& ports, bool child = false);

/// The largest segment that every port's MTU carries, a multiple of 32.
std::uint32_t largest_segment(const std::vector<PortConfig>& ports);

}  // namespace iswitch::switchd
