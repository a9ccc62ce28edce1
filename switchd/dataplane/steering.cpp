#include "switchd/dataplane/steering.h"

#include <rte_byteorder.h>

namespace iswitch::switchd {
namespace {

rte_flow* create(std::uint16_t ethdev, wire::Ipv4 ip, std::uint16_t udp_port, std::uint16_t queue) {
  rte_flow_attr direction{};
  direction.ingress = 1;
  rte_flow_item_ipv4 address{};
  rte_flow_item_ipv4 address_mask{};
  address.hdr.dst_addr = rte_cpu_to_be_32(ip.value);
  address_mask.hdr.dst_addr = UINT32_MAX;
  rte_flow_item_udp port{};
  rte_flow_item_udp port_mask{};
  port.hdr.dst_port = rte_cpu_to_be_16(udp_port);
  port_mask.hdr.dst_port = UINT16_MAX;
  const rte_flow_item pattern[] = {
      {RTE_FLOW_ITEM_TYPE_ETH, nullptr, nullptr, nullptr},
      {RTE_FLOW_ITEM_TYPE_IPV4, &address, nullptr, &address_mask},
      {RTE_FLOW_ITEM_TYPE_UDP, &port, nullptr, &port_mask},
      {RTE_FLOW_ITEM_TYPE_END, nullptr, nullptr, nullptr},
  };
  const rte_flow_action_queue to{queue};
  const rte_flow_action actions[] = {
      {RTE_FLOW_ACTION_TYPE_QUEUE, &to},
      {RTE_FLOW_ACTION_TYPE_END, nullptr},
  };
  rte_flow_error error{};
  if (rte_flow_validate(ethdev, &direction, pattern, actions, &error) != 0) return nullptr;
  return rte_flow_create(ethdev, &direction, pattern, actions, &error);
}

}  // namespace

bool Steering::start(std::uint16_t ethdev, const wire::FrameRules& rules) {
  stop();
  ethdev_ = ethdev;
  for (std::uint16_t shard = 1; shard < rules.ports; ++shard) {
    const auto udp_port = static_cast<std::uint16_t>(rules.udp_port + shard);
    rte_flow* const flow = create(ethdev, rules.ip, udp_port, shard);
    if (flow == nullptr) {
      stop();
      return false;
    }
    flows_.push_back(flow);
  }
  return true;
}

void Steering::stop() {
  for (rte_flow* const flow : flows_) {
    rte_flow_error error{};
    rte_flow_destroy(ethdev_, flow, &error);
  }
  flows_.clear();
}

}  // namespace iswitch::switchd
