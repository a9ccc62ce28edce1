#include "tools/rl/algorithms/learner.h"

#include <cmath>
#include <string>

namespace iswitch::rl {

Failure Learner::step(Exchange& exchange, double rate, double most_norm) {
  if (Failure failure = exchange.mean(gradient_)) return failure;
  double squares = 0.0;
  for (const float value : gradient_)
    squares += static_cast<double>(value) * static_cast<double>(value);
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm))
    return {FailureKind::diverged, "the gradient of update " + std::to_string(updates() + 1) +
                                       " is not finite: try a smaller learning_rate"};
  if (most_norm > 0.0 && norm > most_norm) {
    const auto scale = static_cast<float>(most_norm / norm);
    for (float& value : gradient_) value *= scale;
  }
  adam_.step(weights_, gradient_, rate);
  return {};
}

void Learner::save(StateWriter& writer) const {
  writer.put(weights_);
  adam_.save(writer);
}

void Learner::load(StateReader& reader) {
  reader.get(weights_);
  adam_.load(reader);
}

}  // namespace iswitch::rl
