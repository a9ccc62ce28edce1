// The program on a host that belongs to a job: issues the job's operations one after another,
// several in flight, with time to compute between them, and does after an error what a training
// program would do: start again where the job's stream starts again.
//
// What all workers of a job must agree on without talking (which operation comes next, how large it
// is) is a function of job, base round and index. A Reset gives a new base round, hence a new
// stream of operations that all start at its beginning.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tools/sim/checks.h"
#include "tools/sim/gradient.h"
#include "tools/sim/host_node.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

struct WorkloadSpec {
  std::uint32_t max_elements = 4000;
  unsigned depth = 2;                ///< operations in flight
  Time compute = 100 * microsecond;  ///< mean time between operations
  double noise = 0.2;                ///< of the compute time
  Time deadline = 100 * millisecond;
  double broadcasts = 0.1, barriers = 0.1, means = 0.1, zeros = 0.2;  ///< shares of operations
  double mistakes = 0;  ///< a worker issues another operation than the rest of the job
  Time join_patience = 500 * millisecond;
  Time restart_after = 20 * millisecond;  ///< a failed join or membership
};

/// One job of a run, shared by its workers.
struct JobProgram {
  std::uint16_t job = 0;
  unsigned number = 0;  ///< among the run's jobs
  unsigned ranks = 0;
  std::uint32_t segment_bytes = 1440;
  WorkloadSpec workload;
  agent::EngineOptions
      options;  ///< job, key, sizes and timers; the rest is the worker's and the host's
  /// No operation that nobody has begun is begun any more.
  bool stopping = false;
  std::map<std::uint32_t, std::uint32_t> begun;  ///< operations begun, by base round

  Operation operation(std::uint64_t seed, std::uint32_t base_round, std::uint32_t index) const;
};

class Worker final : public Program, public EventHandler {
 public:
  Worker(World& world, HostNode& host, JobProgram& program, Checks& checks, unsigned rank,
         Random random);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  void crash();  ///< and does not start again by itself
  /// Leaves in order; stays away.
  void leave(Time deadline);
  /// Comes back after leave() or crash().
  void come_back(Time at);

  /// Asks for a member id other than its last one, or for any.
  void set_wanted(wire::MemberId member) { wanted_ = member; }

  void run(agent::Engine& engine, Time now) override;
  void completed(const agent::Completion& completion, agent::Engine& engine, Time now) override;
  Time next_run() const override { return next_run_; }
  void handle(const Event& event) override;

  HostNode& host() { return host_; }
  unsigned rank() const { return rank_; }
  std::size_t in_flight() const { return in_flight_.size(); }
  std::uint64_t successes() const { return successes_; }
  const JobProgram& program() const { return program_; }

 private:
  enum Kind : std::uint32_t { start_kind = first_own_event };
  struct Pending {
    agent::OperationId id = 0;
    Operation operation;
    Time submitted = 0;
    Time deadline = 0;
    bool in_place = false;
    std::vector<float> input;  // one element more in front: float-aligned only
    std::vector<float> output;
    std::span<float> in() { return std::span(input).subspan(1); }
    std::span<float> out() { return in_place ? in() : std::span(output).subspan(1); }
  };

  void submit(agent::Engine& engine, Time now);
  bool may_begin() const;
  void check_input(Pending& pending);

  World& world_;
  HostNode& host_;
  JobProgram& program_;
  Checks& checks_;
  unsigned rank_;
  Random random_;
  bool wanted_up_ = false;
  bool start_scheduled_ = false;
  bool leaving_ = false;  // nothing is begun by this engine any more
  wire::MemberId wanted_ = wire::no_member;

  std::vector<std::unique_ptr<Pending>> in_flight_;
  std::vector<std::unique_ptr<Pending>> spare_;
  bool in_stream_ = false;
  std::uint32_t base_round_ = 0;
  std::uint32_t next_index_ = 0;
  Time compute_until_ = 0;
  bool ended_ = false;         // this stream has failed: wait for another base round
  Time reset_ask_at_ = never;  // and ask for one if it does not come
  Time next_run_ = never;
  std::uint64_t successes_ = 0;
};

}  // namespace iswitch::sim
