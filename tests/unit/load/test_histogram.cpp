// Quantiles against those of the sorted values.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tools/load/histogram.h"

using iswitch::load::Histogram;

namespace {

std::uint64_t right_quantile(const std::vector<std::uint64_t>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

TEST_CASE("an empty histogram") {
  const Histogram histogram;
  CHECK(histogram.count() == 0);
  CHECK(histogram.quantile(0.5) == 0);
  CHECK(histogram.largest() == 0);
  CHECK(histogram.mean() == 0);
}

TEST_CASE("one value is every quantile") {
  for (const std::uint64_t value : {0ull, 1ull, 63ull, 64ull, 65ull, 1'000ull, 123'456'789ull}) {
    Histogram histogram;
    histogram.add(value);
    for (const double share : {0.0, 0.5, 0.99, 1.0}) CHECK(histogram.quantile(share) == value);
  }
}

TEST_CASE("quantiles are at most 1.6 % above the right ones, and never below") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  // Over nine decades, as latencies of a busy machine are.
  std::lognormal_distribution<double> latency(9, 3);
  std::vector<std::uint64_t> values;
  Histogram histogram;
  for (int i = 0; i < 200'000; ++i) {
    const auto value = static_cast<std::uint64_t>(std::min(latency(random), 1e11));
    values.push_back(value);
    histogram.add(value);
  }
  std::sort(values.begin(), values.end());
  CHECK(histogram.count() == values.size());
  CHECK(histogram.largest() == values.back());
  for (const double share : {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const std::uint64_t right = right_quantile(values, share);
    const std::uint64_t found = histogram.quantile(share);
    CAPTURE(share, right, found);
    CHECK(found >= right);
    CHECK(static_cast<double>(found) <= static_cast<double>(right) * (1 + 1.0 / 63) + 0.5);
  }
}

TEST_CASE("every bucket's edges fall where they belong") {
  for (unsigned bit = 0; bit < 39; ++bit) {
    for (const std::int64_t offset : {-1, 0, 1}) {
      const auto value = static_cast<std::uint64_t>((std::int64_t{1} << bit) + offset);
      Histogram histogram;
      histogram.add(value);
      histogram.add(std::uint64_t{1} << 39);
      const std::uint64_t half = histogram.quantile(0.5);
      CAPTURE(value, half);
      CHECK(half >= value);
      CHECK(half <= value + value / 63);
    }
  }
}

TEST_CASE("values beyond the range count, and the largest stays itself") {
  Histogram histogram;
  histogram.add(5);
  histogram.add(UINT64_MAX);
  CHECK(histogram.count() == 2);
  CHECK(histogram.quantile(0.5) == 5);
  CHECK(histogram.largest() == UINT64_MAX);
}

TEST_CASE("histograms add up") {
  Histogram all, even, odd;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    all.add(i * i);
    (i % 2 == 0 ? even : odd).add(i * i);
  }
  even.add(odd);
  CHECK(even.count() == all.count());
  CHECK(even.mean() == Approx(all.mean()));
  for (const double share : {0.1, 0.5, 0.99, 1.0}) {
    CHECK(even.quantile(share) == all.quantile(share));
  }
}
