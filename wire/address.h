// Ethernet and IPv4 addresses as values, with their text forms.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace iswitch::wire {

struct Mac {
  std::array<std::uint8_t, 6> bytes{};
  auto operator<=>(const Mac&) const = default;
  bool is_group() const { return (bytes[0] & 1) != 0; }
};

struct Ipv4 {
  std::uint32_t value = 0;  ///< host order: 10.0.0.1 is 0x0A000001
  auto operator<=>(const Ipv4&) const = default;
};

/// Where a member's packets come from and its results go to.
struct Endpoint {
  Mac mac;
  Ipv4 ip;
  std::uint16_t udp_port = 0;
  auto operator<=>(const Endpoint&) const = default;
};

/// "02:00:00:00:00:fe"; nothing for any other form.
std::optional<Mac> parse_mac(std::string_view text);
/// "10.77.0.254"; nothing for any other form.
std::optional<Ipv4> parse_ipv4(std::string_view text);
std::string to_string(const Mac& mac);
std::string to_string(Ipv4 ip);

}  // namespace iswitch::wire
