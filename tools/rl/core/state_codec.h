// A worker's whole state as float32 values that survive a broadcast bit for bit.
//
// A switch adds floats: NaN payloads and the sign of zero do not survive that. So nothing is
// bit-cast: whole numbers and doubles are split into floats whose sum is exact, and a negative zero
// is written as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace iswitch::rl {

class StateWriter {
 public:
  void put(std::span<const float> values);
  /// Exact for every finite double whose parts stay within float32's normal range.
  void put(double value);
  void put(std::uint64_t value);
  std::vector<float>& values() { return values_; }

 private:
  std::vector<float> values_;
};

/// Reading past the end gives zeros and sets failed().
class StateReader {
 public:
  explicit StateReader(std::span<const float> values) : rest_(values) {}
  void get(std::span<float> out);
  double get_double();
  std::uint64_t get_count();
  /// True when more was read than there is.
  bool failed() const { return failed_; }
  std::size_t left() const { return rest_.size(); }

 private:
  float next();

  std::span<const float> rest_;
  bool failed_ = false;
};

}  // namespace iswitch::rl
