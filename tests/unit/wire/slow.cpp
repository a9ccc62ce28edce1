#include "slow.h"

#include <algorithm>

namespace iswitch::slow {
namespace {

void append(FrameBytes& out, std::uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<std::uint8_t>(value >> 8 * i));
}

/// Up to `size` bytes from `at`: a length that a frame claims may reach beyond its end.
Bytes within(const FrameBytes& frame, std::size_t at, std::size_t size) {
  const Bytes rest = Bytes(frame).subspan(at);
  return rest.first(std::min(size, rest.size()));
}

}  // namespace

void put16(FrameBytes& bytes, std::size_t at, std::uint16_t value) {
  bytes.at(at) = static_cast<std::uint8_t>(value / 256);
  bytes.at(at + 1) = static_cast<std::uint8_t>(value % 256);
}

void put32(FrameBytes& bytes, std::size_t at, std::uint32_t value) {
  put16(bytes, at, static_cast<std::uint16_t>(value / 65536));
  put16(bytes, at + 2, static_cast<std::uint16_t>(value % 65536));
}

std::uint16_t get16(Bytes bytes, std::size_t at) {
  return static_cast<std::uint16_t>(bytes[at] * 256 + bytes[at + 1]);
}

std::uint16_t ones_complement_sum(Bytes bytes, std::uint16_t start) {
  std::uint32_t sum = start;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    sum += bytes[i] * 256u + (i + 1 < bytes.size() ? bytes[i + 1] : 0u);
    if (sum > 0xFFFF) sum -= 0xFFFF;
  }
  return static_cast<std::uint16_t>(sum);
}

std::uint32_t crc32c(Bytes bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::uint8_t byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool out = ((crc ^ (byte >> bit)) & 1) != 0;
      crc >>= 1;
      if (out) crc ^= 0x82F63B78u;  // 0x1EDC6F41 reflected
    }
  }
  return ~crc;
}

void fix_ip_checksum(FrameBytes& frame, std::size_t shift) {
  const std::size_t ip = 14 + shift;
  const std::size_t size = std::size_t{frame.at(ip)} % 16 * 4;
  put16(frame, ip + 10, 0);
  const auto sum = ones_complement_sum(within(frame, ip, size));
  put16(frame, ip + 10, static_cast<std::uint16_t>(0xFFFF - sum));
}

void fix_udp_checksum(FrameBytes& frame) {
  put16(frame, 40, 0);
  const std::uint16_t length = get16(frame, 38);
  std::uint16_t sum = ones_complement_sum(Bytes(frame).subspan(26, 8), 17);
  FrameBytes size;
  append(size, length, 2);
  sum = ones_complement_sum(size, sum);
  sum = ones_complement_sum(within(frame, 34, length), sum);
  const auto field = static_cast<std::uint16_t>(0xFFFF - sum);
  put16(frame, 40, field == 0 ? 0xFFFF : field);
}

void fix_checksums(FrameBytes& frame) {
  fix_ip_checksum(frame);
  fix_udp_checksum(frame);
}

FrameBytes frame(const wire::Route& route, const wire::Header& header, Bytes payload) {
  FrameBytes out;
  out.insert(out.end(), route.to.mac.bytes.begin(), route.to.mac.bytes.end());
  out.insert(out.end(), route.from.mac.bytes.begin(), route.from.mac.bytes.end());
  append(out, 0x0800, 2);
  append(out, 0x45, 1);
  append(out, route.tos, 1);
  append(out, 20 + 8 + 22 + payload.size(), 2);
  append(out, 0, 2);       // identification
  append(out, 0x4000, 2);  // DF
  append(out, 64, 1);
  append(out, 17, 1);
  append(out, 0, 2);
  append(out, route.from.ip.value, 4);
  append(out, route.to.ip.value, 4);
  append(out, route.from.udp_port, 2);
  append(out, route.to.udp_port, 2);
  append(out, 8 + 22 + payload.size(), 2);
  append(out, 0, 2);
  append(out, 16u + static_cast<unsigned>(header.type), 1);
  append(out, header.flags, 1);
  append(out, header.job, 2);
  append(out, header.member, 2);
  append(out, header.round, 4);
  append(out, header.segment, 4);
  append(out, header.set, 8);
  out.insert(out.end(), payload.begin(), payload.end());
  fix_checksums(out);
  return out;
}

}  // namespace iswitch::slow
