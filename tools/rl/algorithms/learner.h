// From a worker's gradient to everybody's next weights. The one place where gradients meet the
// exchange.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "tools/rl/core/adam.h"
#include "tools/rl/core/failure.h"
#include "tools/rl/core/state_codec.h"
#include "tools/rl/exchanges/asynchronous.h"

namespace iswitch::rl {

/// In a synchronous run the weights are the common ones. In an asynchronous run the exchange keeps
/// those and calls apply(); the weights here are a copy, renewed with each step.
class Learner final : public Replica {
 public:
  /// The buffers belong to the network and outlive the learner; both have the same size.
  Learner(std::span<float> weights, std::span<float> gradient)
      : weights_(weights), gradient_(gradient), adam_(weights.size()) {}

  /// Averages the gradient over all workers in place, shortens it to `most_norm` (0: never) and
  /// steps. Asynchronous: gives the gradient away; rate and norm are those of begin().
  Failure step(Exchange& exchange, double rate, double most_norm);

  /// From common weights on, with this rate and norm throughout.
  Failure begin(AsynchronousExchange& exchange, double rate, double most_norm);
  /// Ends with common weights.
  Failure finish(AsynchronousExchange& exchange, bool& equal) {
    return exchange.finish(weights_, equal);
  }

  std::span<const float> weights() const { return weights_; }
  std::uint64_t updates() const override { return updates_.load(std::memory_order_relaxed); }

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

  void apply(std::span<float> weights, std::span<const float> mean_gradient) override;
  std::vector<float> save_optimiser() const override;
  void load_optimiser(std::span<const float> state) override;

 private:
  /// One step with a gradient that may be written; false when it is not finite.
  bool descend(std::span<float> weights, std::span<float> gradient, double rate, double most_norm);
  Failure diverged() const;

  std::span<float> weights_, gradient_;
  Adam adam_;
  std::atomic<std::uint64_t> updates_{0};  ///< steps of adam_, for other threads
  // Asynchronous, set by begin().
  double rate_ = 0.0, most_norm_ = 0.0;
  std::vector<float> scratch_;
  std::atomic<bool> diverged_{false};
};

}  // namespace iswitch::rl
