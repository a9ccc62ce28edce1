// Properties of fuzz targets: one that does not hold ends the run with the input kept.
#pragma once

#include <cstdio>

namespace iswitch::fuzz {

inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "property does not hold: %s\n", property);
  __builtin_trap();
}

}  // namespace iswitch::fuzz
