#include "switchd/control/arp.h"

#include <algorithm>
#include <array>

#include "wire/bytes.h"
#include "wire/frame.h"

namespace iswitch::control {

OutFrame arp_request(const datapath::SwitchAddress& own, wire::Ipv4 target, PortId port) {
  constexpr std::size_t shortest_frame = 60;  // without FCS
  constexpr std::uint16_t ethertype_arp = 0x0806;
  OutFrame frame;
  frame.port = port;
  frame.bytes.resize(shortest_frame);
  std::uint8_t* const out = frame.bytes.data();
  std::fill_n(out, 6, std::uint8_t{0xFF});
  std::copy_n(own.mac.bytes.begin(), 6, out + 6);
  wire::store_be16(out + 12, ethertype_arp);
  // Hardware type 1, protocol 0x0800, address lengths 6 and 4, operation 1: a request.
  static constexpr std::array<std::uint8_t, 8> request{0, 1, 8, 0, 6, 4, 0, 1};
  std::uint8_t* const arp = out + wire::ethernet_bytes;
  std::copy(request.begin(), request.end(), arp);
  std::copy_n(own.mac.bytes.begin(), 6, arp + 8);
  wire::store_be32(arp + 14, own.rules.ip.value);
  wire::store_be32(arp + 24, target.value);
  return frame;
}

}  // namespace iswitch::control
