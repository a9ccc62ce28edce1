// Adam on one flat buffer. Every worker has its own; equal gradients in give equal weights out, bit
// for bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/rl/core/state_codec.h"

namespace iswitch::rl {

class Adam {
 public:
  explicit Adam(std::size_t parameters) : first_(parameters), second_(parameters) {}

  /// weights -= rate * the bias-corrected step for `gradient`. Sizes equal those given at
  /// construction.
  void step(std::span<float> weights, std::span<const float> gradient, double rate);
  std::uint64_t steps() const { return steps_; }

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  std::uint64_t steps_ = 0;
  std::vector<float> first_, second_;
};

}  // namespace iswitch::rl
