// Faults that a scenario names: this node, this moment.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/sim/link.h"
#include "tools/sim/program.h"
#include "tools/sim/switch_node.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

enum class FaultKind : std::uint8_t {
  pause,     ///< the program stands still, and goes on afterwards
  crash,     ///< the program vanishes, and is started again afterwards
  stop,      ///< the program ends in order (Leave), and is started again afterwards
  cut,       ///< nothing crosses the cable to the node's switch or parent
  stand_in,  ///< of a switch: it vanishes, and another machine takes its address afterwards
};

struct PlannedFault {
  Time at = 0;
  Time duration = 0;
  FaultKind kind = FaultKind::crash;
  bool at_switch = false;  ///< else at a host
  unsigned node = 0;       ///< index among the switches or hosts
};

/// What may be hit, by index as in PlannedFault.
struct Victims {
  std::vector<SwitchNode*> switches;
  std::vector<Member*> hosts;
  std::vector<std::pair<Link*, Link*>> switch_cables;  ///< null: a root has none
  std::vector<std::pair<Link*, Link*>> host_cables;
};

class PlannedFaults final : public EventHandler {
 public:
  PlannedFaults(World& world, std::vector<PlannedFault> faults, Victims victims);
  void start();
  void handle(const Event& event) override;
  std::uint64_t happened() const { return happened_; }

 private:
  enum Kind : std::uint32_t { begin_kind = first_own_event, end_kind };
  void begin(const PlannedFault& fault);
  void end(const PlannedFault& fault);

  World& world_;
  std::vector<PlannedFault> faults_;
  Victims victims_;
  std::uint64_t happened_ = 0;
};

}  // namespace iswitch::sim
