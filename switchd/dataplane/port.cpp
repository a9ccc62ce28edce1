#include "switchd/dataplane/port.h"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <algorithm>

#include "switchd/dataplane/dpdk_log.h"
#include "switchd/dataplane/interrupts.h"
#include "switchd/dataplane/verified.h"
#include "switchd/text.h"
#include "wire/address.h"

namespace iswitch::switchd {
namespace {

// Ordinary traffic may carry a VLAN tag.
constexpr std::uint32_t ethernet_header = RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;

std::string what(const PortConfig& config) { return text("port ", config.name, ": "); }

std::string failure(const PortConfig& config, std::string_view step, int error) {
  return text(what(config), step, " fails: ", rte_strerror(error < 0 ? -error : error),
              dpdk_reason());
}

}  // namespace

const char* link_name(Link link) {
  switch (link) {
    case Link::up:
      return "up";
    case Link::down:
      return "down";
    case Link::missing:
      return "missing";
  }
  return "unknown";
}

std::string check_interface(const PortConfig& config) {
  const auto device = Device::parse(config.device);
  const std::string name = device ? device->kernel_interface() : std::string();
  if (name.empty()) return {};
  const auto interface = kernel_interface(name);
  if (!interface) {
    return text(what(config), "interface ", name,
                " does not exist in this network namespace; make it, or correct \"device\"");
  }
  if (interface->mtu != config.mtu) {
    return text(what(config), "MTU is ", config.mtu, " in the config but ", interface->mtu,
                " at interface ", name, "; make them equal (ip link set ", name, " mtu ",
                config.mtu, ")");
  }
  if (!interface->up) {
    return text(what(config), "interface ", name, " is down; bring it up (ip link set ", name,
                " up)");
  }
  return {};
}

Port::Port(const PortConfig& config, Device device, const wire::FrameRules& rules)
    : config_(config),
      device_(std::move(device)),
      interface_(device_.kernel_interface()),
      rules_(rules) {}

Port::~Port() { close(); }

std::string Port::open(rte_mempool* frames) {
  forget_dpdk_error();
  std::string error = attach();
  if (error.empty()) error = set_up(frames);
  open_ = error.empty();
  if (!open_) close();
  return error;
}

std::string Port::attach() {
  if (!interface_.empty()) {
    const auto interface = kernel_interface(interface_);
    interface_index_ = interface ? interface->index : 0;
  }
  if (!device_.is_pci()) {
    const int result = rte_dev_probe(device_.text().c_str());
    if (result != 0) {
      return failure(config_, text("attaching ", device_.text()), result);
    }
  }
  if (rte_eth_dev_get_port_by_name(device_.name.c_str(), &traits_.ethdev) != 0) {
    return text(what(config_), "DPDK has no device ", device_.name,
                device_.is_pci()
                    ? "; bind it to vfio-pci (dpdk-devbind.py) and check the rights on /dev/vfio"
                    : "; correct \"device\"",
                dpdk_reason());
  }
  attached_ = true;
  return {};
}

std::string Port::set_up(rte_mempool* frames) {
  rte_eth_dev_info info{};
  if (const int result = rte_eth_dev_info_get(traits_.ethdev, &info); result != 0) {
    return failure(config_, "asking for its abilities", result);
  }
  traits_.longest_frame = config_.mtu + ethernet_header;
  traits_.may_share = !device_.is("net_ring");
  const bool can_chain = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
  // A port that may not share gets copies whatever is wished: its peer would hold our sums.
  traits_.chained =
      traits_.may_share && (config_.transmit == TransmitMode::chained ||
                            (config_.transmit == TransmitMode::automatic && can_chain));
  traits_.verifies_checksums = (info.rx_offload_capa & rx_checksums) == rx_checksums;
  choose_queues(info);
  std::string error = start(frames, info);
  const bool sorts = device_.is_pci() || device_.is("net_tap");
  if (!error.empty() || traits_.receive_queues == 1 || !sorts) return error;
  steered_ = steering_.start(traits_.ethdev, rules_);
  if (steered_ || !device_.is_pci()) return {};
  // Several queues without a rule for each would only spread what belongs together.
  forget_dpdk_error();
  rte_eth_dev_stop(traits_.ethdev);
  started_ = false;
  traits_.receive_queues = 1;
  return start(frames, info);
}

/// Every lcore gets a transmit queue, or they share one.
void Port::choose_queues(const rte_eth_dev_info& info) {
  const std::uint32_t lcores = std::max<std::uint32_t>(rules_.ports, 1);
  const std::uint32_t queues = device_.queues(lcores);
  traits_.receive_queues =
      std::clamp<std::uint16_t>(static_cast<std::uint16_t>(queues), 1, info.max_rx_queues);
  const bool enough = queues >= lcores && info.max_tx_queues >= lcores;
  traits_.transmit_queues = enough ? static_cast<std::uint16_t>(lcores) : std::uint16_t{1};
}

std::string Port::start(rte_mempool* frames, const rte_eth_dev_info& info) {
  const std::uint16_t ethdev = traits_.ethdev;
  rte_eth_conf conf{};
  // Shared sums exclude fast free, so it is not asked for.
  if (traits_.chained) conf.txmode.offloads |= info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  if (traits_.verifies_checksums) conf.rxmode.offloads |= rx_checksums;

  // Devices over a kernel interface have the kernel's MTU (check_interface); software devices often
  // claim Ethernet's 1514 bytes and carry more.
  const bool device_limits = device_.is_pci();
  if (device_limits) {
    if (config_.mtu < info.min_mtu || config_.mtu > info.max_mtu) {
      return text(what(config_), "MTU is ", config_.mtu, " in the config, the device takes ",
                  info.min_mtu, " to ", info.max_mtu);
    }
    conf.rxmode.mtu = config_.mtu;
  }
  if (const int result =
          rte_eth_dev_configure(ethdev, traits_.receive_queues, traits_.transmit_queues, &conf);
      result != 0) {
    return failure(config_, "configuring it", result);
  }
  if (interface_.empty() && !device_limits && config_.mtu != RTE_ETHER_MTU) {
    rte_eth_dev_set_mtu(ethdev, config_.mtu);  // where it is known at all
  }

  std::uint16_t receive = queue_depth;
  std::uint16_t transmit = queue_depth;
  if (const int result = rte_eth_dev_adjust_nb_rx_tx_desc(ethdev, &receive, &transmit);
      result != 0) {
    return failure(config_, "choosing its queue lengths", result);
  }
  const auto socket = static_cast<unsigned>(rte_eth_dev_socket_id(ethdev));
  for (std::uint16_t queue = 0; queue < traits_.receive_queues; ++queue) {
    const int result = rte_eth_rx_queue_setup(ethdev, queue, receive, socket, nullptr, frames);
    if (result != 0) return failure(config_, text("setting up receive queue ", queue), result);
  }
  rte_eth_txconf tx = info.default_txconf;
  tx.offloads = conf.txmode.offloads;
  for (std::uint16_t queue = 0; queue < traits_.transmit_queues; ++queue) {
    const int result = rte_eth_tx_queue_setup(ethdev, queue, transmit, socket, &tx);
    if (result != 0) return failure(config_, text("setting up transmit queue ", queue), result);
  }
  if (const int result = rte_eth_dev_start(ethdev); result != 0) {
    return failure(config_, "starting it", result);
  }
  started_ = true;
  // A switch takes frames for everybody. Devices that know no addresses say "not supported".
  const int promiscuous = rte_eth_promiscuous_enable(ethdev);
  if (promiscuous != 0 && promiscuous != -ENOTSUP) {
    return failure(config_, "taking frames for all addresses (promiscuous mode)", promiscuous);
  }
  return {};
}

std::uint16_t Port::lcore_of_queue(unsigned port, std::uint16_t queue) const {
  const std::uint16_t lcores = std::max<std::uint16_t>(rules_.ports, 1);
  return static_cast<std::uint16_t>((steered_ ? queue : port + queue) % lcores);
}

void Port::detach() {
  rte_eth_dev_info info{};
  const bool known = rte_eth_dev_info_get(traits_.ethdev, &info) == 0;
  rte_eth_dev_close(traits_.ethdev);
  if (known && !device_.is_pci()) rte_dev_remove(info.device);
  attached_ = false;
}

void Port::close() {
  open_ = false;
  // net_memif ends a connection on the interrupt thread too, when its client goes, with no lock
  // between the two.
  if (attached_ && device_.is("net_memif"))
    on_interrupt_thread([this] { close_device(); });
  else
    close_device();
}

void Port::close_device() {
  steering_.stop();
  steered_ = false;
  if (started_) rte_eth_dev_stop(traits_.ethdev);
  started_ = false;
  if (attached_) detach();
}

Link Port::probe_link(bool& replaced) const {
  replaced = false;
  if (!interface_.empty()) {
    const auto interface = kernel_interface(interface_);
    if (!interface) return Link::missing;
    replaced = interface->index != interface_index_;
    return interface->up && interface->carrier ? Link::up : Link::down;
  }
  if (!open_) return Link::down;
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(traits_.ethdev, &link) != 0) return Link::down;
  return link.link_status == RTE_ETH_LINK_UP ? Link::up : Link::down;
}

Port::Statistics Port::statistics() const {
  Statistics out;
  if (!open_) return out;
  rte_ether_addr mac{};
  if (rte_eth_macaddr_get(traits_.ethdev, &mac) == 0) {
    wire::Mac address;
    std::copy(std::begin(mac.addr_bytes), std::end(mac.addr_bytes), address.bytes.begin());
    out.mac = wire::to_string(address);
  }
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(traits_.ethdev, &link) == 0 &&
      link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN) {
    out.speed_mbps = link.link_speed;
  }
  rte_eth_stats stats{};
  if (rte_eth_stats_get(traits_.ethdev, &stats) == 0) {
    out.rx_missed = stats.imissed;
    out.rx_errors = stats.ierrors;
    out.rx_no_buffer = stats.rx_nombuf;
    out.tx_errors = stats.oerrors;
  }
  return out;
}

}  // namespace iswitch::switchd
