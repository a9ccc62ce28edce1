#include "agent/transport/transport.h"

#include <algorithm>

namespace iswitch::agent {

std::uint32_t max_segment_bytes(std::uint32_t mtu) {
  constexpr std::uint32_t around = wire::ipv4_bytes + wire::udp_bytes + wire::header_bytes;
  if (mtu < around + wire::min_segment_bytes) return 0;
  const std::uint32_t fits = (mtu - around) / wire::min_segment_bytes * wire::min_segment_bytes;
  return std::min<std::uint32_t>(fits, wire::max_segment_bytes);
}

}  // namespace iswitch::agent
