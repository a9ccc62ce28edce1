// The program on a host that belongs to a synchronous job: issues the job's operations one after
// another, several in flight, with time to compute between them, and does after an error what a
// training program would do: start again where the job's stream starts again.
//
// What all workers of a job must agree on without talking (which operation comes next, how large it
// is) is a function of job, base round and index. A Reset gives a new base round, hence a new
// stream of operations that all start at its beginning.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tools/sim/checks.h"
#include "tools/sim/gradient.h"
#include "tools/sim/program.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

struct SyncProgram final : JobProgram {
  Operation operation(std::uint64_t seed, std::uint32_t base_round, std::uint32_t index);
  std::map<std::uint32_t, std::uint32_t> begun;  ///< operations begun, by base round

 private:
  /// Of the operations under way; expired ones are dropped now and then.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::weak_ptr<const std::vector<float>>> known_;
};

class Worker final : public Member {
 public:
  Worker(World& world, HostNode& host, SyncProgram& program, Checks& checks, unsigned rank,
         double slowness, Random random);

  void completed(const agent::Completion& completion, agent::Engine& engine, Time now) override;
  std::size_t in_flight() const override { return in_flight_.size(); }
  bool done() const override;

 private:
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

  void begin() override;
  void work(agent::Engine& engine, Time now) override;
  void submit(agent::Engine& engine, Time now);
  bool may_begin() const;
  void check_input(Pending& pending);

  SyncProgram& program_;
  Checks& checks_;
  std::vector<std::unique_ptr<Pending>> in_flight_;
  std::vector<std::unique_ptr<Pending>> spare_;
  bool in_stream_ = false;
  std::uint32_t base_round_ = 0;
  std::uint32_t next_index_ = 0;
  Time compute_until_ = 0;
  bool ended_ = false;         // this stream has failed: wait for another base round
  Time reset_ask_at_ = never;  // and ask for one if it does not come
};

}  // namespace iswitch::sim
