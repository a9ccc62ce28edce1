#include "agent/transport/transport.h"

#include <charconv>

namespace iswitch::agent {

std::optional<SwitchAddress> parse_switch_address(std::string_view text) {
  SwitchAddress address;
  const std::size_t colon = text.find(':');
  const auto ip = wire::parse_ipv4(text.substr(0, colon));
  if (!ip) return std::nullopt;
  address.ip = *ip;
  if (colon == std::string_view::npos) return address;
  const std::string_view port = text.substr(colon + 1);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (parsed.ec != std::errc{} || parsed.ptr != port.data() + port.size() || address.port == 0) {
    return std::nullopt;
  }
  return address;
}

}  // namespace iswitch::agent
