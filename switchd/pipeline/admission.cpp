#include "switchd/pipeline/admission.h"

#include <bit>

namespace iswitch::pipeline {

void Admission::put(const datapath::MemberSpec& member, const datapath::SwitchAddress& self) {
  rows[member.id] = {.ip = member.endpoint.ip.value,
                     .udp_port = member.endpoint.udp_port,
                     .ingress = member.ingress,
                     .present = true,
                     .kind = member.kind};
  const wire::Route route{.from = {self.mac, self.rules.ip, self.rules.udp_port},
                          .to = member.endpoint,
                          .tos = static_cast<std::uint8_t>((self.rules.data_tos & 0xFC) |
                                                           static_cast<unsigned>(wire::Ecn::ect0))};
  destinations[member.id] = {member.ingress,
                             wire::ResultTemplate(route, member.shards, spec.udp_checksum)};
  members |= MemberMask{1} << member.id;
  member_count = static_cast<std::uint16_t>(std::popcount(members));
  for (auto& kind : told) kind[member.id] = long_ago;
}

void Admission::drop(wire::MemberId member) {
  rows[member] = {};
  members &= ~(MemberMask{1} << member);
  member_count = static_cast<std::uint16_t>(std::popcount(members));
}

}  // namespace iswitch::pipeline
