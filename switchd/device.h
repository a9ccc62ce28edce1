// DPDK device strings: what the user wrote, taken apart, and completed with what the machine needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace iswitch::switchd {

/// "net_af_packet0,iface=eth1,qpairs=1" or "0000:01:00.0,arg=value".
struct Device {
  std::string name;  ///< as EAL knows it: "net_af_packet0", "0000:01:00.0"
  std::vector<std::pair<std::string, std::string>> arguments;

  static std::optional<Device> parse(std::string_view text);

  bool is_pci() const;
  bool is(
      std::string_view driver) const;  ///< "net_af_packet" for net_af_packet0 and net_af_packet_x
  /// The value of an argument, or nothing.
  const std::string* argument(std::string_view key) const;
  /// Bytes that the device may write into one receive buffer. net_af_packet insists on room for a
  /// whole ring frame, whatever the MTU.
  std::uint32_t largest_frame(std::uint32_t mtu) const;
  /// Queues of each direction that a switch with so many lcores may use: what the user's string
  /// says where frames are spread over all that there are, else one for each lcore or a single one.
  std::uint32_t queues(std::uint32_t lcores) const;
  /// Frame buffers that one of its queues keeps beside its descriptors, and never gives back to
  /// their pool, not even when the port is closed.
  std::uint32_t kept_buffers() const;
  /// The kernel interface behind it, empty where there is none.
  std::string kernel_interface() const;
  /// What no two ports may have in common: the name, the kernel interface.
  std::vector<std::string> identities() const;
  std::string text() const;
};

/// Ring geometry of net_af_packet (PACKET_MMAP): a frame longer than a ring frame is cut silently.
struct AfPacketRing {
  std::uint32_t frame_bytes = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t frames = 0;  ///< in each of the two rings
};
/// Smallest ring frame for an MTU, with as many frames as `locked_bytes` (for one port, both rings)
/// allows, a power of two up to 512; nothing when not even 16 fit.
std::optional<AfPacketRing> af_packet_ring(std::uint32_t mtu, std::uint64_t locked_bytes);
/// Bytes that the two rings with the fewest frames lock.
std::uint64_t af_packet_least_bytes(std::uint32_t mtu);

/// Adds framesz, blocksz and framecnt where the user's string does not say them.
void complete_af_packet(Device& device, const AfPacketRing& ring);

}  // namespace iswitch::switchd
