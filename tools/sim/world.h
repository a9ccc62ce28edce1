// What every part of one simulated run shares. One thread, no global state: several runs may go on
// in parallel, one World each.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/sim/events.h"
#include "tools/sim/frames.h"
#include "tools/sim/random.h"
#include "tools/sim/trace.h"

namespace iswitch::sim {

/// Properties that were found broken, first come first kept.
class Violations {
 public:
  void add(Time at, const char* property, const std::string& text);
  bool empty() const { return lines_.empty(); }
  std::uint64_t count() const { return count_; }
  /// "<time> us <property>: <text>"
  const std::vector<std::string>& lines() const { return lines_; }
  /// True when one of the kept lines names this property.
  bool has(const std::string& property) const;

 private:
  static constexpr std::size_t most = 20;
  std::vector<std::string> lines_;
  std::vector<std::string> properties_;
  std::uint64_t count_ = 0;
};

struct World {
  World(std::uint64_t run_seed, std::size_t frame_room, std::size_t trace_records)
      : seed(run_seed), random(run_seed), frames(frame_room), trace(trace_records) {}

  std::uint64_t seed;
  Random random;  ///< only forked from
  EventQueue queue;
  FramePool frames;
  Trace trace;
  Violations violations;
  std::vector<std::string> node_names;  ///< by node number
  Time switch_started = 0;              ///< when some switch last did

  Time now() const { return queue.now(); }
  void violation(const char* property, const std::string& text) {
    violations.add(queue.now(), property, text);
  }
};

/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace iswitch::sim
