// Every counter of the daemon by name, from wherever it is kept (docs/counters.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "switchd/admin/capture.h"
#include "switchd/control/control.h"
#include "switchd/dataplane/dataplane.h"

namespace iswitch::switchd {

struct CounterValue {
  std::string name;
  std::uint64_t value = 0;
  bool terminal = false;              ///< a received frame may end here
  std::vector<std::uint64_t> lcores;  ///< where it is kept per lcore
};

std::vector<CounterValue> all_counters(const Dataplane& dataplane, const control::Counters& control,
                                       const Captures& captures);

/// Over all lcores.
std::uint64_t port_sum(const Dataplane& dataplane, std::size_t port,
                       pipeline::Tally PortCounters::*counter);

}  // namespace iswitch::switchd
