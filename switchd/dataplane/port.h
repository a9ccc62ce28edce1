// One port of the switch: its DPDK device from attach to detach. The control thread's; the lcore
// gets PortTraits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "switchd/config.h"
#include "switchd/dataplane/machine.h"
#include "switchd/dataplane/steering.h"
#include "switchd/dataplane/transmit.h"
#include "switchd/device.h"

struct rte_mempool;
struct rte_eth_dev_info;

namespace iswitch::switchd {

enum class Link : std::uint8_t {
  up,
  down,
  missing,  ///< the kernel interface is gone
};
const char* link_name(Link link);

/// Descriptors asked of a port's queues; a driver may round.
inline constexpr std::uint16_t queue_depth = 1024;

/// Before anything is opened: is the interface behind the port there, up, and of the right MTU?
/// Empty when so, else one line that says what to do. Ports without a kernel interface are fine.
std::string check_interface(const PortConfig& config);

class Port {
 public:
  /// `device` is the user's string, completed; `rules.ports` lcores will use the port.
  Port(const PortConfig& config, Device device, const wire::FrameRules& rules);
  /// Stops, closes and detaches.
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  /// Attaches the device (PCI devices are attached by EAL already), sets it up and starts it. Empty
  /// when all is well, else one line; then nothing is left open.
  std::string open(rte_mempool* frames);
  /// Nobody may poll or send any more.
  void close();
  bool is_open() const { return open_; }

  const PortConfig& config() const { return config_; }
  const PortTraits& traits() const { return traits_; }
  /// Which lcore polls a receive queue, and whose a transmit queue is that all share (queue 0);
  /// `port` is the port's number.
  std::uint16_t lcore_of_queue(unsigned port, std::uint16_t queue) const;
  /// Its hardware sorts contributions by shard.
  bool steered() const { return steered_; }
  std::string interface() const { return interface_; }

  /// The state of link and kernel interface now. `replaced` is set when the interface was deleted
  /// and made again since open(): close and open the port to have it back.
  Link probe_link(bool& replaced) const;

  struct Statistics {
    std::string mac;
    std::uint32_t speed_mbps = 0;  ///< 0: unknown
    std::uint64_t rx_missed = 0;   ///< by the device: no room in its ring
    std::uint64_t rx_errors = 0;
    std::uint64_t rx_no_buffer = 0;
    std::uint64_t tx_errors = 0;
  };
  Statistics statistics() const;

 private:
  std::string attach();
  std::string set_up(rte_mempool* frames);
  void choose_queues(const rte_eth_dev_info& info);
  std::string start(rte_mempool* frames, const rte_eth_dev_info& info);
  void close_device();
  void detach();

  const PortConfig config_;
  const Device device_;
  const std::string interface_;
  const wire::FrameRules rules_;
  Steering steering_;
  unsigned interface_index_ = 0;
  PortTraits traits_;
  bool attached_ = false;
  bool started_ = false;
  bool open_ = false;
  bool steered_ = false;
};

}  // namespace iswitch::switchd
