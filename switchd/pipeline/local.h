// The switch's own address among ordinary traffic: ARP and ICMP echo (protocol.md section 7).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "switchd/pipeline/counters.h"
#include "wire/address.h"
#include "wire/units.h"

namespace iswitch::pipeline {

/// Answers for one IPv4 and one MAC address.
class Local {
 public:
  Local(const wire::Mac& mac, wire::Ipv4 ip);

  struct Outcome {
    bool handled = false;  ///< false: not for the switch itself, goes on to the layer-2 switch
    Counter terminal{};    ///< when handled
    Bytes reply;  ///< when answered: a frame for the ingress port, valid until the next call
  };
  /// ARP requests for the address; ICMP echo requests to it.
  Outcome handle(Bytes frame);

  /// The hardware address that an ARP reply to this switch's MAC gives for `ip`; nothing for any
  /// other frame.
  std::optional<wire::Mac> arp_reply_from(wire::Ipv4 ip, Bytes frame) const;

 private:
  Outcome handle_arp(Bytes frame);
  Outcome handle_ipv4(Bytes frame);

  wire::Mac mac_;
  wire::Ipv4 ip_;
  std::vector<std::uint8_t> reply_;
};

}  // namespace iswitch::pipeline
