// Proximal policy optimisation (Schulman and others, 2017), synchronous data parallel.
#pragma once

#include <memory>
#include <string_view>
#include <variant>

#include "tools/rl/algorithms/algorithm.h"

namespace iswitch::rl {

/// Defaults, with those that suit `environment` laid over them. Their meaning is in
/// tools/rl/README.md.
Parameters ppo_parameters(std::string_view environment);

/// A usage failure where the parameters make no batch.
std::variant<std::unique_ptr<Algorithm>, Failure> make_ppo(const AlgorithmContext& context);

}  // namespace iswitch::rl
