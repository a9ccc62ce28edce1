#include "tools/rl/worker/generation.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tools/rl/core/digest.h"

namespace iswitch::rl {
namespace {

constexpr std::size_t floats_per_count = 3;

/// `own` in this worker's place, the others' zero: the sum over all workers is everybody's row.
std::vector<float> row_with(const Exchange& exchange, std::span<const float> own) {
  std::vector<float> row(exchange.size() * own.size(), 0.0F);
  std::copy(own.begin(), own.end(),
            row.begin() + static_cast<std::ptrdiff_t>(exchange.rank() * own.size()));
  return row;
}

}  // namespace

Failure begin_generation(Exchange& exchange, Algorithm& algorithm) {
  StateWriter count;
  count.put(algorithm.updates());
  std::vector<float> counts = row_with(exchange, count.values());
  if (Failure failure = exchange.sum(counts)) return failure;
  std::size_t root = 0;
  std::uint64_t most = 0;
  for (std::size_t rank = 0; rank < exchange.size(); ++rank) {
    const auto own = std::span(counts).subspan(rank * floats_per_count, floats_per_count);
    StateReader reader(own);
    const std::uint64_t updates = reader.get_count();
    if (updates > most) {
      most = updates;
      root = rank;
    }
  }

  StateWriter state;
  algorithm.save(state);
  if (Failure failure = exchange.broadcast(state.values(), root)) return failure;
  StateReader reader(state.values());
  return algorithm.load(reader);
}

Failure compare_weights(Exchange& exchange, const Algorithm& algorithm, bool& equal) {
  const std::string digest = weights_digest(algorithm.weights());
  std::vector<float> own;
  for (std::size_t at = 0; at < digest.size(); at += 4)
    own.push_back(static_cast<float>(std::stoul(digest.substr(at, 4), nullptr, 16)));
  std::vector<float> all = row_with(exchange, own);
  if (Failure failure = exchange.sum(all)) return failure;
  equal = true;
  for (std::size_t rank = 0; rank < exchange.size(); ++rank) {
    const auto theirs = std::span(all).subspan(rank * own.size(), own.size());
    const bool absent =
        std::all_of(theirs.begin(), theirs.end(), [](float part) { return part == 0.0F; });
    equal = equal && (absent || std::equal(own.begin(), own.end(), theirs.begin()));
  }
  return {};
}

}  // namespace iswitch::rl
