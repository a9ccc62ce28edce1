#include "tools/sim/world.h"

#include <algorithm>
#include <cstdio>

namespace iswitch::sim {

std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  char text[512];
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

void Violations::add(Time at, const char* property, const std::string& text) {
  ++count_;
  if (lines_.size() >= most) return;
  properties_.emplace_back(property);
  lines_.push_back(
      format("%.3f us  %s: %s", static_cast<double>(at) / 1e3, property, text.c_str()));
}

bool Violations::has(const std::string& property) const {
  return std::find(properties_.begin(), properties_.end(), property) != properties_.end();
}

}  // namespace iswitch::sim
