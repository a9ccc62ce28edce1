// One job as control knows it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "switchd/control/members.h"
#include "switchd/control/rate_limiter.h"
#include "switchd/control/replay_guard.h"
#include "switchd/control/turn.h"

namespace iswitch::control {

/// Where the datapath is with the job's slots. What changes them takes a round trip or two, and
/// nobody is told before it is done: installing > clear > starting > running > stopping > clear.
enum class SlotPhase : std::uint8_t {
  installing,  ///< Install is out
  clear,       ///< refuses contributions, nothing open or kept
  starting,    ///< Start is out
  running,
  stopping,  ///< Stop is out
  failed,    ///< the datapath has no tables for it
};

struct Job {
  Job(const JobConfig& job_config, std::uint64_t instance_number, std::uint32_t first_base_round);

  JobConfig config;
  datapath::JobSpec
      spec;  ///< in force; of a child what its parent's job is like, once that is known
  std::uint64_t instance;          ///< tells this job from an earlier one of the same id
  std::uint16_t threshold_wanted;  ///< 0 follows the number of members
  std::string fault;

  MemberTable members;
  ReplayGuard guard;
  RateLimiter notices;

  /// A Help whose Replay is out. Help is exempt from the replay guard, so it is kept here.
  struct HelpInProgress {
    Place source;
    std::uint32_t request_id = 0;
    std::uint64_t nonce = 0;
    bool operator==(const HelpInProgress&) const = default;
  };
  std::vector<HelpInProgress> helps;

  // What the datapath has been or is to be told.
  SlotPhase phase = SlotPhase::installing;
  bool formed = false;        ///< the expected members have joined; until all have left
  bool clear_wanted = false;  ///< Stop and Start once more
  bool ever_started = false;
  std::uint32_t next_base_round;  ///< of the next or running Start
  bool halt_wanted = false;
  bool datapath_halted = false;  ///< last SetHalted sent

  // What members are told: changes only when the datapath has done its part.
  bool up = false;  ///< not forming
  std::uint32_t base_round;
  bool halted = false;

  /// Run, in order, when the slots are settled and the members told.
  std::vector<std::function<void(const Turn&)>> when_settled;

  bool is_sync() const { return config.mode == wire::Mode::sync; }
  bool settled() const {
    return phase == SlotPhase::clear || phase == SlotPhase::running || phase == SlotPhase::failed;
  }
  wire::JobState state() const;
  std::uint16_t threshold_in_force() const;
  /// Everything a reply says of the job; `member` and `missing` are the caller's.
  wire::ReplyBody describe(std::uint16_t shards) const;
  JobView view() const;
};

}  // namespace iswitch::control
