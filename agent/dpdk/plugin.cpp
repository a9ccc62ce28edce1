// What libiswitch-agent looks for in this shared object (agent/transport/dpdk_library.h).
#include "agent/dpdk/ethdev.h"
#include "agent/transport/dpdk_library.h"

using iswitch::agent::DpdkEntry;

extern "C" __attribute__((visibility("default"))) const DpdkEntry iswitch_agent_dpdk;
const DpdkEntry iswitch_agent_dpdk = {ISWITCH_VERSION, &iswitch::agent::Ethdev::open};
