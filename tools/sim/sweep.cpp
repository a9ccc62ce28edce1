#include "tools/sim/sweep.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_pipeline.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "tools/sim/run.h"

namespace iswitch::sim {

// A pipeline of three filters: seeds in order, runs in parallel, reports in order. So what is told
// and where it stops depend on the seeds alone.
std::optional<Report> sweep(const SweepOptions& options) {
  namespace tbb = oneapi::tbb;
  const unsigned threads = options.threads != 0
                               ? options.threads
                               : static_cast<unsigned>(tbb::info::default_concurrency());
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  std::optional<Report> failure;
  std::atomic<bool> stopped{false};
  std::uint64_t next = options.first;

  const auto seeds = tbb::make_filter<void, std::uint64_t>(
      tbb::filter_mode::serial_in_order, [&](tbb::flow_control& flow) -> std::uint64_t {
        const bool enough = options.enough && options.enough();
        if (next == options.end || enough || stopped.load(std::memory_order_relaxed)) {
          flow.stop();
          return 0;
        }
        return next++;
      });
  const auto runs = tbb::make_filter<std::uint64_t, std::shared_ptr<Report>>(
      tbb::filter_mode::parallel, [&](std::uint64_t seed) {
        Scenario scenario = options.scenario(seed);
        scenario.trace_records = std::max(scenario.trace_records, options.trace_lines);
        Run run(std::move(scenario));
        return std::make_shared<Report>(run.execute(options.trace_lines));
      });
  const auto reports = tbb::make_filter<std::shared_ptr<Report>, void>(
      tbb::filter_mode::serial_in_order, [&](const std::shared_ptr<Report>& report) {
        if (failure && !options.keep_going) return;
        if (options.done) options.done(*report);
        if (report->violations.empty() || failure) return;
        failure = *report;
        if (!options.keep_going) stopped.store(true, std::memory_order_relaxed);
      });
  tbb::parallel_pipeline(2 * std::size_t{threads}, seeds & runs & reports);
  return failure;
}

}  // namespace iswitch::sim
