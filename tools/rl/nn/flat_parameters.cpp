#include "tools/rl/nn/flat_parameters.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace iswitch::rl {

FlatParameters::FlatParameters(const std::vector<std::vector<std::int64_t>>& shapes) {
  const auto elements = [](const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  };
  std::int64_t total = 0;
  for (const auto& shape : shapes) total += elements(shape);
  weight_storage_ = at::zeros({total}, at::kFloat);
  gradient_storage_ = at::zeros({total}, at::kFloat);
  weights_ = {weight_storage_.data_ptr<float>(), static_cast<std::size_t>(total)};
  gradient_ = {gradient_storage_.data_ptr<float>(), static_cast<std::size_t>(total)};
  std::int64_t at = 0;
  for (const auto& shape : shapes) {
    at::Tensor tensor = weight_storage_.narrow(0, at, elements(shape)).view(shape).detach();
    tensor.requires_grad_(true);
    // A gradient that is there already is added to in place: this view is what keeps it in the flat
    // buffer.
    tensor.mutable_grad() = gradient_storage_.narrow(0, at, elements(shape)).view(shape);
    tensors_.push_back(tensor);
    at += elements(shape);
  }
}

void FlatParameters::clear_gradient() { std::fill(gradient_.begin(), gradient_.end(), 0.0F); }

}  // namespace iswitch::rl
