// A fully connected network with tanh between its layers, its parameters in a FlatParameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tools/rl/core/random.h"
#include "tools/rl/nn/flat_parameters.h"

namespace iswitch::rl {

class Mlp {
 public:
  /// Of a network with these widths, input first: each layer's weight {in, out} and bias {out}.
  static std::vector<std::vector<std::int64_t>> shapes(const std::vector<std::int64_t>& widths);

  /// Takes the parameters from number `first` on, which were made with shapes(widths).
  Mlp(FlatParameters& parameters, std::size_t first, std::size_t layers);

  /// {batch, in} to {batch, out}.
  at::Tensor forward(const at::Tensor& input) const;

  /// Orthogonal rows or columns, biases 0; the last layer's scaled by `last_gain`.
  void initialise(Random& random, float last_gain);

 private:
  struct Layer {
    at::Tensor weight, bias;
  };
  std::vector<Layer> layers_;
};

}  // namespace iswitch::rl
