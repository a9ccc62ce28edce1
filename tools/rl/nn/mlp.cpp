#include "tools/rl/nn/mlp.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace iswitch::rl {
namespace {

/// Gram and Schmidt on `count` vectors of `length` >= count random numbers.
std::vector<std::vector<double>> orthonormal(std::size_t count, std::size_t length,
                                             Random& random) {
  std::vector<std::vector<double>> vectors;
  while (vectors.size() < count) {
    std::vector<double> candidate(length);
    for (double& value : candidate) value = random.normal();
    for (const auto& earlier : vectors) {
      double along = 0.0;
      for (std::size_t i = 0; i < length; ++i) along += candidate[i] * earlier[i];
      for (std::size_t i = 0; i < length; ++i) candidate[i] -= along * earlier[i];
    }
    double squares = 0.0;
    for (const double value : candidate) squares += value * value;
    if (squares < 1e-6) continue;  // in the span of the earlier ones: draw again
    for (double& value : candidate) value /= std::sqrt(squares);
    vectors.push_back(std::move(candidate));
  }
  return vectors;
}

}  // namespace

std::vector<std::vector<std::int64_t>> Mlp::shapes(const std::vector<std::int64_t>& widths) {
  std::vector<std::vector<std::int64_t>> result;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    result.push_back({widths[i], widths[i + 1]});
    result.push_back({widths[i + 1]});
  }
  return result;
}

Mlp::Mlp(FlatParameters& parameters, std::size_t first, std::size_t layers) {
  for (std::size_t i = 0; i < layers; ++i)
    layers_.push_back({parameters.tensor(first + 2 * i), parameters.tensor(first + 2 * i + 1)});
}

at::Tensor Mlp::forward(const at::Tensor& input) const {
  at::Tensor value = at::addmm(layers_.front().bias, input, layers_.front().weight);
  for (std::size_t i = 1; i < layers_.size(); ++i)
    value = at::addmm(layers_[i].bias, at::tanh(value), layers_[i].weight);
  return value;
}

void Mlp::initialise(Random& random, float last_gain) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto in = static_cast<std::size_t>(layers_[i].weight.size(0));
    const auto out = static_cast<std::size_t>(layers_[i].weight.size(1));
    const double gain = i + 1 == layers_.size() ? static_cast<double>(last_gain) : std::sqrt(2.0);
    const auto vectors = orthonormal(std::min(in, out), std::max(in, out), random);
    const std::span weight(layers_[i].weight.data_ptr<float>(), in * out);
    for (std::size_t row = 0; row < in; ++row)
      for (std::size_t column = 0; column < out; ++column)
        weight[row * out + column] =
            static_cast<float>(gain * (in <= out ? vectors[row][column] : vectors[column][row]));
    const std::span bias(layers_[i].bias.data_ptr<float>(), out);
    std::fill(bias.begin(), bias.end(), 0.0F);
  }
}

}  // namespace iswitch::rl
