#include "tools/load/gradients.h"

#include <cstring>

namespace iswitch::load {

namespace {

/// Every worker's share of the sum is its own, so that none can stand for another. The sum of 64 is
/// at most 65 x (1 + ... + 64) = 135,200: float32 holds every integer up to 2^24.
int value(unsigned worker, std::size_t element, std::size_t set) {
  const auto pattern = static_cast<int>((element * 7 + set * 13) % 61) + 1;
  const int share = static_cast<int>(worker) + 1;
  return (pattern + static_cast<int>(set) * 4) * share;
}

}  // namespace

Gradients::Gradients(std::uint16_t workers, std::size_t elements) {
  sums_.assign(sets, std::vector<float>(elements));
  for (unsigned worker = 0; worker < workers; ++worker) {
    for (std::size_t set = 0; set < sets; ++set) {
      std::vector<float>& input = inputs_.emplace_back(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        input[i] = static_cast<float>(value(worker, i, set));
        sums_[set][i] += input[i];
      }
    }
  }
}

Gradients::Verdict Gradients::check(std::span<const float> result, std::uint64_t operation) const {
  const std::span<const float> right = sum(operation);
  Verdict verdict;
  if (std::memcmp(result.data(), right.data(), right.size_bytes()) == 0) return verdict;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (result[i] == right[i]) continue;
    if (verdict.wrong++ == 0) {
      verdict.first = i;
      verdict.found = result[i];
      verdict.expected = right[i];
    }
  }
  return verdict;
}

}  // namespace iswitch::load
