// The algorithms by name. A new one is added in registry.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "tools/rl/algorithms/algorithm.h"

namespace iswitch::rl {

/// The algorithm's defaults with what suits the environment laid over them, or a usage failure.
std::variant<Parameters, Failure> default_parameters(std::string_view algorithm,
                                                     std::string_view environment);

/// `name` and `context` as checked by default_parameters(); a usage failure where they do not fit
/// each other.
std::variant<std::unique_ptr<Algorithm>, Failure> make_algorithm(std::string_view name,
                                                                 const AlgorithmContext& context);

/// The names there are, separated by commas.
std::string algorithm_names();

}  // namespace iswitch::rl
