// What the programs of a job's workers have in common: how one is started, ends and comes back, and
// what all of them must know.
#pragma once

#include <cstdint>

#include "tools/sim/host_node.h"
#include "tools/sim/random.h"
#include "tools/sim/workload.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

/// One job of a run, shared by its workers.
struct JobProgram {
  std::uint16_t job = 0;
  unsigned number = 0;  ///< among the run's jobs
  unsigned ranks = 0;
  std::uint32_t segment_bytes = 1440;
  WorkloadSpec workload;
  /// Job, key, sizes and timers; the rest is the worker's and the host's.
  agent::EngineOptions options;
  /// No operation that nobody has begun is begun any more.
  bool stopping = false;

 protected:
  JobProgram() = default;
  JobProgram(const JobProgram&) = default;
  JobProgram& operator=(const JobProgram&) = default;
  ~JobProgram() = default;
};

/// The program on a host that belongs to a job. Starts the engine, and again after a failure, until
/// it is told to stay away.
class Member : public Program, public EventHandler {
 public:
  Member(World& world, HostNode& host, JobProgram& program, unsigned rank, double slowness,
         Random random);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  virtual ~Member() = default;

  void start();
  void crash();  ///< and does not start again by itself
  /// Leaves in order; stays away.
  void leave(Time deadline);
  /// Comes back after leave() or crash().
  void come_back(Time at);
  /// Asks for a member id other than its last one, or for any.
  void set_wanted(wire::MemberId member) { wanted_ = member; }

  void run(agent::Engine& engine, Time now) final;
  Time next_run() const final { return next_run_; }
  void handle(const Event& event) final;

  HostNode& host() { return host_; }
  unsigned rank() const { return rank_; }
  std::uint64_t successes() const { return successes_; }
  const JobProgram& job() const { return job_; }
  /// Operations or pushes under way.
  virtual std::size_t in_flight() const = 0;
  /// A workload of a given number of operations has got through.
  virtual bool done() const = 0;

 protected:
  /// The engine is new: nothing is under way.
  virtual void begin() = 0;
  /// The engine runs (or is halted) and the program may do things.
  virtual void work(agent::Engine& engine, Time now) = 0;
  /// How late a completion may come beyond its deadline.
  Time slack(Time deadline) const;
  Time compute_time();

  World& world_;
  HostNode& host_;
  JobProgram& job_;
  unsigned rank_;
  double slowness_;
  Random random_;
  Time next_run_ = never;
  std::uint64_t successes_ = 0;

 private:
  enum Kind : std::uint32_t { start_kind = first_own_event };
  bool wanted_up_ = false;
  bool start_scheduled_ = false;
  bool leaving_ = false;  // nothing is begun by this engine any more
  wire::MemberId wanted_ = wire::no_member;
};

}  // namespace iswitch::sim
