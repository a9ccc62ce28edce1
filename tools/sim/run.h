// One simulated run: a scenario in, a report out. Phases: trouble (links and chaos do their worst),
// settling (faults off, what is broken is mended), probing (every worker must get operations
// through again), stopping (nothing new is begun, everything under way ends), leaving, and then
// silence: no event, no frame, no buffer may be left.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/sim/chaos.h"
#include "tools/sim/checks.h"
#include "tools/sim/host_node.h"
#include "tools/sim/intruder.h"
#include "tools/sim/link.h"
#include "tools/sim/switch_node.h"
#include "tools/sim/worker.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

struct HostPlan {
  HostSpec host;
  unsigned job = 0;  ///< index in Scenario::jobs
  unsigned rank = 0;
  LinkSpec up, down;  ///< to and from the switch
  Time starts_at = 0;
};

struct JobPlan {
  control::JobConfig config;
  WorkloadSpec workload;
  bool full = true;  ///< see JobRules
  bool ecn = false;
  Time min_retransmit = 2 * millisecond;
};

struct Scenario {
  std::uint64_t seed = 0;
  SwitchSpec node;
  std::vector<JobPlan> jobs;
  std::vector<HostPlan> hosts;
  ChaosSpec chaos;
  Time intruder_interval = 0;  ///< mean time between an intruder's frames; 0: none
  wire::Endpoint intruder;
  Time trouble = 150 * millisecond;
  Time settle = 100 * millisecond;
  Time probe = 2 * second;             ///< at most
  std::uint64_t probe_operations = 3;  ///< that each worker must get through
  std::size_t trace_records = 2000;
};

struct Report {
  std::uint64_t seed = 0;
  std::vector<std::string> violations;  ///< the first ones, a line each
  std::uint64_t violation_count = 0;
  std::uint64_t hash = 0;  ///< of the event log
  std::uint64_t events = 0, frames = 0, operations = 0, failures = 0, elements = 0, acts = 0;
  std::map<std::string, std::uint64_t> errors;    ///< failed operations by error
  std::map<std::string, std::uint64_t> counters;  ///< the switch's pipelines
  LinkCounters links;                             ///< of all links together
  Time ended_at = 0;
  std::string trace;  ///< the last records, if something is broken

  bool broken(const std::string& property) const;
};

class Run {
 public:
  explicit Run(Scenario scenario);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Once. `trace_lines` of the report's trace.
  Report execute(std::size_t trace_lines = 60);

 private:
  void build();
  void build_intruder();
  void probe();
  void stop();
  void leave();
  void silence();

  Scenario scenario_;
  World world_;
  std::vector<std::unique_ptr<JobProgram>> programs_;
  Checks checks_;
  std::unique_ptr<SwitchNode> switch_;
  std::vector<std::unique_ptr<HostNode>> hosts_;
  std::vector<std::unique_ptr<Link>> up_, down_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Chaos> chaos_;
  std::unique_ptr<Intruder> intruder_;  // its links are the last ones
};

}  // namespace iswitch::sim
