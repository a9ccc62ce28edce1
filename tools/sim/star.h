// A random scenario around one switch: everything about it follows from the seed.
#pragma once

#include <cstdint>

#include "tools/sim/run.h"

namespace iswitch::sim {

struct StarLimits {
  unsigned jobs = 3;     ///< at most
  unsigned workers = 8;  ///< at most, a job
  double faults = 1;     ///< scales the links' faults; 0: none
  bool chaos = true;
  Time trouble = 150 * millisecond;
};

Scenario random_star(std::uint64_t seed, const StarLimits& limits = {});

/// A plain one: `workers` of one job on clean links, no chaos.
Scenario quiet_star(std::uint64_t seed, unsigned workers);

}  // namespace iswitch::sim
