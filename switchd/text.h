// One-line messages from pieces: text("port ", name, ": MTU ", mtu).
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace iswitch::switchd {

namespace detail {
inline void append(std::string& out, std::string_view piece) { out += piece; }
inline void append(std::string& out, char piece) { out += piece; }
template <class T>
requires(std::integral<T> || std::floating_point<T>) void append(std::string& out, T number) {
  out += std::to_string(number);
}
}  // namespace detail

template <class... Pieces>
std::string text(const Pieces&... pieces) {
  std::string out;
  (detail::append(out, pieces), ...);
  return out;
}

}  // namespace iswitch::switchd
