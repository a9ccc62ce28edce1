// A one-legged robot in the plane (MuJoCo): hop forward without falling.
//
// Observed: qpos and qvel (12). Actions: torques at hip, knee and ankle (3). Reward a step: forward
// speed in m/s, 1 for being upright, less 0.001 times the squared action. Ends when it falls or
// after 1000 steps.
#pragma once

#include <variant>

#include "tools/rl/core/failure.h"
#include "tools/rl/environments/environment.h"

namespace iswitch::rl {

std::variant<EnvironmentFactory, Failure> hopper_factory();

}  // namespace iswitch::rl
