// Generalised advantage estimation (Schulman and others, 2016).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace iswitch::rl {

/// One row a step, one column an environment: index = step * environments + environment.
struct Experience {
  std::size_t environments = 0;
  std::span<const float> rewards;
  std::span<const float> values;              ///< estimated return of what was seen before the step
  std::span<const float> next_values;         ///< likewise after it
  std::span<const unsigned char> terminated;  ///< nothing follows: the next value counts as 0
  std::span<const unsigned char> ended;       ///< terminated, or cut off by a time limit
};

std::vector<float> advantages(const Experience& experience, float discount, float lambda);

}  // namespace iswitch::rl
