// The congestion controls there are. A variant: one is chosen when an epoch starts, and no call
// goes through a table of virtual functions.
#pragma once

#include <cstdint>
#include <variant>

#include "agent/congestion/reno.h"

namespace iswitch::agent {

using CongestionAlgorithm = std::variant<Reno>;

}  // namespace iswitch::agent
