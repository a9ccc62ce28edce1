#include "tools/rl/core/moments.h"

#include <algorithm>
#include <cmath>

namespace iswitch::rl {

SharedMoments::SharedMoments(std::size_t dimensions)
    : mean_(dimensions, 0.0),
      squares_(dimensions, 0.0),
      deviation_(dimensions, 1.0),
      own_sum_(dimensions, 0.0),
      own_squares_(dimensions, 0.0) {}

void SharedMoments::observe(std::span<const float> values) {
  own_count_ += 1.0;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double away = static_cast<double>(values[i]) - mean_[i];
    own_sum_[i] += away;
    own_squares_[i] += away * away;
  }
}

void SharedMoments::contribution(std::span<float> out) {
  out[0] = static_cast<float>(own_count_);
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    out[1 + 2 * i] = static_cast<float>(own_sum_[i]);
    out[2 + 2 * i] = static_cast<float>(own_squares_[i]);
  }
  own_count_ = 0.0;
  std::fill(own_sum_.begin(), own_sum_.end(), 0.0);
  std::fill(own_squares_.begin(), own_squares_.end(), 0.0);
}

void SharedMoments::merge(std::span<const float> sums) {
  const double added = sums[0];
  if (!(added > 0.0)) return;
  const double total = count_ + added;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double shift = static_cast<double>(sums[1 + 2 * i]) / added;
    const double around_shifted =
        std::max(0.0, static_cast<double>(sums[2 + 2 * i]) - added * shift * shift);
    squares_[i] += around_shifted + shift * shift * count_ * added / total;
    mean_[i] += shift * added / total;
  }
  count_ = total;
  refresh();
}

void SharedMoments::refresh() {
  if (!(count_ > 0.0)) return;
  for (std::size_t i = 0; i < mean_.size(); ++i)
    deviation_[i] = std::sqrt(squares_[i] / count_ + 1e-8);
}

void SharedMoments::normalise(std::span<const float> values, std::span<float> out,
                              float limit) const {
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double scaled = (static_cast<double>(values[i]) - mean_[i]) / deviation_[i];
    out[i] = std::clamp(static_cast<float>(scaled), -limit, limit);
  }
}

void SharedMoments::save(StateWriter& writer) const {
  writer.put(count_);
  for (const double value : mean_) writer.put(value);
  for (const double value : squares_) writer.put(value);
}

void SharedMoments::load(StateReader& reader) {
  count_ = reader.get_double();
  for (double& value : mean_) value = reader.get_double();
  for (double& value : squares_) value = reader.get_double();
  own_count_ = 0.0;
  std::fill(own_sum_.begin(), own_sum_.end(), 0.0);
  std::fill(own_squares_.begin(), own_squares_.end(), 0.0);
  refresh();
}

}  // namespace iswitch::rl
