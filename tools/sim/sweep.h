// Many seeds at once, on all processors (oneTBB).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tools/sim/report.h"
#include "tools/sim/scenario.h"

namespace iswitch::sim {

struct SweepOptions {
  std::uint64_t first = 0, end = 0;  ///< seeds [first, end)
  unsigned threads = 0;              ///< 0: as many as there are processors
  bool keep_going = false;           ///< beyond the first failure
  std::size_t trace_lines = 60;
  std::function<Scenario(std::uint64_t)> scenario;  ///< by seed; called from several threads
  /// Of each run in the order of seeds, from one thread at a time.
  std::function<void(const Report&)> done;
  /// Checked before each run: true ends the sweep. Called from several threads.
  std::function<bool()> enough;
};

/// The failure of the lowest seed: the same one whatever the number of threads. None: all
/// properties hold.
std::optional<Report> sweep(const SweepOptions& options);

}  // namespace iswitch::sim
