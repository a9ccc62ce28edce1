#include "agent/dpdk/ethdev.h"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "agent/dpdk/eal.h"
#include "switchd/dataplane/machine.h"
#include "switchd/dataplane/verified.h"

namespace iswitch::agent {

namespace {

constexpr std::uint16_t queue_depth = 1024;
constexpr std::uint32_t largest_mtu = 9000;
constexpr std::uint32_t vlan_tag = 4;

/// A frame that came in several pieces is put into one. A head that fits before the payload is
/// moved there, so that the payload stays where it is. False: it cannot be.
bool make_whole(rte_mbuf*& frame) {
  if (frame->nb_segs == 1) return true;
  rte_mbuf* const payload = frame->next;
  if (frame->nb_segs != 2 || frame->data_len > rte_pktmbuf_headroom(payload)) {
    return rte_pktmbuf_linearize(frame) == 0;
  }
  rte_mbuf* const head = frame;
  payload->pkt_len = payload->data_len;
  payload->nb_segs = 1;
  payload->ol_flags = head->ol_flags;
  std::memcpy(rte_pktmbuf_prepend(payload, head->data_len), rte_pktmbuf_mtod(head, const void*),
              head->data_len);
  head->next = nullptr;
  head->nb_segs = 1;
  rte_pktmbuf_free(head);
  frame = payload;
  return true;
}

Error failed(std::string text) {
  Error error;
  error.code = ErrorCode::system;
  error.text = std::move(text);
  return error;
}

}  // namespace

std::variant<std::unique_ptr<FrameDevice>, Error> Ethdev::open(const FrameDeviceOptions& options) {
  const auto device = switchd::Device::parse(options.device);
  if (!device) return failed("'" + options.device + "' is no DPDK device");
  if (std::string problem = start_eal(device->is_pci() ? device->name : std::string());
      !problem.empty()) {
    return failed("device " + device->name + ": " + problem);
  }
  std::unique_ptr<Ethdev> made(new Ethdev(*device));
  forget_dpdk_error();
  if (std::string problem = made->start(); !problem.empty()) return failed(std::move(problem));
  return std::unique_ptr<FrameDevice>(std::move(made));
}

Ethdev::~Ethdev() {
  release_received();
  flush();
  const unsigned unsent = unsent_end_ - unsent_begin_;
  if (unsent > 0) rte_pktmbuf_free_bulk(&outgoing_[unsent_begin_], unsent);
  if (reserved_ > 0) rte_pktmbuf_free_bulk(outgoing_.data(), reserved_);
  if (started_) rte_eth_dev_stop(port_);
  if (!attached_) return;
  rte_eth_dev_info info{};
  const bool known = rte_eth_dev_info_get(port_, &info) == 0;
  rte_eth_dev_close(port_);
  if (known) rte_dev_remove(info.device);  // so that it can be attached again
}

std::string Ethdev::failure(const char* step, int error) const {
  return "device " + device_.name + ": " + step +
         " fails: " + rte_strerror(error < 0 ? -error : error) + dpdk_reason();
}

// ---- setting up

std::string Ethdev::start() {
  std::string problem = look_at_interface();
  if (problem.empty()) problem = attach();
  if (problem.empty()) problem = make_pool();
  if (problem.empty()) problem = set_up_queues();
  if (!problem.empty()) return problem;
  if (const int result = rte_eth_dev_start(port_); result != 0) {
    return failure("starting it", result);
  }
  started_ = true;
  return {};
}

/// A kernel interface's MTU, and rings for it (net_af_packet).
std::string Ethdev::look_at_interface() {
  const std::string interface = device_.kernel_interface();
  if (interface.empty()) return {};
  const auto found = switchd::kernel_interface(interface);
  if (!found || !found->up) {
    return "device " + device_.name + ": interface " + interface +
           (found ? " is down; bring it up" : " does not exist in this network namespace");
  }
  mtu_ = found->mtu;
  if (!device_.is("net_af_packet")) return {};
  const auto ring = switchd::af_packet_ring(mtu_, switchd::lockable_bytes());
  if (!ring) {
    return "device " + device_.name + ": its rings need " +
           std::to_string(switchd::af_packet_least_bytes(mtu_)) +
           " bytes of locked memory; raise the limit (ulimit -l)";
  }
  switchd::complete_af_packet(device_, *ring);
  return {};
}

std::string Ethdev::attach() {
  // A ring that the application has made is there already, and so is a PCI device that EAL has
  // found at its start.
  const auto known = [this] {
    return rte_eth_dev_get_port_by_name(device_.name.c_str(), &port_) == 0;
  };
  const int probed = known() ? 0 : rte_dev_probe(device_.text().c_str());
  if (probed != 0 && !device_.is_pci()) return failure("attaching it", probed);
  if (!known()) {
    return "DPDK has no device " + device_.name +
           (device_.is_pci() ? "; bind it to vfio-pci (dpdk-devbind.py), check the rights on "
                               "/dev/vfio, and that it is the first device of this process"
                             : "; correct the device string") +
           dpdk_reason();
  }
  rte_eth_dev_info info{};
  if (const int result = rte_eth_dev_info_get(port_, &info); result != 0) {
    return failure("asking for its abilities", result);
  }
  rte_eth_dev_owner owner{};
  if (rte_eth_dev_owner_get(port_, &owner) == 0 && owner.id != RTE_ETH_DEV_NO_OWNER) {
    return "device " + device_.name +
           " is used already in this process; an agent needs one of its own";
  }
  rte_eth_dev_owner mine{};
  if (rte_eth_dev_owner_new(&mine.id) != 0) return failure("taking it", ENOMEM);
  std::strcpy(mine.name, "iswitch-agent");
  if (const int result = rte_eth_dev_owner_set(port_, &mine); result != 0) {
    return failure("taking it", result);
  }
  attached_ = true;
  std::uint16_t mtu = 0;
  const bool known_mtu = rte_eth_dev_get_mtu(port_, &mtu) == 0 && mtu != 0;
  if (known_mtu && device_.kernel_interface().empty()) mtu_ = mtu;
  mtu_ = std::min(mtu_, largest_mtu);
  verifies_checksums_ = (info.rx_offload_capa & switchd::rx_checksums) == switchd::rx_checksums;
  return {};
}

std::string Ethdev::make_pool() {
  constexpr unsigned buffers = 2 * queue_depth + 4 * burst;
  const std::uint32_t room =
      std::max<std::uint32_t>(device_.largest_frame(mtu_),
                              mtu_ + static_cast<std::uint32_t>(wire::ethernet_bytes) + vlan_tag);
  const std::uint32_t bytes = RTE_PKTMBUF_HEADROOM + (room + 63) / 64 * 64;
  static std::atomic<unsigned> pools{0};
  const std::string name = "iswitch-agent" + std::to_string(pools++);
  // The threads of an application are no lcores, and so have no caches of their own.
  pool_ = switchd::create_pool(name.c_str(), buffers, bytes, device_.is_pci(),
                               switchd::PoolOrder::last_first);
  if (pool_ == nullptr) {
    return "device " + device_.name + ": memory for " + std::to_string(buffers) + " buffers of " +
           std::to_string(bytes) +
           " bytes does not suffice; free some, or give more by ISWITCH_EAL_ARGUMENTS" +
           dpdk_reason();
  }
  return {};
}

std::string Ethdev::set_up_queues() {
  rte_eth_conf conf{};
  if (verifies_checksums_) conf.rxmode.offloads |= switchd::rx_checksums;
  if (device_.is_pci()) conf.rxmode.mtu = mtu_;
  if (const int result = rte_eth_dev_configure(port_, 1, 1, &conf); result != 0) {
    return failure("configuring it", result);
  }
  std::uint16_t receive = queue_depth, transmit = queue_depth;
  if (const int result = rte_eth_dev_adjust_nb_rx_tx_desc(port_, &receive, &transmit);
      result != 0) {
    return failure("choosing its queue lengths", result);
  }
  receive_depth_ = receive;
  const auto socket = static_cast<unsigned>(rte_eth_dev_socket_id(port_));
  int result = rte_eth_rx_queue_setup(port_, 0, receive, socket, nullptr, pool_.get());
  if (result != 0) return failure("setting up its receive queue", result);
  result = rte_eth_tx_queue_setup(port_, 0, transmit, socket, nullptr);
  if (result != 0) return failure("setting up its transmit queue", result);
  rte_ether_addr address{};
  if (rte_eth_macaddr_get(port_, &address) != 0) return failure("asking for its address", EIO);
  std::copy(std::begin(address.addr_bytes), std::end(address.addr_bytes), mac_.bytes.begin());
  // A device that shares its address with the kernel's interface, or has none (net_ring, net_null).
  if (mac_ == wire::Mac{}) mac_.bytes = {2, 0, 0, 0, 1, static_cast<std::uint8_t>(port_ + 1)};
  return {};
}

bool Ethdev::link_is_up() {
  rte_eth_link link{};
  return started_ && rte_eth_link_get_nowait(port_, &link) == 0 &&
         link.link_status == RTE_ETH_LINK_UP;
}

// ---- frames

void Ethdev::release_received() {
  if (received_count_ > 0) rte_pktmbuf_free_bulk(received_.data(), received_count_);
  received_count_ = 0;
}

std::span<const FrameDevice::Frame> Ethdev::receive() {
  release_received();
  received_count_ = rte_eth_rx_burst(port_, 0, received_.data(), burst);
  unsigned count = 0;
  for (unsigned i = 0; i < received_count_; ++i) {
    rte_mbuf*& frame = received_[i];
    if (!make_whole(frame)) continue;
    frames_[count++] = {{rte_pktmbuf_mtod(frame, const std::uint8_t*), frame->data_len},
                        verifies_checksums_ ? switchd::verified(frame) : wire::Offload{}};
  }
  return {frames_.data(), count};
}

void Ethdev::flush() {
  while (unsent_begin_ != unsent_end_) {
    const unsigned sent = rte_eth_tx_burst(port_, 0, &outgoing_[unsent_begin_],
                                           static_cast<std::uint16_t>(unsent_end_ - unsent_begin_));
    unsent_begin_ += sent;
    if (sent != 0) continue;
    // A queue that is full empties itself; one without a link does not.
    if (link_is_up()) return;
    rte_pktmbuf_free_bulk(&outgoing_[unsent_begin_], unsent_end_ - unsent_begin_);
    unsent_begin_ = unsent_end_;
  }
  unsent_begin_ = unsent_end_ = 0;
}

std::span<std::uint8_t* const> Ethdev::reserve(unsigned count) {
  flush();
  if (!has_room()) return {};
  count = std::min(count, burst);
  if (reserved_ < count) {
    if (rte_pktmbuf_alloc_bulk(pool_.get(), &outgoing_[reserved_], count - reserved_) != 0) {
      return {};
    }
    reserved_ = count;
  }
  for (unsigned i = 0; i < count; ++i) {
    outgoing_bytes_[i] = rte_pktmbuf_mtod(outgoing_[i], std::uint8_t*);
  }
  return {outgoing_bytes_.data(), count};
}

void Ethdev::commit(std::span<const std::uint16_t> sizes) {
  const auto count = static_cast<unsigned>(sizes.size());
  for (unsigned i = 0; i < count; ++i) {
    outgoing_[i]->data_len = sizes[i];
    outgoing_[i]->pkt_len = sizes[i];
  }
  if (reserved_ > count) rte_pktmbuf_free_bulk(&outgoing_[count], reserved_ - count);
  reserved_ = 0;
  unsent_begin_ = 0;
  unsent_end_ = count;
  flush();
}

}  // namespace iswitch::agent
