// What came of a run: values only, equal for equal seeds on any machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/sim/link.h"
#include "wire/units.h"

namespace iswitch::sim {

/// Times of a job's operations or pushes, from submission to completion.
struct Times {
  std::uint64_t count = 0;
  Time median = 0, high = 0, longest = 0;  ///< high: 99 of 100 took no longer
};
Times times_of(std::vector<Time> all);

struct JobReport {
  std::uint16_t id = 0;
  bool async = false;
  unsigned workers = 0;
  std::uint64_t completed = 0, failed = 0;  ///< operations or pushes, at single workers
  std::uint64_t gradient_bytes = 0;
  Times times;
  /// Synchronous: the longest time from the first worker's beginning an operation to the last one's
  /// completing it.
  Time longest_round = 0;
  std::uint64_t updates = 0, stale_dropped = 0, catch_ups = 0;  ///< asynchronous
  std::map<std::uint32_t, std::uint64_t> staleness;
  std::map<std::string, std::uint64_t> errors;  ///< failed ones by error
};

struct SwitchReport {
  std::string name;
  std::uint64_t frames = 0;  ///< arrived
  std::uint64_t starts = 0;
  std::uint64_t exhausted = 0;                    ///< no payload buffer
  std::map<std::string, std::uint64_t> counters;  ///< of the pipelines
};

struct CableReport {
  std::string name;
  LinkCounters up, down;
};

struct Report {
  std::string scenario;
  std::uint64_t seed = 0;
  std::vector<std::string> violations;  ///< the first ones, a line each
  std::uint64_t violation_count = 0;
  std::uint64_t hash = 0;  ///< of the event log
  std::uint64_t events = 0, frames = 0, operations = 0, failures = 0, elements = 0, acts = 0;
  /// Times that a worker went on after a restart, and results sent back for others then; of the
  /// programs that are there in the end.
  std::uint64_t resumes = 0, handed_back = 0;
  std::map<std::string, std::uint64_t> errors;    ///< failed operations and pushes by error
  std::map<std::string, std::uint64_t> counters;  ///< all switches' pipelines together
  std::map<std::string, std::uint64_t> faults;    ///< what happened, by kind
  LinkCounters links;                             ///< of all links together
  std::vector<JobReport> jobs;
  std::vector<SwitchReport> switches;
  std::vector<CableReport> cables;
  Time worked_until = 0;  ///< the end of trouble: the workload was done, or the time was up
  Time ended_at = 0;
  std::string trace;  ///< the last records, if something is broken

  bool broken(const std::string& property) const;
};

void add(LinkCounters& sum, const LinkCounters& one);

}  // namespace iswitch::sim
