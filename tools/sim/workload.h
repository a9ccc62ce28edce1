// What the workers of a job do.
#pragma once

#include <cstdint>

#include "wire/units.h"

namespace iswitch::sim {

struct WorkloadSpec {
  /// Length of the vectors. In asynchronous jobs max_elements, always.
  std::uint32_t min_elements = 1, max_elements = 4000;
  /// A few elements and whole segments as well, more often than chance would have it.
  bool edges = true;
  std::uint32_t operations = 0;      ///< of each stream; 0: without end
  unsigned depth = 2;                ///< operations or pushes in flight
  Time compute = 100 * microsecond;  ///< mean time between operations
  double noise = 0.2;                ///< of the compute time
  Time deadline = 100 * millisecond;
  double broadcasts = 0.1, barriers = 0.1, means = 0.1, zeros = 0.2;  ///< shares of operations
  double mistakes = 0;  ///< a worker issues another operation than the rest of the job
  /// Asynchronous: a gradient computed on weights that are this many updates old is dropped.
  std::uint32_t staleness = 3;
  double naps = 0;                  ///< asynchronous: a worker takes no updates for a while
  Time catch_up = 2 * millisecond;  ///< asynchronous: to get weights from a peer
  Time join_patience = 2 * second;
  Time restart_after = 20 * millisecond;  ///< a failed join or membership
};

}  // namespace iswitch::sim
