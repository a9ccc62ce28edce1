// The environments by name. A new one is added in registry.cpp.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "tools/rl/core/failure.h"
#include "tools/rl/environments/environment.h"

namespace iswitch::rl {

/// A factory, or a usage failure (unknown name) or machine failure (the simulator refuses its
/// model).
std::variant<EnvironmentFactory, Failure> environment_factory(std::string_view name);

/// The names there are, separated by commas.
std::string environment_names();

}  // namespace iswitch::rl
