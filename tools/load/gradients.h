// Integer-valued gradients whose exact sum is known: float32 adds them without rounding, in any
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace iswitch::load {

/// Two sets, for even and odd operations, that differ in every element: what an operation leaves
/// from the one before it, or gets of it, is wrong.
class Gradients {
 public:
  static constexpr std::size_t sets = 2;

  Gradients(std::uint16_t workers, std::size_t elements);

  std::span<const float> of(std::uint16_t worker, std::uint64_t operation) const {
    return inputs_[worker * sets + operation % sets];
  }
  std::span<const float> sum(std::uint64_t operation) const { return sums_[operation % sets]; }

  struct Verdict {
    std::uint64_t wrong = 0;  ///< elements
    std::size_t first = 0;    ///< the first of them
    float found = 0, expected = 0;
  };
  Verdict check(std::span<const float> result, std::uint64_t operation) const;

 private:
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> sums_;
};

}  // namespace iswitch::load
