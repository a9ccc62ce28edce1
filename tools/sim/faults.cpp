#include "tools/sim/faults.h"

#include <utility>

namespace iswitch::sim {

PlannedFaults::PlannedFaults(World& world, std::vector<PlannedFault> faults, Victims victims)
    : world_(world), faults_(std::move(faults)), victims_(std::move(victims)) {}

void PlannedFaults::start() {
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    world_.queue.schedule(faults_[i].at, *this, begin_kind, static_cast<std::uint32_t>(i));
  }
}

void PlannedFaults::handle(const Event& event) {
  const PlannedFault& fault = faults_[event.value];
  if (event.kind == end_kind) return end(fault);
  ++happened_;
  begin(fault);
}

void PlannedFaults::begin(const PlannedFault& fault) {
  const Time until = world_.now() + fault.duration;
  const auto number = fault.at_switch ? victims_.switches[fault.node]->number()
                                      : victims_.hosts[fault.node]->host().number();
  world_.trace.add(world_.now(), What::fault, number,
                   1000 + static_cast<std::uint32_t>(fault.kind));
  if (fault.kind == FaultKind::cut) {
    const auto& cable =
        fault.at_switch ? victims_.switch_cables[fault.node] : victims_.host_cables[fault.node];
    for (Link* link : {cable.first, cable.second}) {
      if (link != nullptr) link->cut_until(until);
    }
    return;
  }
  if (fault.at_switch) {
    SwitchNode& node = *victims_.switches[fault.node];
    if (fault.kind == FaultKind::pause) return node.pause(fault.duration);
    if (fault.kind == FaultKind::stop) {
      node.stop();
    } else {
      node.crash();
    }
    if (fault.kind == FaultKind::stand_in) node.stand_in();
  } else {
    Member& member = *victims_.hosts[fault.node];
    if (fault.kind == FaultKind::pause) return member.host().pause(fault.duration);
    if (fault.kind == FaultKind::stop) {
      member.leave(until);
    } else {
      member.crash();
    }
  }
  world_.queue.schedule(until, *this, end_kind,
                        static_cast<std::uint32_t>(&fault - faults_.data()));
}

void PlannedFaults::end(const PlannedFault& fault) {
  if (fault.at_switch) {
    victims_.switches[fault.node]->start();
  } else {
    victims_.hosts[fault.node]->come_back(world_.now());
  }
}

}  // namespace iswitch::sim
