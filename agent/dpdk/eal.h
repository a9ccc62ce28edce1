// DPDK's environment abstraction layer: one a process, shared by all its agents.
#pragma once

#include <string>

namespace iswitch::agent {

/// Starts EAL unless it runs already, by an earlier call or by the application itself. Without huge
/// pages, rights, cores of its own or files that stay; ISWITCH_EAL_ARGUMENTS in the environment
/// replaces that with arguments of the user's. `pci_device`: probed at the start, or empty. Empty
/// when all is well, else one line.
std::string start_eal(const std::string& pci_device);

/// " (DPDK: ...)" with the first error that DPDK has logged since forget_dpdk_error(), or nothing.
std::string dpdk_reason();
void forget_dpdk_error();

}  // namespace iswitch::agent
