#include "tools/rl/core/adam.h"

#include <cmath>

namespace iswitch::rl {
namespace {

constexpr float first_decay = 0.9F, second_decay = 0.999F, epsilon = 1e-5F;

}  // namespace

void Adam::step(std::span<float> weights, std::span<const float> gradient, double rate) {
  ++steps_;
  const auto steps = static_cast<double>(steps_);
  const double first_correction = 1.0 - std::pow(static_cast<double>(first_decay), steps);
  const double second_correction = 1.0 - std::pow(static_cast<double>(second_decay), steps);
  const auto scale = static_cast<float>(rate / first_correction);
  const auto root_scale = static_cast<float>(1.0 / std::sqrt(second_correction));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    first_[i] += (1.0F - first_decay) * (gradient[i] - first_[i]);
    second_[i] += (1.0F - second_decay) * (gradient[i] * gradient[i] - second_[i]);
    weights[i] -= scale * first_[i] / (std::sqrt(second_[i]) * root_scale + epsilon);
  }
}

void Adam::save(StateWriter& writer) const {
  writer.put(steps_);
  writer.put(first_);
  writer.put(second_);
}

void Adam::load(StateReader& reader) {
  steps_ = reader.get_count();
  reader.get(first_);
  reader.get(second_);
}

}  // namespace iswitch::rl
