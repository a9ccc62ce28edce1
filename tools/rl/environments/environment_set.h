// A worker's environments, stepped together so that the network sees them as one batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tools/rl/core/random.h"
#include "tools/rl/environments/environment.h"

namespace iswitch::rl {

struct FinishedEpisode {
  double reward = 0.0;  ///< the episode's return, undiscounted
  std::uint32_t steps = 0;
};

class EnvironmentSet {
 public:
  /// Environments `first` to `first` + `count` - 1 of the whole job: each has its own random
  /// numbers, so that how they are spread over workers does not change what they do.
  EnvironmentSet(const EnvironmentFactory& make, std::size_t first, std::size_t count,
                 std::uint64_t seed);

  std::size_t size() const { return environments_.size(); }
  std::size_t observation_size() const { return observation_size_; }
  ActionSpace action_space() const { return action_space_; }
  std::size_t action_floats() const { return action_space_.discrete ? 1 : action_space_.size; }

  /// Starts a new episode in every environment, with the noise of start number `start` (a
  /// generation's).
  void restart(std::uint64_t start);

  /// What is seen now: size() x observation_size().
  std::span<const float> observations() const { return observations_; }

  struct Outcome {
    std::vector<StepResult> steps;
    /// What was seen after the step, before a new episode began: size() x observation_size().
    std::vector<float> next_observations;
  };
  /// actions: size() x action_floats(). Environments whose episode ended start the next.
  const Outcome& step(std::span<const float> actions);

  /// Random numbers of one environment, for the exploration noise of its actions.
  Random& noise(std::size_t environment) { return noise_[environment]; }

  /// Episodes finished since the last call.
  std::vector<FinishedEpisode> take_finished();

 private:
  std::span<float> row(std::vector<float>& rows, std::size_t index) const {
    return std::span(rows).subspan(index * observation_size_, observation_size_);
  }

  std::size_t first_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<Environment>> environments_;
  std::size_t observation_size_ = 0;
  ActionSpace action_space_;
  std::vector<Random> starts_, noise_;
  std::vector<FinishedEpisode> running_, finished_;
  std::vector<float> observations_;
  Outcome outcome_;
};

}  // namespace iswitch::rl
