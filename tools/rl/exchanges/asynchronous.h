// Exchanges that do not wait for slower workers. The exchange keeps the weights that all workers
// have in common, and whoever trains computes on copies of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/rl/core/failure.h"
#include "tools/rl/exchanges/exchange.h"

namespace iswitch::rl {

/// What an asynchronous exchange does to the common weights. Equal calls must have equal effects,
/// bit for bit, on all workers. Called on the exchange's threads, never two calls at once.
class Replica {
 public:
  virtual ~Replica() = default;
  Replica() = default;
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// One step of the optimiser with the mean of some workers' gradients.
  virtual void apply(std::span<float> weights, std::span<const float> mean_gradient) = 0;
  /// The optimiser's state, for a worker that takes this one's weights.
  virtual std::vector<float> save_optimiser() const = 0;
  virtual void load_optimiser(std::span<const float> state) = 0;
  /// Steps made so far, by the weights that load_optimiser() brought too.
  virtual std::uint64_t updates() const = 0;
};

/// Its sums, means and broadcasts are those of this worker alone: what is not a gradient stays each
/// worker's own.
class AsynchronousExchange : public Exchange {
 public:
  AsynchronousExchange* asynchronous() override { return this; }

  /// Begins with the weights of one of the workers; `weights` become them. `replica` outlives
  /// finish().
  virtual Failure start(Replica& replica, std::span<float> weights) = 0;
  /// Gives a gradient computed on what the last call left in `weights`, unless it is too old by
  /// now; `weights` become the newest.
  Failure step(std::span<const float> gradient, std::span<float> weights);
  /// Nothing more is given. Waits until all workers have finished and hold the same updates;
  /// `weights` become those, `equal` tells whether they are the same bits everywhere.
  virtual Failure finish(std::span<float> weights, bool& equal) = 0;
  /// Some worker has finished: the others should too.
  virtual bool others_finish() = 0;

  /// Numbers of this worker that a newcomer should start with (normalisers and the like), and what
  /// start() got of them, empty where there was nobody to take them from.
  virtual void offer(std::vector<float> numbers) = 0;
  virtual const std::vector<float>& offered() const = 0;

 protected:
  Failure do_sum(std::span<float>) override { return {}; }
  Failure do_mean(std::span<float>) override { return {}; }
  Failure do_broadcast(std::span<float>, std::size_t) override { return {}; }
  virtual Failure do_step(std::span<const float> gradient, std::span<float> weights) = 0;
};

}  // namespace iswitch::rl
