// Scenarios from JSON files. The format is in README.md; scenarios/ has examples.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/sim/scenario.h"

namespace iswitch::sim {

struct LoadedScenario {
  std::optional<Scenario> scenario;  ///< none: `errors` says why, a line each
  std::vector<std::string> errors;
};

LoadedScenario parse_scenario(std::string_view text);
LoadedScenario load_scenario(const std::string& path);

}  // namespace iswitch::sim
