// Reports for people and for programs.
#pragma once

#include <string>

#include "tools/sim/report.h"

namespace iswitch::sim {

/// Tables; `wall_seconds` is what the run took.
std::string table_of(const Report& report, double wall_seconds);
/// One JSON object on one line.
std::string json_of(const Report& report, double wall_seconds);
/// What is broken, with the trace; empty if nothing is.
std::string failure_of(const Report& report, const std::string& again);

}  // namespace iswitch::sim
