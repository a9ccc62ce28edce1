// Through an iSwitch's asynchronous job: pushes and updates instead of all-reduces.
#pragma once

#include <memory>
#include <variant>

#include "tools/rl/exchanges/exchange.h"
#include "tools/rl/exchanges/switch_exchange.h"

namespace iswitch::rl {

/// Joins and waits until all workers of the job are there. Needs SwitchOptions::rank, peers and
/// gradient_floats.
std::variant<std::unique_ptr<Exchange>, Failure> join_switch_asynchronously(
    const SwitchOptions& options);

}  // namespace iswitch::rl
