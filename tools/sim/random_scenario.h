// A random scenario: everything about it follows from the seed.
#pragma once

#include <cstdint>

#include "tools/sim/scenario.h"

namespace iswitch::sim {

/// How the switches are put together.
enum class Shape : std::uint8_t { any, star, tree };
enum class Modes : std::uint8_t { any, sync, async };

struct RandomLimits {
  Shape shape = Shape::any;
  Modes modes = Modes::any;
  unsigned jobs = 3;     ///< at most
  unsigned workers = 8;  ///< at most, a job; twice as many in a tree
  double faults = 1;     ///< scales the links' faults; 0: none
  bool chaos = true;
  bool restarts = false;  ///< every scenario has switches that restart
  Time trouble = 150 * millisecond;
};

Scenario random_scenario(std::uint64_t seed, const RandomLimits& limits = {});

/// A plain one: `workers` of one job at one switch, clean links, no chaos.
Scenario quiet_star(std::uint64_t seed, unsigned workers);
/// The same with `leaves` switches below the one, each with `workers`.
Scenario quiet_tree(std::uint64_t seed, unsigned leaves, unsigned workers);

}  // namespace iswitch::sim
