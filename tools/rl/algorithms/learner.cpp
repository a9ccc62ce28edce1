#include "tools/rl/algorithms/learner.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace iswitch::rl {

Failure Learner::diverged() const {
  return {FailureKind::diverged, "the gradient of update " + std::to_string(updates() + 1) +
                                     " is not finite: try a smaller learning_rate"};
}

bool Learner::descend(std::span<float> weights, std::span<float> gradient, double rate,
                      double most_norm) {
  double squares = 0.0;
  for (const float value : gradient)
    squares += static_cast<double>(value) * static_cast<double>(value);
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) return false;
  if (most_norm > 0.0 && norm > most_norm) {
    const auto scale = static_cast<float>(most_norm / norm);
    for (float& value : gradient) value *= scale;
  }
  adam_.step(weights, gradient, rate);
  updates_.store(adam_.steps(), std::memory_order_relaxed);
  return true;
}

Failure Learner::step(Exchange& exchange, double rate, double most_norm) {
  if (AsynchronousExchange* asynchronous = exchange.asynchronous()) {
    if (diverged_) return diverged();
    return asynchronous->step(gradient_, weights_);
  }
  if (Failure failure = exchange.mean(gradient_)) return failure;
  return descend(weights_, gradient_, rate, most_norm) ? Failure{} : diverged();
}

Failure Learner::begin(AsynchronousExchange& exchange, double rate, double most_norm) {
  rate_ = rate;
  most_norm_ = most_norm;
  scratch_.resize(weights_.size());
  return exchange.start(*this, weights_);
}

void Learner::apply(std::span<float> weights, std::span<const float> mean_gradient) {
  std::copy(mean_gradient.begin(), mean_gradient.end(), scratch_.begin());
  // One that is not finite is passed over, by all workers alike; the next step() tells.
  if (!descend(weights, scratch_, rate_, most_norm_)) diverged_ = true;
}

std::vector<float> Learner::save_optimiser() const {
  StateWriter writer;
  adam_.save(writer);
  return std::move(writer.values());
}

void Learner::load_optimiser(std::span<const float> state) {
  StateReader reader(state);
  adam_.load(reader);
  updates_.store(adam_.steps(), std::memory_order_relaxed);
}

void Learner::save(StateWriter& writer) const {
  writer.put(weights_);
  adam_.save(writer);
}

void Learner::load(StateReader& reader) {
  reader.get(weights_);
  adam_.load(reader);
  updates_.store(adam_.steps(), std::memory_order_relaxed);
}

}  // namespace iswitch::rl
