// The protocol's sums and frames a second time, the slow and obvious way, to hold wire/ against.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/frame.h"

namespace iswitch::slow {

using FrameBytes = std::vector<std::uint8_t>;

/// RFC 1071 as its text has it: big-endian words, end-around carry after each. Not complemented.
std::uint16_t ones_complement_sum(Bytes bytes, std::uint16_t start = 0);

/// CRC-32C bit by bit.
std::uint32_t crc32c(Bytes bytes);

/// Sets the IPv4 header checksum of a frame with IHL 5 or more, at the usual place or behind
/// `shift` bytes of VLAN tags.
void fix_ip_checksum(FrameBytes& frame, std::size_t shift = 0);
/// Sets the UDP checksum of an untagged frame with IHL 5 over what the UDP length says, up to
/// the frame's end.
void fix_udp_checksum(FrameBytes& frame);
void fix_checksums(FrameBytes& frame);

/// A well-formed frame, byte by byte, checksums right.
FrameBytes frame(const wire::Route& route, const wire::Header& header, Bytes payload);

void put16(FrameBytes& bytes, std::size_t at, std::uint16_t value);
void put32(FrameBytes& bytes, std::size_t at, std::uint32_t value);
std::uint16_t get16(Bytes bytes, std::size_t at);

}  // namespace iswitch::slow
