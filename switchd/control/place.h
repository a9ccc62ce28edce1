// Where a member's packets come from: what tells one member from another besides its id.
#pragma once

#include <compare>
#include <cstdint>

#include "switchd/datapath/datapath.h"
#include "wire/address.h"

namespace iswitch::control {

struct Place {
  wire::Ipv4 ip;
  std::uint16_t udp_port = 0;
  datapath::PortId ingress = 0;
  auto operator<=>(const Place&) const = default;

  /// One number for one place, to look it up by.
  std::uint64_t key() const {
    return std::uint64_t{ip.value} << 32 | std::uint64_t{udp_port} << 16 | ingress;
  }
};

inline Place place_of(const wire::Endpoint& endpoint, datapath::PortId ingress) {
  return {endpoint.ip, endpoint.udp_port, ingress};
}
inline Place place_of(const datapath::MemberSpec& member) {
  return place_of(member.endpoint, member.ingress);
}

}  // namespace iswitch::control
