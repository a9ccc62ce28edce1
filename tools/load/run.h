// A run: the workers join, all-reduce for a while, at a rate or as fast as they can, and leave. One
// thread moves everything.
#pragma once

#include <functional>
#include <string>

#include "tools/load/link.h"
#include "tools/load/worker.h"

namespace iswitch::load {

struct RunOptions {
  LinkOptions link;
  std::uint16_t job = 1;
  std::vector<std::uint8_t> key;
  std::uint64_t segments = 0;  ///< of each operation; 0: `bytes` says how long it is
  std::uint64_t bytes = 0;
  unsigned outstanding = 2;  ///< operations of a worker at a time
  double seconds = 5;
  double rate = 0;  ///< segments a second of every worker; 0: as fast as it goes
  Time join_timeout = 10 * second;
  Time operation_timeout = 10 * second;
  /// Called once a second, with a line.
  std::function<void(const std::string&)> progress;
};

enum class Outcome { good, unusable, not_joined, failed, wrong_sums };

struct Report {
  Outcome outcome = Outcome::good;
  std::string problem;  ///< one line, unless good
  std::uint32_t segment_bytes = 0;
  std::uint64_t operation_bytes = 0;
  std::uint64_t operation_segments = 0;
  double seconds = 0;      ///< from the first submission to the last result
  double cpu_seconds = 0;  ///< of this process meanwhile
  std::uint64_t operations = 0;
  std::uint64_t late = 0;  ///< submitted more than an interval after they were due, of all workers
  Tally tally;
  std::uint64_t contributions = 0, retransmissions = 0, duplicate_results = 0;
};

Report run(const RunOptions& options);

}  // namespace iswitch::load
