// What an algorithm sees of a task. One object is one episode under way; a worker has several.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/rl/core/random.h"

namespace iswitch::rl {

/// `discrete`: one of `size` choices, given as action[0]. Otherwise `size` numbers in [-1, 1].
struct ActionSpace {
  bool discrete = false;
  std::size_t size = 0;
};

struct StepResult {
  float reward = 0.0F;
  bool terminated = false;  ///< the episode ended by the task's own rules: nothing follows
  bool truncated = false;   ///< it was cut off by the time limit: more would have followed
};

class Environment {
 public:
  virtual ~Environment() = default;
  Environment() = default;
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  /// The observation's extent, outermost first: {12}, or {frames, height, width}.
  virtual std::vector<std::int64_t> observation_shape() const = 0;
  virtual ActionSpace action_space() const = 0;
  /// Starts an episode and writes its first observation. All randomness comes from `random`.
  virtual void reset(Random& random, std::span<float> observation) = 0;
  /// One step; writes what is seen after it, also when the episode ended. Actions out of range are
  /// clipped.
  virtual StepResult step(std::span<const float> action, std::span<float> observation) = 0;
};

/// Makes one more environment of a kind. What they can share (a model) is shared by the factory.
using EnvironmentFactory = std::function<std::unique_ptr<Environment>()>;

}  // namespace iswitch::rl
