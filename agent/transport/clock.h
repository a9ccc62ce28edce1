// The agent's time line.
#pragma once

#include <chrono>

#include "wire/units.h"

namespace iswitch::agent {

/// CLOCK_MONOTONIC.
inline Time monotonic_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace iswitch::agent
