#include "switchd/pipeline/admission.h"

#include <bit>

namespace iswitch::pipeline {

void Admission::put(const datapath::MemberSpec& member, const datapath::SwitchAddress& self) {
  rows[member.id] = {.ip = member.endpoint.ip.value,
                     .udp_port = member.endpoint.udp_port,
                     .ingress = member.ingress,
                     .present = true,
                     .kind = member.kind,
                     .incarnation = member.incarnation};
  destinations[member.id] = destination(self, member.endpoint, member.ingress, member.shards);
  const MemberMask bit = MemberMask{1} << member.id;
  members |= bit;
  ids_in_doubt = member.id_in_doubt ? ids_in_doubt | bit : ids_in_doubt & ~bit;
  member_count = static_cast<std::uint16_t>(std::popcount(members));
  for (auto& kind : told) kind[member.id] = long_ago;
}

Destination Admission::destination(const datapath::SwitchAddress& self, const wire::Endpoint& to,
                                   PortId port, std::uint16_t shards) const {
  const wire::Route route{.from = {self.mac, self.rules.ip, self.rules.udp_port},
                          .to = to,
                          .tos = static_cast<std::uint8_t>((self.rules.data_tos & 0xFC) |
                                                           static_cast<unsigned>(wire::Ecn::ect0))};
  return {port, wire::ResultTemplate(route, shards, spec.udp_checksum)};
}

wire::MemberId Admission::member_at(const wire::Endpoint& source, PortId ingress) const {
  for (wire::MemberId id = 0; id < wire::max_members; ++id)
    if (rows[id].matches(source, ingress)) return id;
  return wire::no_member;
}

void Admission::drop(wire::MemberId member) {
  rows[member] = {};
  members &= ~(MemberMask{1} << member);
  ids_in_doubt &= members;
  member_count = static_cast<std::uint16_t>(std::popcount(members));
}

}  // namespace iswitch::pipeline
