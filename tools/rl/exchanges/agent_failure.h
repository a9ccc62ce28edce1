// The agent's errors as the trainer's failures.
#pragma once

#include <iswitch/agent.h>

#include "tools/rl/core/failure.h"

namespace iswitch::rl {

Failure failure_of(const AgentError& error);

}  // namespace iswitch::rl
