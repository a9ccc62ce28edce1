// Latencies by the thousand million in a few kilobytes: logarithmic buckets, 64 in each doubling,
// so that a quantile is too high by at most 1.6 %.
#pragma once

#include <array>
#include <cstdint>

namespace iswitch::load {

class Histogram {
 public:
  /// Nanoseconds, or any other unit; from 2^40 on all count as that.
  void add(std::uint64_t value);
  void add(const Histogram& other);

  std::uint64_t count() const { return count_; }
  /// The least value that is not exceeded by this share (0 to 1) of the values, rounded up to its
  /// bucket's end; 0 without values. quantile(1) is the largest value itself.
  std::uint64_t quantile(double share) const;
  std::uint64_t largest() const { return largest_; }
  double mean() const;

 private:
  static constexpr unsigned sub_bits = 6;
  static constexpr unsigned value_bits = 40;
  static constexpr std::size_t buckets = (value_bits - sub_bits + 1) << sub_bits;
  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t end_of(std::size_t bucket);

  std::array<std::uint64_t, buckets> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t largest_ = 0;
  double sum_ = 0;
};

}  // namespace iswitch::load
