// What a contribution costs in the pipeline, beside what it cannot do without: the addition of its
// floats and the sum of its checksum. Figures are medians over rounds, and tenths (`quiet`), which
// a busy machine disturbs least; `ratio` is packet / (addition + checksum). Sums are checked every
// round.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/pipeline/workload.h"

namespace iswitch::bench {
namespace {

using Clock = std::chrono::steady_clock;

double nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

/// The value below which `share` of them lie.
double quantile(std::vector<double>& values, double share) {
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

/// Core cycles a nanosecond now: a chain of dependent additions, one cycle each.
double cycles_a_nanosecond() {
  constexpr std::uint64_t links = 200'000;
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::uint64_t x = 1;
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < links; ++i) {
      x += i;
      benchmark::DoNotOptimize(x);
    }
    best = std::max(best, static_cast<double>(links) / nanoseconds_since(start));
  }
  return best;
}

/// Pushes what a round's preparation has touched out of the inner caches.
void flush_inner_caches() {
  static std::vector<std::uint8_t> scratch(std::size_t{4} << 20);
  for (std::size_t i = 0; i < scratch.size(); i += 64) ++scratch[i];
  benchmark::ClobberMemory();
}

struct Timings {
  std::vector<double> pipeline, additions, checksums;
};

template <class Work>
void time_into(std::vector<double>& timings, bool cold, Work&& work) {
  if (cold) flush_inner_caches();
  const auto start = Clock::now();
  work();
  timings.push_back(nanoseconds_since(start));
}

/// Arguments: segment bytes, members, 1 for more slots than the inner caches hold.
void contributions(benchmark::State& state) {
  const bool cold = state.range(2) != 0;
  Shape shape;
  shape.segment_bytes = static_cast<std::size_t>(state.range(0));
  shape.members = static_cast<unsigned>(state.range(1));
  const std::size_t total = cold ? std::size_t{32} << 20 : 128 * shape.segment_bytes;
  shape.slots = static_cast<std::uint32_t>(
      std::max<std::size_t>(1, total / (shape.segment_bytes * shape.members)));
  Workload workload(shape);
  Timings timings;

  for (auto _ : state) {
    workload.next_round();
    time_into(timings.pipeline, cold, [&] { workload.run_pipeline(); });
    if (const std::string trouble = workload.check(); !trouble.empty()) {
      state.SkipWithError(trouble.c_str());
      return;
    }
    time_into(timings.additions, cold, [&] { workload.run_additions(); });
    time_into(timings.checksums, cold, [&] {
      auto sum = workload.run_checksums();
      benchmark::DoNotOptimize(sum);
    });
    state.SetIterationTime(timings.pipeline.back() / 1e9);
  }

  const auto packets = static_cast<double>(workload.packets());
  // The median, and what the machine does when nobody disturbs it.
  constexpr double typical = 0.5;
  constexpr double quiet = 0.1;
  const double packet = quantile(timings.pipeline, typical) / packets;
  const double floor =
      (quantile(timings.additions, typical) + quantile(timings.checksums, typical)) / packets;
  const double quiet_packet = quantile(timings.pipeline, quiet) / packets;
  const double quiet_addition = quantile(timings.additions, quiet) / packets;
  const double quiet_checksum = quantile(timings.checksums, quiet) / packets;
  state.counters["ns_packet"] = packet;
  state.counters["ratio"] = packet / floor;
  state.counters["quiet_ns_packet"] = quiet_packet;
  state.counters["quiet_ns_addition"] = quiet_addition;
  state.counters["quiet_ns_checksum"] = quiet_checksum;
  state.counters["quiet_ratio"] = quiet_packet / (quiet_addition + quiet_checksum);
  state.counters["cycles_a_ns"] = cycles_a_nanosecond();
  state.counters["gbps_gradient"] = static_cast<double>(shape.segment_bytes) * 8 / packet;
  state.counters["slots"] = shape.slots;
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(workload.packets()));
}

BENCHMARK(contributions)
    ->ArgNames({"bytes", "members", "out_of_cache"})
    ->ArgsProduct({{1440, 8928}, {2, 4, 8, 32}, {0, 1}})
    ->MinTime(0.2)
    ->UseManualTime();

}  // namespace
}  // namespace iswitch::bench

BENCHMARK_MAIN();
