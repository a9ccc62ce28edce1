// What a worker tells while it runs and at its end.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tools/rl/algorithms/algorithm.h"
#include "tools/rl/core/failure.h"
#include "tools/rl/worker/options.h"

namespace iswitch::rl {

/// Of one iteration; times in seconds, sums since the worker's start.
struct ProgressRow {
  std::uint64_t iteration = 0, updates = 0, steps = 0;
  double seconds = 0.0;
  double compute = 0.0;   ///< everything but the exchange
  double exchange = 0.0;  ///< inside exchange calls
  double wait = 0.0;      ///< of it, more than the worker that spent least: waiting for slower ones
  std::uint64_t bytes = 0, exchanges = 0;
  std::uint64_t episodes = 0;  ///< finished so far
  double episode_return =
      0.0;  ///< mean of the last episodes of all workers; 0 while there are none
  double episode_length = 0.0;
};

struct RunFigures {
  std::size_t rank = 0, size = 1;
  std::size_t gradient_bytes = 0;
  std::uint64_t generations = 0;
  double cpu_seconds = 0.0;
  std::string weights_digest;
  bool equal_weights = false;
  std::string exchange_details;  ///< JSON
  Parameters parameters;
  std::vector<ProgressRow> rows;
};

/// Writes one line an iteration.
class ProgressFile {
 public:
  /// An empty name writes nothing.
  Failure open(const std::string& name);
  void write(const ProgressRow& row);

 private:
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdout) std::fclose(file);
    }
  };
  std::unique_ptr<std::FILE, Close> file_;
};

Failure write_figures(const WorkerOptions& options, const RunFigures& figures);

/// For people, one line.
std::string describe(const ProgressRow& row);

}  // namespace iswitch::rl
