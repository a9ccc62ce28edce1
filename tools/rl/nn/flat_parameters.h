// All parameters of a network in one buffer and all gradients in another, so that one all-reduce in
// place exchanges a whole gradient and one loop applies it. The tensors of libtorch are views into
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace iswitch::rl {

class FlatParameters {
 public:
  explicit FlatParameters(const std::vector<std::vector<std::int64_t>>& shapes);

  /// Leaf tensors in the order of the shapes. backward() adds their gradients into gradient().
  const at::Tensor& tensor(std::size_t index) const { return tensors_[index]; }
  std::span<float> weights() { return weights_; }
  std::span<float> gradient() { return gradient_; }
  void clear_gradient();

 private:
  at::Tensor weight_storage_, gradient_storage_;
  std::vector<at::Tensor> tensors_;
  std::span<float> weights_, gradient_;
};

}  // namespace iswitch::rl
