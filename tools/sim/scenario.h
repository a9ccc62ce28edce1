// What one simulated run is about: switches in a tree, workers at them, cables, jobs, workload and
// trouble. Made from a file (scenario_file.h), from a seed (random_scenario.h) or by hand.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/sim/chaos.h"
#include "tools/sim/faults.h"
#include "tools/sim/host_node.h"
#include "tools/sim/link.h"
#include "tools/sim/switch_node.h"
#include "tools/sim/workload.h"

namespace iswitch::sim {

/// Both directions of a cable; up is towards the root.
struct CableSpec {
  LinkSpec up, down;
};

struct SwitchPlan {
  SwitchSpec node;
  std::optional<unsigned> parent;  ///< an earlier switch of the list; none: a root
  CableSpec cable;                 ///< to the parent
};

struct HostPlan {
  HostSpec host;
  unsigned node = 0;  ///< index of its switch
  unsigned job = 0;   ///< index in Scenario::jobs
  unsigned rank = 0;
  CableSpec cable;
  Time starts_at = 0;
  double slowness = 1;       ///< factor on the compute time: a straggler's is above 1
  bool apply_twice = false;  ///< a planted bug: it applies an update twice now and then
};

struct JobPlan {
  /// As at every switch; `members` is worked out for each (jobs_at), base_round is the root's.
  control::JobConfig config;
  std::map<unsigned, std::uint16_t> thresholds;  ///< by switch, where it is not config's
  WorkloadSpec workload;
  bool full = true;                  ///< see JobRules
  bool unbroken = false;             ///< the same
  Time resume_within = 10 * second;  ///< the agents' (EngineOptions)
  bool ecn = false;
  Time min_retransmit = 2 * millisecond;
};

struct Scenario {
  std::string name;
  std::uint64_t seed = 0;
  std::vector<SwitchPlan> switches;  ///< parents first
  std::vector<JobPlan> jobs;
  std::vector<HostPlan> hosts;
  ChaosSpec chaos;
  std::vector<PlannedFault> faults;
  Time intruder_interval = 0;  ///< mean time between an intruder's frames; 0: none
  unsigned intruder_at = 0;    ///< its switch
  /// Faults of every kind happen until then. It ends earlier when a workload of a given number of
  /// operations is done.
  Time trouble = 150 * millisecond;
  /// Chaos begins, and that time counts, when all workers have been in their jobs for a while.
  bool when_all_run = false;
  Time settle = 100 * millisecond;
  Time probe = 2 * second;             ///< at most
  std::uint64_t probe_operations = 3;  ///< that each worker must get through
  std::size_t trace_records = 2000;
};

/// Adds a switch with addresses of its own; gives its index.
unsigned add_switch(Scenario& scenario, std::string name, std::optional<unsigned> parent,
                    const CableSpec& cable = {});
/// Adds a worker of a job; its rank is the number of the job's workers so far.
HostPlan& add_worker(Scenario& scenario, std::string name, unsigned node, unsigned job,
                     const CableSpec& cable = {});

/// Workers of a job.
unsigned ranks_of(const Scenario& scenario, unsigned job);
/// The jobs that a switch runs: those with workers below it. A job's members there are its workers
/// and the children that run it.
std::vector<control::JobConfig> jobs_at(const Scenario& scenario, unsigned node);
/// Payload buffers that the jobs of a switch may need at the same time.
std::size_t buffers_needed(const std::vector<control::JobConfig>& jobs);

}  // namespace iswitch::sim
