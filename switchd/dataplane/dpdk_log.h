// DPDK's log lines, taken into the daemon's log at level debug: whatever an operator must know is
// said by the daemon itself. The latest error is kept so that a failure can say why.
#pragma once

#include <string>

namespace iswitch::switchd {

/// Before rte_eal_init; stays until the process ends.
void capture_dpdk_log();
void forget_dpdk_error();
/// " (DPDK: ...)" with the first error line since forget_dpdk_error(), or nothing.
std::string dpdk_reason();

}  // namespace iswitch::switchd
