// The part of a scenario file about nodes and links.
#pragma once

#include "switchd/json_reader.h"
#include "tools/sim/scenario.h"

namespace iswitch::sim {

/// Reads `topology` and `links`; the jobs are there already.
void read_topology(JsonReader& root, Scenario& scenario, JsonErrors& errors);
/// What cannot be said of one value alone: members and ports of a switch, jobs in several trees.
void check_topology(const Scenario& scenario, JsonErrors& errors);

}  // namespace iswitch::sim
