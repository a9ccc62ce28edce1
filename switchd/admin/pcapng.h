// Writes pcapng blocks (IETF draft-ietf-opsawg-pcapng): one Ethernet interface a port, nanosecond
// times, the direction of each packet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wire/units.h"

namespace iswitch::switchd::pcapng {

/// `unix_nanoseconds` in all of these is wall-clock time. Blocks are appended to `out`.
void section_header(std::string& out, std::string_view application);
void interface(std::string& out, std::string_view name, std::uint32_t snap);

enum class PacketDirection : std::uint8_t { inbound = 1, outbound = 2 };
struct Packet {
  std::uint32_t interface = 0;
  std::uint64_t unix_nanoseconds = 0;
  PacketDirection direction = PacketDirection::inbound;
  std::uint32_t original_bytes = 0;
  Bytes bytes;
};
void packet(std::string& out, const Packet& packet);

struct Statistics {
  std::uint32_t interface = 0;
  std::uint64_t unix_nanoseconds = 0;
  std::uint64_t seen = 0;
  std::uint64_t dropped = 0;
};
void statistics(std::string& out, const Statistics& statistics);

}  // namespace iswitch::switchd::pcapng
