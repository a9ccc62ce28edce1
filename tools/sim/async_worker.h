// The program on a host that belongs to an asynchronous job, as in the iSwitch paper: it computes a
// gradient on the weights it has, pushes it unless they are too old by then, and applies updates as
// they come. It takes weights from a peer when the engine says that its own do not follow any more;
// a function call and a delay stand for that transfer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tools/sim/async_checks.h"
#include "tools/sim/program.h"

namespace iswitch::sim {

class AsyncWorker;

struct AsyncProgram final : JobProgram {
  std::vector<AsyncWorker*> workers;
};

class AsyncWorker final : public Member {
 public:
  AsyncWorker(World& world, HostNode& host, AsyncProgram& program, AsyncChecks& checks,
              unsigned rank, double slowness, Random random);

  void completed(const agent::Completion& completion, agent::Engine& engine, Time now) override;
  std::size_t in_flight() const override { return in_flight_.size(); }
  bool done() const override;

  /// Its weights follow from all updates up to numbers().
  bool has_weights() const { return has_weights_; }
  std::uint32_t base_round() const { return numbers_.base_round; }
  const agent::UpdateNumbers& numbers() const { return numbers_; }
  std::span<const float> weights() const { return weights_; }
  /// A bug that the checks must find.
  void plant_apply_twice() { apply_twice_ = true; }

 private:
  struct Push {
    agent::OperationId id = 0;
    std::uint32_t serial = 0;
    std::uint32_t base_round =
        0;  ///< when it was submitted: a Reset may come before its end is seen
    Time submitted = 0, deadline = 0;
    std::vector<float> gradient;
  };

  void begin() override;
  void work(agent::Engine& engine, Time now) override;
  void enter(std::uint32_t base_round);
  void take_events(agent::Engine& engine, Time now);
  void catch_up(agent::Engine& engine, Time now);
  void ask_for_reset(agent::Engine& engine, Time now);
  void apply_updates(agent::Engine& engine, Time now);
  void compute(agent::Engine& engine, Time now);
  void push(agent::Engine& engine, Time now);
  bool is_ahead(const AsyncWorker& peer) const;
  const AsyncWorker* donor(std::uint32_t base_round);
  /// Updates that every segment has had at least.
  std::uint32_t version() const;
  void run_at(Time at);

  AsyncProgram& program_;
  AsyncChecks& checks_;
  std::vector<float> weights_;
  agent::UpdateNumbers numbers_;
  bool has_weights_ = false;
  std::optional<agent::Event> event_;  // weights are needed for it
  Time catch_up_at_ = never;
  Time alone_since_ = never;  // nobody has weights to give
  Time nap_until_ = 0;
  bool computing_ = false;
  std::uint32_t computed_on_ = 0;
  Time compute_until_ = 0;
  bool apply_twice_ = false;
  std::uint32_t pushes_ = 0;  // in this life
  std::vector<std::unique_ptr<Push>> in_flight_;
};

}  // namespace iswitch::sim
