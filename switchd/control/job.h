// One job as control knows it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "switchd/control/members.h"
#include "switchd/control/rate_limiter.h"
#include "switchd/control/replay_guard.h"
#include "switchd/control/turn.h"
#include "switchd/control/uplink.h"

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
  /// `link` is null at a switch without a parent.
  Job(const JobConfig& job_config, std::uint64_t instance_number, std::uint32_t life_number,
      std::uint32_t first_base_round, std::unique_ptr<Uplink> link);

  JobConfig config;
  datapath::JobSpec
      spec;  ///< in force; of a child what its parent's job is like, once that is known
  std::uint64_t instance;          ///< tells this job from an earlier one of the same id
  std::uint32_t life;              ///< what a Rejoin has to name (section 9)
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

  std::uint64_t last_put = 0;  ///< PutMember orders so far

  // Its stream (section 9), as of the last Start.
  bool decided = false;                            ///< since the members were last forgotten
  bool first_start = false;                        ///< the last Start was the first since
  wire::Resumed resumed;                           ///< what those who came back are told
  std::optional<datapath::Resumption> resumption;  ///< where it goes on
  std::uint32_t origin = 0;
  wire::Resumed::Fresh fresh_because = wire::Resumed::Fresh::reset;  ///< at the next Start

  // Of a child.
  std::unique_ptr<Uplink> uplink;
  std::optional<ParentRun> run;  ///< of the last Start
  bool reset_due = false;        ///< the parent is to be asked for a Reset
  bool base_told = false;        ///< members have been told that the job runs, and its base_round
  unsigned refusals_out = 0;     ///< SetHalted orders that follow the link's state
  unsigned parent_helps = 0;     ///< SendUp orders that are out

  // What members are told: changes only when the datapath has done its part.
  bool up = false;  ///< not forming
  std::uint32_t base_round;
  bool halted = false;

  /// Run, in order, when the slots are settled and the members told.
  std::vector<std::function<void(const Turn&)>> when_settled;

  bool is_sync() const { return config.mode == wire::Mode::sync; }
  bool settled() const {
    if (phase != SlotPhase::running) return phase == SlotPhase::clear || phase == SlotPhase::failed;
    return refusals_out == 0 && !(reset_due && parent_ready());
  }
  /// True also where there is no parent to wait for.
  bool parent_ready() const { return !uplink || uplink->ready(); }
  /// Its own members are there, and the parent is not.
  bool waits_for_parent() const { return uplink && formed && !uplink->ready(); }
  /// The datapath is to refuse contributions, keeping its slots.
  bool refuses() const { return halt_wanted || !parent_ready(); }
  wire::JobState state() const;
  std::uint16_t threshold_in_force() const;
  bool any_came_back() const;
  /// Everything a reply says of the job; `member` and `missing` are the caller's.
  wire::ReplyBody describe(std::uint16_t shards) const;
  JobView view() const;
};

}  // namespace iswitch::control
