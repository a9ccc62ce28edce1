// The flat buffers: what libtorch writes into them is the gradient, all of it.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tanh.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tools/rl/nn/flat_parameters.h"
#include "tools/rl/nn/mlp.h"

using namespace iswitch::rl;

namespace {

const std::vector<std::int64_t> widths{5, 7, 6, 2};

struct Network {
  FlatParameters parameters{Mlp::shapes(widths)};
  Mlp mlp{parameters, 0, 3};
  std::vector<float> input;

  Network() {
    Random random(3, 0, 0);
    mlp.initialise(random, 1.0F);
    for (int i = 0; i < 20; ++i) input.push_back(static_cast<float>(random.normal()));
    for (float& weight : parameters.weights())
      if (weight == 0.0F) weight = static_cast<float>(0.1 * random.normal());
  }
  at::Tensor inputs() { return at::from_blob(input.data(), {4, 5}); }
  at::Tensor loss() { return mlp.forward(inputs()).square().sum(); }
};

}  // namespace

TEST_CASE("the flat gradient equals the gradients of separate parameters") {
  Network network;
  std::vector<at::Tensor> separate;
  for (std::size_t i = 0; i < 6; ++i)
    separate.push_back(network.parameters.tensor(i).detach().clone().requires_grad_(true));
  at::Tensor value = network.inputs();
  for (std::size_t i = 0; i < 6; i += 2) {
    value = at::addmm(separate[i + 1], value, separate[i]);
    if (i < 4) value = at::tanh(value);
  }
  value.square().sum().backward();

  const float* before = network.parameters.gradient().data();
  network.loss().backward();
  const auto gradient = network.parameters.gradient();
  CHECK(gradient.data() == before);
  std::size_t at = 0;
  for (const at::Tensor& parameter : separate) {
    const at::Tensor expected = parameter.grad().contiguous();
    for (std::int64_t i = 0; i < expected.numel(); ++i)
      CHECK(gradient[at++] == Approx(expected.data_ptr<float>()[i]).margin(1e-6));
  }
  CHECK(at == gradient.size());
  CHECK(at == 5 * 7 + 7 + 7 * 6 + 6 + 6 * 2 + 2);

  // A second pass adds, a cleared buffer starts again: in the same memory.
  const std::vector<float> once(gradient.begin(), gradient.end());
  network.loss().backward();
  for (std::size_t i = 0; i < once.size(); ++i)
    CHECK(gradient[i] == Approx(2.0F * once[i]).margin(1e-5));
  network.parameters.clear_gradient();
  network.loss().backward();
  CHECK(std::equal(once.begin(), once.end(), gradient.begin()));
}

TEST_CASE("the flat gradient equals finite differences of the flat weights") {
  Network network;
  network.loss().backward();
  const auto gradient = network.parameters.gradient();
  const auto weights = network.parameters.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    constexpr float step = 1e-2F;
    const float kept = weights[i];
    weights[i] = kept + step;
    const double above = network.loss().item<double>();
    weights[i] = kept - step;
    const double below = network.loss().item<double>();
    weights[i] = kept;
    const double slope = (above - below) / (2.0 * static_cast<double>(step));
    CHECK(static_cast<double>(gradient[i]) == Approx(slope).epsilon(0.02).margin(0.02));
  }
}

TEST_CASE("initial weights are orthogonal, the last layer scaled, biases zero") {
  FlatParameters parameters(Mlp::shapes({12, 64, 3}));
  Mlp mlp(parameters, 0, 2);
  Random random(1, 0, 0);
  mlp.initialise(random, 0.01F);
  const at::Tensor first = parameters.tensor(0).detach();
  const at::Tensor square = first.matmul(first.t());  // 12 rows of length 64
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t k = 0; k < 12; ++k)
      CHECK(square[i][k].item<float>() == Approx(i == k ? 2.0F : 0.0F).margin(1e-4));
  CHECK(parameters.tensor(1).abs().sum().item<float>() == 0.0F);
  CHECK(parameters.tensor(2).square().sum().item<float>() == Approx(3 * 1e-4F));
}
