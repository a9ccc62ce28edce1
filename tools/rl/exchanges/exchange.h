// How workers share numbers: the one interface between an algorithm and whatever carries its
// gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tools/rl/core/failure.h"

namespace iswitch::rl {

struct ExchangeFigures {
  double seconds = 0.0;  ///< wall time spent inside calls, waiting for slower workers included
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  ///< of the vectors exchanged: each counted once, without any header
};

class AsynchronousExchange;

/// All workers make the same calls in the same order, with vectors of the same length. Every call
/// works in place and leaves the same bits on every worker. Every call ends: with a failure when
/// others do not take part.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;

  Failure sum(std::span<float> values);
  Failure mean(std::span<float> values);
  /// `values` of worker `root` end up in everybody's.
  Failure broadcast(std::span<float> values, std::size_t root);
  /// Itself, when it does not wait for the others: gradients go through it instead of mean().
  virtual AsynchronousExchange* asynchronous() { return nullptr; }
  /// Ends the membership; nothing may follow.
  virtual Failure leave() { return {}; }

  const ExchangeFigures& figures() const { return figures_; }
  /// What the exchange itself counted, as one JSON object.
  virtual std::string details_json() const { return "{}"; }

 protected:
  virtual Failure do_sum(std::span<float> values) = 0;
  virtual Failure do_mean(std::span<float> values) = 0;
  virtual Failure do_broadcast(std::span<float> values, std::size_t root) = 0;

  Failure timed(std::size_t floats, const std::function<Failure()>& call);

 private:
  ExchangeFigures figures_;
};

}  // namespace iswitch::rl
