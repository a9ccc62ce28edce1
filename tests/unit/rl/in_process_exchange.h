// Workers as threads of one process, each with its own exchange onto a common table. Adds in rank
// order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/rl/exchanges/exchange.h"

namespace iswitch::rl::test {

/// What the threads meet at. reset() fails the operation under way, and the next one of those that
/// had none, as a switch's Reset does.
class Table {
 public:
  explicit Table(std::size_t size) : size_(size) {}

  std::size_t size() const { return size_; }
  /// Waits for all `size` vectors; then `values` are their sum in rank order (or the root's
  /// vector).
  Failure meet(std::size_t rank, std::span<float> values, int root, std::uint64_t& seen_resets);
  void reset();

 private:
  std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<float>> given_;
  std::vector<float> result_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0, resets_ = 0;
};

class InProcessExchange final : public Exchange {
 public:
  InProcessExchange(std::shared_ptr<Table> table, std::size_t rank)
      : table_(std::move(table)), rank_(rank) {}

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return table_->size(); }

 protected:
  Failure do_sum(std::span<float> values) override {
    return table_->meet(rank_, values, -1, seen_resets_);
  }
  Failure do_mean(std::span<float> values) override {
    Failure failure = table_->meet(rank_, values, -1, seen_resets_);
    for (float& value : values) value /= static_cast<float>(size());
    return failure;
  }
  Failure do_broadcast(std::span<float> values, std::size_t root) override {
    return table_->meet(rank_, values, static_cast<int>(root), seen_resets_);
  }

 private:
  std::shared_ptr<Table> table_;
  std::size_t rank_;
  std::uint64_t seen_resets_ = 0;
};

}  // namespace iswitch::rl::test
