// Frame devices of DPDK, in a shared object of its own that is loaded when the first agent asks for
// one: the library itself needs no DPDK.
#pragma once

#include "agent/transport/frame_device.h"

namespace iswitch::agent {

/// What the shared object exports, under the name `dpdk_entry_name`.
struct DpdkEntry {
  const char* version = nullptr;  ///< of the project; the two must come from one build
  std::variant<std::unique_ptr<FrameDevice>, Error> (*open)(const FrameDeviceOptions&) = nullptr;
};
inline constexpr const char* dpdk_library_name = "libiswitch-agent-dpdk.so";
inline constexpr const char* dpdk_entry_name = "iswitch_agent_dpdk";

/// Starts DPDK in this process if it does not run yet (about half a second), and attaches the
/// device.
std::variant<std::unique_ptr<FrameDevice>, Error> open_dpdk_device(
    const FrameDeviceOptions& options);

}  // namespace iswitch::agent
