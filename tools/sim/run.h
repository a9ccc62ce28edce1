// One simulated run: a scenario in, a report out. Phases: trouble (links and chaos do their worst),
// settling (faults off, what is broken is mended), probing (every worker must get operations
// through again), stopping (nothing new is begun, everything under way ends, replicas are
// compared), leaving, and then silence: no event, no frame, no buffer may be left.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/sim/async_worker.h"
#include "tools/sim/chaos.h"
#include "tools/sim/checks.h"
#include "tools/sim/faults.h"
#include "tools/sim/host_node.h"
#include "tools/sim/intruder.h"
#include "tools/sim/link.h"
#include "tools/sim/report.h"
#include "tools/sim/scenario.h"
#include "tools/sim/splitter.h"
#include "tools/sim/switch_node.h"
#include "tools/sim/worker.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

class Run {
 public:
  explicit Run(Scenario scenario);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// The cables' names, in the order of the tap's tags: 2 i is cable i upwards, 2 i + 1 downwards.
  std::vector<std::string> cables() const;
  /// Before execute(): `tap` sees what leaves this cable.
  void tap(std::size_t cable, LinkTap& tap);

  /// Once. `trace_lines` of the report's trace.
  Report execute(std::size_t trace_lines = 60);

 private:
  struct Cable {
    std::string name;
    unsigned node = 0;               // the switch at its upper end
    std::unique_ptr<Link> up, down;  // down: null where a host shares another one's
  };
  // A job, of either mode.
  struct Job {
    std::unique_ptr<SyncProgram> sync;
    std::unique_ptr<AsyncProgram> async;
    std::unique_ptr<AsyncChecks> async_checks;
    JobProgram& program() { return sync ? static_cast<JobProgram&>(*sync) : *async; }
  };

  void build();
  void build_job(unsigned index);
  void build_switch(unsigned index);
  void build_host(unsigned index);
  void build_intruder();
  void build_chaos();
  void connect_switch(unsigned index);
  void connect_host(unsigned index);
  std::uint16_t number_of(unsigned node) const { return switches_[node]->number(); }

  void wait_for_all();
  void work(Time until);
  void set_faults_off();
  void probe();
  void stop();
  bool bits_may_be_wrong(const Job& job) const;
  void settle_replicas();
  bool replicas_equal(const Job& job) const;
  void leave();
  void silence();
  std::string state_of(std::size_t host) const;
  Report report(std::size_t trace_lines);
  void describe_jobs(Report& report);

  Scenario scenario_;
  World world_;
  Checks checks_;
  std::vector<Job> jobs_;
  std::vector<std::unique_ptr<SwitchNode>> switches_;
  std::vector<std::unique_ptr<HostNode>> hosts_;
  std::vector<Cable> cables_;  // of switches, of hosts, and of the intruder
  std::vector<std::optional<std::size_t>> cable_of_switch_;  // none: a root
  std::vector<std::size_t> cable_of_host_;
  // Where a switch has more workers than ports, its last port leads to the rest of them.
  struct Shared {
    std::unique_ptr<Splitter> splitter;
    datapath::PortId port = 0;
    std::size_t cable = 0;  // whose `down` they share
  };
  std::vector<Shared> shared_;             // by switch
  std::vector<Splitter*> splitter_of_;     // by host; null: a port of its own
  std::vector<unsigned> workers_to_come_;  // by switch
  std::vector<std::unique_ptr<Member>> members_;
  std::unique_ptr<Chaos> chaos_;
  std::unique_ptr<PlannedFaults> faults_;
  std::unique_ptr<Intruder> intruder_;  // its cable is the last one
  Time worked_until_ = 0;
  std::uint64_t resumes_ = 0, handed_back_ = 0;
};

}  // namespace iswitch::sim
