// A pole on a cart: push left or right so that it stays upright. A quick check that an algorithm
// learns.
#pragma once

#include <variant>

#include "tools/rl/core/failure.h"
#include "tools/rl/environments/environment.h"

namespace iswitch::rl {

/// 4 observations (cart position and speed, pole angle and rate), 2 choices, 1 reward a step, at
/// most 500 steps.
std::variant<EnvironmentFactory, Failure> cartpole_factory();

}  // namespace iswitch::rl
