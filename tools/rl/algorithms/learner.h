// From a worker's gradient to everybody's next weights. The one place where gradients meet the
// exchange.
#pragma once

#include <cstdint>
#include <span>

#include "tools/rl/core/adam.h"
#include "tools/rl/core/failure.h"
#include "tools/rl/core/state_codec.h"
#include "tools/rl/exchanges/exchange.h"

namespace iswitch::rl {

class Learner {
 public:
  /// The buffers belong to the network and outlive the learner; both have the same size.
  Learner(std::span<float> weights, std::span<float> gradient)
      : weights_(weights), gradient_(gradient), adam_(weights.size()) {}

  /// Averages the gradient over all workers in place, shortens it to `most_norm` (0: never) and
  /// steps.
  Failure step(Exchange& exchange, double rate, double most_norm);

  std::span<const float> weights() const { return weights_; }
  std::uint64_t updates() const { return adam_.steps(); }

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  std::span<float> weights_, gradient_;
  Adam adam_;
};

}  // namespace iswitch::rl
