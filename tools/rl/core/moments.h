// Running mean and variance, shared by all workers.
//
// A worker sums what it saw since the last exchange as deviations from the shared mean. Those sums
// travel as float32 and every worker gets the same bits back, so that all merge the same numbers
// into the same state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/rl/core/state_codec.h"

namespace iswitch::rl {

class SharedMoments {
 public:
  explicit SharedMoments(std::size_t dimensions);

  std::size_t dimensions() const { return mean_.size(); }
  double count() const { return count_; }
  double mean(std::size_t dimension) const { return mean_[dimension]; }
  /// 1 until anything has been merged.
  double deviation(std::size_t dimension) const { return deviation_[dimension]; }

  /// Takes one value of every dimension into this worker's own sums.
  void observe(std::span<const float> values);

  /// Floats that contribution() writes and merge() reads.
  std::size_t contribution_floats() const { return 1 + 2 * dimensions(); }
  /// Writes this worker's sums since the last call and clears them.
  void contribution(std::span<float> out);
  /// Merges the sum of all workers' contributions.
  void merge(std::span<const float> sums);

  /// (value - mean) / deviation, kept within `limit`.
  void normalise(std::span<const float> values, std::span<float> out, float limit) const;

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  void refresh();

  double count_ = 0.0;
  std::vector<double> mean_, squares_;  ///< squares: sum of squared deviations from the mean
  std::vector<double> deviation_;
  double own_count_ = 0.0;
  std::vector<double> own_sum_, own_squares_;
};

}  // namespace iswitch::rl
