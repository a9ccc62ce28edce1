#include "tools/rl/algorithms/advantages.h"

namespace iswitch::rl {

std::vector<float> advantages(const Experience& experience, float discount, float lambda) {
  const std::size_t total = experience.rewards.size();
  std::vector<float> result(total);
  for (std::size_t i = total; i-- > 0;) {
    const float next_value = experience.terminated[i] != 0 ? 0.0F : experience.next_values[i];
    const float surprise = experience.rewards[i] + discount * next_value - experience.values[i];
    const std::size_t next = i + experience.environments;
    const float later = experience.ended[i] != 0 || next >= total ? 0.0F : result[next];
    result[i] = surprise + discount * lambda * later;
  }
  return result;
}

}  // namespace iswitch::rl
