#include "switchd/admin/pcap.h"

#include <array>
#include <cstring>

namespace iswitch::switchd::pcap {
namespace {

// Readers tell the writer's byte order from the magic number, so this machine's order does.
template <std::size_t n>
void put(std::string& out, const std::array<std::uint32_t, n>& words) {
  char bytes[n * sizeof(std::uint32_t)];
  std::memcpy(bytes, words.data(), sizeof bytes);
  out.append(bytes, sizeof bytes);
}

}  // namespace

void file_header(std::string& out, std::uint32_t snap) {
  constexpr std::uint32_t magic_microseconds = 0xA1B2'C3D4;
  constexpr std::uint32_t version = 4u << 16 | 2u;  // 2.4: two 16-bit fields
  constexpr std::uint32_t link_type_ethernet = 1;
  put<6>(out, {magic_microseconds, version, 0, 0, snap, link_type_ethernet});
}

void packet(std::string& out, std::uint64_t unix_nanoseconds, std::uint32_t original_bytes,
            Bytes bytes) {
  const auto microseconds = unix_nanoseconds / 1000;
  put<4>(out, {static_cast<std::uint32_t>(microseconds / 1'000'000),
               static_cast<std::uint32_t>(microseconds % 1'000'000),
               static_cast<std::uint32_t>(bytes.size()), original_bytes});
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace iswitch::switchd::pcap
