#include "wire/address.h"

#include <charconv>

namespace iswitch::wire {
namespace {

constexpr char hex_digits[] = "0123456789abcdef";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// 0 to 255 in decimal without leading zeros (which some readers take as octal).
std::optional<std::uint8_t> parse_octet(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  std::uint8_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Mac> parse_mac(std::string_view text) {
  Mac mac;
  if (text.size() != 3 * mac.bytes.size() - 1) return std::nullopt;
  for (std::size_t i = 0; i < mac.bytes.size(); ++i) {
    const int high = hex_value(text[3 * i]);
    const int low = hex_value(text[3 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    if (i > 0 && text[3 * i - 1] != ':') return std::nullopt;
    mac.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return mac;
}

std::optional<Ipv4> parse_ipv4(std::string_view text) {
  Ipv4 ip;
  for (int i = 0; i < 4; ++i) {
    const std::size_t dot = i < 3 ? text.find('.') : text.size();
    if (dot == std::string_view::npos) return std::nullopt;
    const auto octet = parse_octet(text.substr(0, dot));
    if (!octet) return std::nullopt;
    ip.value = ip.value << 8 | *octet;
    if (i < 3) text.remove_prefix(dot + 1);
  }
  return ip;
}

std::string to_string(const Mac& mac) {
  std::string text;
  for (const std::uint8_t byte : mac.bytes) {
    if (!text.empty()) text += ':';
    text += hex_digits[byte >> 4];
    text += hex_digits[byte & 15];
  }
  return text;
}

std::string to_string(Ipv4 ip) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (!text.empty()) text += '.';
    text += std::to_string(ip.value >> shift & 0xFF);
  }
  return text;
}

}  // namespace iswitch::wire
