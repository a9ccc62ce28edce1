// Writes the classic pcap format (draft-ietf-opsawg-pcap): Ethernet, microsecond times. Every
// reader knows it; ports, directions and drops need pcapng.
#pragma once

#include <cstdint>
#include <string>

#include "wire/units.h"

namespace iswitch::switchd::pcap {

/// Appended to `out` once, first.
void file_header(std::string& out, std::uint32_t snap);
/// `unix_nanoseconds` is wall-clock time.
void packet(std::string& out, std::uint64_t unix_nanoseconds, std::uint32_t original_bytes,
            Bytes bytes);

}  // namespace iswitch::switchd::pcap
