#include "wire/contribution_pattern.h"

namespace iswitch::wire {
namespace {

constexpr std::size_t pattern_bytes = 32;
using PatternBytes = std::array<std::uint8_t, pattern_bytes>;

}  // namespace

ContributionPattern::ContributionPattern(const FrameRules& rules)
    : udp_port_(rules.udp_port), ports_(rules.ports) {
  PatternBytes expected{};
  PatternBytes mask{};
  // Offsets of the frame.
  const auto expect = [&](std::size_t at, std::uint8_t value, std::uint8_t bits) {
    expected[at - first_word] = value & bits;
    mask[at - first_word] = bits;
  };
  expect(12, 0x08, 0xFF);  // EtherType: IPv4
  expect(13, 0x00, 0xFF);
  expect(14, 0x45, 0xFF);  // version, no options
  expect(15, rules.data_tos, 0xFC);
  expect(20, 0, 0x3F);  // no fragment
  expect(21, 0, 0xFF);
  expect(23, 17, 0xFF);  // UDP
  for (std::size_t i = 0; i < 4; ++i)
    expect(30 + i, static_cast<std::uint8_t>(rules.ip.value >> (24 - 8 * i)), 0xFF);
  expect(42, protocol_version << 4 | static_cast<unsigned>(Type::contribution), 0xFF);
  expect(43, 0, flag::reserved_mask);
  std::memcpy(expected_.data(), expected.data(), pattern_bytes);
  std::memcpy(mask_.data(), mask.data(), pattern_bytes);
}

}  // namespace iswitch::wire
