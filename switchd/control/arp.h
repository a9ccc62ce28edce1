// ARP requests that the switch makes (RFC 826): for its parent's address, and for its own, by which
// everybody learns where that is now.
#pragma once

#include "switchd/control/control.h"

namespace iswitch::control {

/// Who has `target`? Broadcast, from the switch's own address. For that address itself it is a
/// gratuitous one: nobody answers, and caches and switches on the way learn.
OutFrame arp_request(const datapath::SwitchAddress& own, wire::Ipv4 target, PortId port);

}  // namespace iswitch::control
