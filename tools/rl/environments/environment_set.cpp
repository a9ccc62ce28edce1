#include "tools/rl/environments/environment_set.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace iswitch::rl {
namespace {

enum Purpose : std::uint64_t { episode_starts = 1, action_noise = 2 };

}  // namespace

EnvironmentSet::EnvironmentSet(const EnvironmentFactory& make, std::size_t first, std::size_t count,
                               std::uint64_t seed)
    : first_(first), seed_(seed) {
  for (std::size_t i = 0; i < count; ++i) environments_.push_back(make());
  const auto shape = environments_.front()->observation_shape();
  observation_size_ = static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
  action_space_ = environments_.front()->action_space();
  observations_.resize(count * observation_size_);
  outcome_.steps.resize(count);
  outcome_.next_observations.resize(count * observation_size_);
  running_.resize(count);
  restart(0);
}

void EnvironmentSet::restart(std::uint64_t start) {
  starts_.clear();
  noise_.clear();
  finished_.clear();
  for (std::size_t i = 0; i < size(); ++i) {
    starts_.emplace_back(seed_ + start, episode_starts, first_ + i);
    noise_.emplace_back(seed_ + start, action_noise, first_ + i);
    running_[i] = {};
    environments_[i]->reset(starts_[i], row(observations_, i));
  }
}

const EnvironmentSet::Outcome& EnvironmentSet::step(std::span<const float> actions) {
  const std::size_t width = action_floats();
  for (std::size_t i = 0; i < size(); ++i) {
    const auto seen = row(outcome_.next_observations, i);
    const StepResult result = environments_[i]->step(actions.subspan(i * width, width), seen);
    outcome_.steps[i] = result;
    running_[i].reward += static_cast<double>(result.reward);
    running_[i].steps += 1;
    if (result.terminated || result.truncated) {
      finished_.push_back(std::exchange(running_[i], {}));
      environments_[i]->reset(starts_[i], row(observations_, i));
    } else {
      std::copy(seen.begin(), seen.end(), row(observations_, i).begin());
    }
  }
  return outcome_;
}

std::vector<FinishedEpisode> EnvironmentSet::take_finished() {
  return std::exchange(finished_, {});
}

}  // namespace iswitch::rl
