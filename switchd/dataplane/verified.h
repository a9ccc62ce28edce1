// What a port's hardware says of a frame's checksums.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "wire/frame.h"

namespace iswitch::switchd {

/// Receive offloads of a port that verifies both.
inline constexpr std::uint64_t rx_checksums =
    RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;

inline wire::Offload verified(const rte_mbuf* frame) {
  wire::Offload offload;
  offload.ip_checksum_good =
      (frame->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD;
  offload.udp_checksum_good =
      (frame->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD;
  return offload;
}

}  // namespace iswitch::switchd
