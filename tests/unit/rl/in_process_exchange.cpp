#include "tests/unit/rl/in_process_exchange.h"

#include <algorithm>
#include <chrono>

namespace iswitch::rl::test {

Failure Table::meet(std::size_t rank, std::span<float> values, int root,
                    std::uint64_t& seen_resets) {
  std::unique_lock lock(mutex_);
  const auto was_reset = [&] {
    if (seen_resets == resets_) return false;
    seen_resets = resets_;
    return true;
  };
  if (was_reset()) return {FailureKind::reset, "reset between operations"};
  given_.resize(size_);
  given_[rank].assign(values.begin(), values.end());
  ++arrived_;
  const std::uint64_t round = round_;
  if (arrived_ == size_) {
    result_.assign(values.size(), 0.0F);
    for (std::size_t i = 0; i < size_; ++i) {
      if (given_[i].size() != values.size()) return {FailureKind::exchange, "different lengths"};
      if (root >= 0 && i != static_cast<std::size_t>(root)) continue;
      for (std::size_t k = 0; k < values.size(); ++k) result_[k] += given_[i][k];
    }
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  } else {
    const bool ended = changed_.wait_for(lock, std::chrono::seconds(30),
                                         [&] { return round_ != round || seen_resets != resets_; });
    if (!ended) return {FailureKind::member_lost, "somebody did not come"};
    if (round_ == round && was_reset()) return {FailureKind::reset, "reset during an operation"};
  }
  std::copy(result_.begin(), result_.end(), values.begin());
  return {};
}

void Table::reset() {
  const std::lock_guard lock(mutex_);
  ++resets_;
  arrived_ = 0;
  changed_.notify_all();
}

}  // namespace iswitch::rl::test
