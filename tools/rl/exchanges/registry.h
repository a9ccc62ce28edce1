// The exchanges by name. A new one is added in registry.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "tools/rl/exchanges/exchange.h"
#include "tools/rl/exchanges/switch_exchange.h"

namespace iswitch::rl {

/// Takes part under `name` and waits until the others are there; `network` is for those that need
/// one.
std::variant<std::unique_ptr<Exchange>, Failure> make_exchange(std::string_view name,
                                                               const SwitchOptions& network);

/// The names there are, separated by commas.
std::string exchange_names();

}  // namespace iswitch::rl
