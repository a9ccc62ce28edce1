// Seeded trouble beyond what links do: workers and switches crash, pause and come back, and members
// and operators ask for things at bad moments.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "switchd/datapath/datapath.h"
#include "tools/sim/program.h"
#include "tools/sim/switch_node.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

enum class Act : std::uint8_t {
  crash_worker,  ///< comes back at the same address, or at another port
  pause_worker,
  pause_switch,
  restart_switch,
  stop_switch,    ///< in order, so that agents are told; comes back
  restart_twice,  ///< and crashes again while members are coming back
  restart_all,    ///< all switches of the job at once; they come back one after another
  stand_in,       ///< it vanishes, and another machine takes its address: another MAC
  member_reset,
  operator_reset,
  halt,  ///< by a member or the operator; resumed soon
  // Not in jobs whose sums must be full:
  leave,  ///< comes back
  remove_member,
  set_threshold,    ///< by a member or the operator
  force,            ///< a slot that is open, by the operator
  force_by_member,  ///< some slot near the stream's position
  count_
};
inline constexpr std::size_t act_count = static_cast<std::size_t>(Act::count_);
const char* act_name(Act act);

struct ChaosSpec {
  Time mean_interval = 0;  ///< between acts; 0: none
  std::array<double, act_count> weights{};
  Time longest_absence = 50 * millisecond;
  /// What happens first, within the first quarter of the time; none: anything, or perhaps nothing.
  std::optional<Act> first{};
};

/// What chaos may do to a job.
struct ChaosJob {
  std::uint16_t job = 0;
  bool full = true;       ///< no act that makes sums less than full
  bool unbroken = false;  ///< nor one that is not a switch's restart
  std::uint32_t slots = 0;
  std::vector<Member*> workers;
  std::vector<SwitchNode*> switches;      ///< that run it, the root first
  std::vector<std::uint16_t> thresholds;  ///< that they were configured with
};

class Chaos final : public EventHandler {
 public:
  Chaos(World& world, const ChaosSpec& spec, std::vector<ChaosJob> jobs, Random random);

  void start(Time until);
  /// Undoes what does not end by itself: everybody is up, nothing is halted, thresholds are what
  /// they were.
  void heal();
  void handle(const Event& event) override;
  std::uint64_t acts() const;
  std::uint64_t acts(Act act) const { return happened_[static_cast<std::size_t>(act)]; }

 private:
  enum Kind : std::uint32_t {
    act_kind = first_own_event,
    start_switch_kind,  // object = the switch
    crash_switch_kind,  // object = the switch; it comes back after value microseconds
    resume_kind,        // value = job's index, object = the switch
    force_kind,         // the same; the slot is in open_
  };
  void act();
  Act draw();
  void perform(Act act, ChaosJob& job, SwitchNode& node);
  void perform_restart(Act act, ChaosJob& job, SwitchNode& node);
  bool may_leave(const SwitchNode& node) const;
  void schedule_next();

  World& world_;
  ChaosSpec spec_;
  std::vector<ChaosJob> jobs_;
  Random random_;
  Time until_ = 0;
  std::array<std::uint64_t, act_count> happened_{};
  datapath::OpenSlot open_;
};

}  // namespace iswitch::sim
