// When an asynchronous member asks the switch for an update (Help, protocol.md section 5), and for
// which.
//
//  - A later update of the segment has been seen: soon, since reordering is no loss, and again with
//    time-outs.
//  - Other segments are ahead: perhaps the last result was lost. After some silence on it.
//  - None is ahead: perhaps its last result was lost all the same. A few of those segments after
//    the others, now and then: a whole update that was lost shows on one and puts the others
//    behind.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/engine/engine.h"
#include "agent/engine/updates.h"

namespace iswitch::agent {

class Asking {
 public:
  /// The options are looked at again each time: what the receive buffer holds is learned late.
  explicit Asking(const EngineOptions& options) : options_(options) {}

  void begin(std::uint32_t segments, Time now);
  /// A result of the segment came, the first copy. `timeout`: after which a contribution is sent
  /// again.
  void heard(const Updates& updates, std::uint32_t segment, Time timeout, Time now);
  /// Something is outstanding from now on: a lost update would be missed.
  void expect(Time timeout, Time now);

  /// The segment whose next update is to be asked for now, if any. Call it until it gives none.
  std::optional<std::uint32_t> next(const Updates& updates, bool outstanding, Time timeout,
                                    Time now);
  Time next_deadline() const { return sweep_at_; }

 private:
  struct Timer {
    Time heard = 0;
    Time at = 0;                 ///< not asked before
    Time interval = 0;           ///< since the last time it was asked for; 0: not asked yet
    std::uint32_t complete = 0;  ///< Updates::complete_to when it was heard
    bool hole = false;           ///< likewise
  };
  static Time level_interval(bool outstanding, Time timeout);
  unsigned most_at_once() const;

  const EngineOptions& options_;
  std::vector<Timer> timers_;
  Time sweep_at_ = never;  ///< when anything may have to be asked for
  unsigned asked_ = 0;     ///< in this sweep
  std::uint32_t level_cursor_ = 0;
  unsigned level_left_ = 0;         ///< to be asked for in this turn
  std::size_t level_searched_ = 0;  ///< in this turn
  Time level_at_ = never;
  Time level_interval_ = 0;
};

}  // namespace iswitch::agent
