// What a worker needs of an algorithm. One object trains one network on one worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tools/rl/core/failure.h"
#include "tools/rl/core/parameters.h"
#include "tools/rl/core/state_codec.h"
#include "tools/rl/environments/environment.h"
#include "tools/rl/exchanges/asynchronous.h"

namespace iswitch::rl {

struct AlgorithmContext {
  EnvironmentFactory environment;
  Parameters parameters;
  std::uint64_t seed = 1;
  std::size_t rank = 0, size = 1;  ///< this worker among all
};

/// Of one iteration, over all workers: the same on every worker.
struct IterationFigures {
  std::uint64_t steps = 0;     ///< of the environments
  std::uint64_t episodes = 0;  ///< finished
  double return_sum = 0.0;     ///< of the finished episodes
  double length_sum = 0.0;     ///< likewise, in steps
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

  virtual std::span<const float> weights() const = 0;
  /// Gradients applied to the weights since training began.
  virtual std::uint64_t updates() const = 0;
  virtual std::uint64_t iterations() const = 0;

  /// Everything that must be equal on all workers. load() also gives up what was under way
  /// (episodes, batches).
  virtual void save(StateWriter& writer) const = 0;
  virtual Failure load(StateReader& reader) = 0;

  /// The same for an asynchronous exchange: begins with weights that all workers have in common...
  virtual Failure begin(AsynchronousExchange& exchange) = 0;
  /// ... and ends so. `equal`: the same bits everywhere.
  virtual Failure finish(AsynchronousExchange& exchange, bool& equal) = 0;

  /// Gathers experience and learns from it. `shared` are the caller's own numbers: the algorithm
  /// sums them over all workers along with its own, once an iteration. After a failure only load()
  /// may follow.
  virtual Failure iterate(Exchange& exchange, std::span<float> shared,
                          IterationFigures& figures) = 0;
};

}  // namespace iswitch::rl
