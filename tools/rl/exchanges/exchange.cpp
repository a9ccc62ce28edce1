#include "tools/rl/exchanges/exchange.h"

#include <chrono>

#include "tools/rl/exchanges/asynchronous.h"

namespace iswitch::rl {

Failure Exchange::timed(std::size_t floats, const std::function<Failure()>& call) {
  const auto start = std::chrono::steady_clock::now();
  Failure failure = call();
  figures_.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  figures_.calls += 1;
  figures_.bytes += floats * sizeof(float);
  return failure;
}

Failure Exchange::sum(std::span<float> values) {
  return timed(values.size(), [this, values] { return do_sum(values); });
}

Failure Exchange::mean(std::span<float> values) {
  return timed(values.size(), [this, values] { return do_mean(values); });
}

Failure AsynchronousExchange::step(std::span<const float> gradient, std::span<float> weights) {
  return timed(gradient.size(), [this, gradient, weights] { return do_step(gradient, weights); });
}

Failure Exchange::broadcast(std::span<float> values, std::size_t root) {
  return timed(values.size(), [this, values, root] { return do_broadcast(values, root); });
}

}  // namespace iswitch::rl
