// Frames and requests that were refused, told in the log: one line for a reason with an example, at
// a bounded rate, whatever arrives.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "switchd/config.h"
#include "switchd/dataplane/refusal.h"
#include "wire/control.h"

namespace iswitch::switchd {

class RefusalLog {
 public:
  /// A reason is told at once, and then at most once in this time.
  static constexpr Time interval = 10 * second;

  /// A frame that the pipeline refused.
  void add(const Refusal& refusal);
  /// A control request that was answered with a status that is not ok.
  void add(wire::Status status, const datapath::ControlFrame& frame);
  /// Writes what is due. Called often; cheap when nothing is new.
  void write(const Config& config, Time now);

 private:
  struct Entry {
    Refusal example;
    std::uint64_t count = 0;  ///< since it was last told
    Time told_at = -interval;
  };
  void note(const std::string& reason, const Refusal& refusal);

  std::map<std::string, Entry> entries_;  ///< by reason: as many as there are reasons
  bool news_ = false;
};

}  // namespace iswitch::switchd
