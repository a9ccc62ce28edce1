#include "tools/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace iswitch::load {

std::size_t Histogram::bucket_of(std::uint64_t value) {
  value = std::min(value, (std::uint64_t{1} << value_bits) - 1);
  constexpr std::uint64_t linear = std::uint64_t{1} << sub_bits;
  if (value < linear) return value;
  // Values of 2^(sub_bits + n) and above, below twice that: steps of 2^n.
  const auto shift = static_cast<unsigned>(std::bit_width(value)) - sub_bits - 1;
  return (std::size_t{shift} << sub_bits) + (value >> shift);
}

std::uint64_t Histogram::end_of(std::size_t bucket) {
  constexpr std::size_t linear = std::size_t{1} << sub_bits;
  if (bucket < linear) return bucket;
  const std::size_t shift = (bucket >> sub_bits) - 1;
  const std::uint64_t top = linear + (bucket & (linear - 1));
  return ((top + 1) << shift) - 1;
}

void Histogram::add(std::uint64_t value) {
  ++counts_[bucket_of(value)];
  ++count_;
  largest_ = std::max(largest_, value);
  sum_ += static_cast<double>(value);
}

void Histogram::add(const Histogram& other) {
  for (std::size_t i = 0; i < buckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  largest_ = std::max(largest_, other.largest_);
  sum_ += other.sum_;
}

std::uint64_t Histogram::quantile(double share) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(count_));
  const auto rank = std::max<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    below += counts_[i];
    if (below >= rank) return std::min(end_of(i), largest_);
  }
  return largest_;
}

double Histogram::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

}  // namespace iswitch::load
