// Asynchronous jobs through the real pipeline and control.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <mutex>

#include "iswitch/async_trainer.h"
#include "tests/unit/agent/async_ranks.h"
#include "tests/unit/agent/c_rank.h"

using namespace iswitch;
using namespace iswitch::test;
using Clock = std::chrono::steady_clock;

TEST_CASE("pushes of all members become the same updates everywhere") {
  constexpr std::size_t ranks = 3, elements = 5'000, count = 40;
  const std::uint64_t seed = GENERATE(1, 2, 3, 4);
  INFO("seed " << seed);
  const PathFaults faults{.loss = 0.01, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.002};
  TestSwitch on({.jobs = {async_job(ranks)},
                 .shards = 2,
                 .to_switch = seed == 1 ? PathFaults{} : faults,
                 .to_members = seed == 1 ? PathFaults{} : faults,
                 .seed = seed});
  std::string problem;
  Agents agents = join_async(on, ranks, elements, problem, seed % 2 == 1);
  REQUIRE(problem.empty());
  REQUIRE(begin_all(agents) == well);
  std::vector<std::vector<float>> weights(ranks, std::vector<float>(elements, 0.0F));
  REQUIRE(on_each(ranks, [&](std::size_t rank) {
            return push_and_take(*agents[rank], rank, elements, count, weights[rank]);
          }) == well);
  // With the threshold at all members, that many updates hold every push of everybody.
  for (std::size_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (std::uint32_t k = 0; k < count; ++k) sum += sum_at(ranks, i, k);
    REQUIRE(weights[0][i] == sum);
  }
  CHECK(weights[1] == weights[0]);
  CHECK(weights[2] == weights[0]);
}

TEST_CASE("a member that fell behind takes a peer's weights and goes on") {
  constexpr std::size_t elements = 700;  // two segments
  TestSwitch on({.jobs = {async_job(2, 1)}});
  std::string problem;
  Agents agents = join_async(on, 2, elements, problem, false);
  REQUIRE(problem.empty());
  REQUIRE(begin_all(agents) == well);
  std::vector<float> ahead(elements, 0.0F), behind(elements, 0.0F);
  // The other one sleeps meanwhile.
  REQUIRE(push_and_take(*agents[0], 0, elements, 60, ahead) == well);

  SliceUpdate update;
  MemberEvent event;
  Arrived arrived = Arrived::nothing;
  std::vector<float> gradient(elements, 1.0F);
  for (const auto until = Clock::now() + 10s; arrived != Arrived::event && Clock::now() < until;) {
    const auto next = agents[1]->next(update, event, 20ms);
    REQUIRE(next);
    arrived = *next;
    agents[0]->progress();
  }
  REQUIRE(arrived == Arrived::event);
  CHECK(event.kind == MemberEventKind::gone);
  CHECK(agents[1]->needs_weights());
  const AgentError refused = agents[1]->push(gradient).wait();
  CHECK(refused.code == AgentErrorCode::gone);

  behind = ahead;
  UpdateNumbers numbers = agents[0]->numbers();
  UpdateNumbers wrong = numbers;
  ++wrong.base_round;
  CHECK(agents[1]->resume(wrong).code == AgentErrorCode::job_reset);
  REQUIRE_FALSE(agents[1]->resume(numbers));
  CHECK_FALSE(agents[1]->needs_weights());
  REQUIRE(on_each(2, [&](std::size_t rank) -> std::string {
            std::vector<float>& weights = rank == 0 ? ahead : behind;
            const auto until = Clock::now() + 10s;
            SliceUpdate slice;
            MemberEvent nothing;
            std::vector<float> ones(elements, 1.0F);
            Handle handle = agents[rank]->push(ones);
            for (int left = 4; left > 0;) {  // two pushes of two segments, one an update
              if (Clock::now() >= until) return "an update is missing";
              const auto next = agents[rank]->next(slice, nothing, 20ms);
              if (!next) return error_text(next.error());
              if (*next == Arrived::event) return nothing.text;
              if (*next == Arrived::nothing) continue;
              for (std::size_t i = 0; i < slice.values.size(); ++i)
                weights[slice.first + i] += slice.values[i];
              --left;
            }
            const AgentError error = handle.wait();
            return error ? error_text(error) : "";
          }) == well);
  CHECK(ahead == behind);
}

TEST_CASE("after a Reset all go on from one member's weights") {
  constexpr std::size_t ranks = 2, elements = 400;
  TestSwitch on({.jobs = {async_job(ranks)}});
  std::string problem;
  Agents agents = join_async(on, ranks, elements, problem);
  REQUIRE(problem.empty());
  REQUIRE(begin_all(agents) == well);
  std::vector<std::vector<float>> weights(ranks, std::vector<float>(elements, 0.0F));
  const auto go_on = [&] {
    return on_each(ranks, [&](std::size_t rank) {
      return push_and_take(*agents[rank], rank, elements, 5, weights[rank]);
    });
  };
  REQUIRE(go_on() == well);
  std::vector<float> alone(elements, 1.0F);
  Handle lost = agents[1]->push(alone);
  if (GENERATE(true, false))
    agents[0]->request_reset();
  else
    reset_job(on);
  CHECK(lost.wait().code == AgentErrorCode::job_reset);
  SliceUpdate update;
  MemberEvent event;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto arrived = agents[rank]->next(update, event, 5s);
    REQUIRE(arrived);
    REQUIRE(*arrived == Arrived::event);
    CHECK(event.kind == MemberEventKind::reset);
    REQUIRE_FALSE(agents[rank]->resume(agents[0]->numbers()));
  }
  weights[1] = weights[0];
  REQUIRE(go_on() == well);
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("a job of the other mode is refused in one line") {
  TestSwitch on({.jobs = {async_job(1, 0), job_of(1, 2)}});
  AgentOptions options = options_for(on, 0);
  auto sync = Agent::join(options);
  REQUIRE_FALSE(sync);
  CHECK(sync.error().code == AgentErrorCode::refused);
  CHECK(sync.error().text.find("asynchronous") != std::string::npos);
  options.job = 2;
  options.async_elements = 10;
  auto async = Agent::join(options);
  REQUIRE_FALSE(async);
  CHECK(async.error().code == AgentErrorCode::refused);
  options.job = 1;
  options.async_elements = 64 * 360 + 1;  // the job has 64 slots
  auto large = Agent::join(options);
  REQUIRE_FALSE(large);
  CHECK(large.error().text.find("slots") != std::string::npos);
}

TEST_CASE("a rank of the whole job is not the member id") {
  TestSwitch on({.jobs = {job_of(2)}});
  std::string problem;
  Agents agents = join_all(on, 2, problem, [](AgentOptions& options, std::size_t i) {
    options.rank = static_cast<std::uint16_t>(1000 + i);
    options.member = static_cast<std::uint16_t>(i);
  });
  REQUIRE(problem.empty());
  CHECK(agents[1]->rank() == 1001);
  CHECK(agents[1]->member() == 1);
  CHECK(on_each(2, [&](std::size_t i) -> std::string {
          std::vector<float> data(1'000, i == 1 ? 7.0F : 0.0F);
          if (const AgentError error = agents[i]->broadcast(data, 1001).wait())
            return error_text(error);
          return data == std::vector<float>(1'000, 7.0F) ? "" : "wrong data";
        }) == well);
  AgentOptions options = options_for(on, 1000);
  auto joined = Agent::join(options);
  REQUIRE_FALSE(joined);
  CHECK(joined.error().code == AgentErrorCode::bad_argument);
}

// ---- whole updates and snapshots

namespace {

SliceUpdate slice(std::uint32_t segment, std::uint32_t number, std::vector<float> values,
                  std::uint16_t workers = 1) {
  SliceUpdate update;
  update.segment = segment;
  update.first = segment * 2;
  update.number = number;
  update.workers = workers;
  update.values = std::move(values);
  return update;
}

}  // namespace

TEST_CASE("whole updates come in order, each slice divided by its own workers") {
  UpdateAssembler assembler(5, 2);
  REQUIRE(assembler.restart({0xFFFF'FFFF, {0xFFFF'FFFF, 0xFFFF'FFFF, 0xFFFF'FFFF}}, 0, {}));
  std::vector<float> mean(5);
  CHECK(assembler.add(slice(0, 0, {2, 4}, 2)));
  CHECK(assembler.add(slice(0, 1, {10, 20})));
  CHECK_FALSE(assembler.add(slice(0, 1, {10, 20})));  // a copy
  CHECK_FALSE(assembler.add(slice(0, 3, {10, 20})));  // a hole
  CHECK_FALSE(assembler.add(slice(1, 0, {1})));       // another length
  CHECK_FALSE(assembler.add(slice(3, 0, {1})));       // no such segment
  CHECK(assembler.add(slice(2, 0, {9}, 3)));
  CHECK_FALSE(assembler.take(mean));
  CHECK(assembler.add(slice(1, 0, {8, 16}, 4)));
  REQUIRE(assembler.take(mean));
  CHECK(mean == std::vector<float>{1, 2, 2, 4, 3});
  CHECK(assembler.version() == 1);
  CHECK_FALSE(assembler.take(mean));

  // Another goes on from here.
  UpdateAssembler other(5, 2);
  CHECK_FALSE(other.restart(assembler.numbers(), assembler.version(), {}));
  REQUIRE(other.restart(assembler.numbers(), assembler.version(), assembler.pending()));
  for (UpdateAssembler* one : {&assembler, &other}) {
    CHECK(one->add(slice(1, 1, {30, 40})));
    CHECK(one->add(slice(2, 1, {50})));
    REQUIRE(one->take(mean));
    CHECK(mean == std::vector<float>{10, 20, 30, 40, 50});
  }
}

TEST_CASE("snapshots survive their encoding, and nothing else passes for one") {
  TrainerSnapshot snapshot;
  snapshot.numbers = {7, {9, 8}};
  snapshot.version = 1;
  snapshot.weights = {1.5F, -0.0F, 3e-42F};
  snapshot.optimiser = {4};
  snapshot.pending = {{0, 9, {1, 2}}};
  std::vector<std::uint8_t> bytes = snapshot.encode();
  const auto back = TrainerSnapshot::decode(bytes);
  REQUIRE(back.has_value());
  CHECK(back->numbers.base_round == 7);
  CHECK(back->numbers.last == snapshot.numbers.last);
  CHECK(back->version == 1);
  CHECK(std::memcmp(back->weights.data(), snapshot.weights.data(), 12) == 0);
  CHECK(back->optimiser == snapshot.optimiser);
  REQUIRE(back->pending.size() == 1);
  CHECK(back->pending[0].values == snapshot.pending[0].values);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(TrainerSnapshot::decode(std::span(bytes).first(size)).has_value());
  bytes.push_back(0);
  CHECK_FALSE(TrainerSnapshot::decode(bytes).has_value());
  std::vector<std::uint8_t> huge = snapshot.encode();
  std::fill(huge.begin() + 20, huge.begin() + 28, 0xFF);  // a count
  CHECK_FALSE(TrainerSnapshot::decode(huge).has_value());
}

// ---- the training loop

namespace {

/// Stands for the connections between workers.
class Peers {
 public:
  void set(std::size_t rank, AsyncTrainer* trainer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (trainers_.size() <= rank) trainers_.resize(rank + 1);
    trainers_[rank] = trainer;
  }
  std::optional<TrainerSnapshot> from_others(std::size_t rank, std::uint32_t base_round) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::size_t peer = 0; peer < trainers_.size(); ++peer) {
      if (peer == rank || trainers_[peer] == nullptr) continue;
      auto snapshot = trainers_[peer]->snapshot();
      // Through bytes, as over a connection.
      if (snapshot && snapshot->numbers.base_round == base_round)
        return TrainerSnapshot::decode(snapshot->encode());
    }
    return std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::vector<AsyncTrainer*> trainers_;
};

/// A worker whose optimiser has a state: momentum.
struct TrainingWorker {
  TrainingWorker(Peers& its_peers, std::size_t its_rank, std::size_t elements,
                 std::unique_ptr<Agent> its_agent, AsyncTrainerOptions options = {})
      : peers(its_peers), rank(its_rank), agent(std::move(its_agent)), momentum(elements, 0.0F) {
    AsyncTrainerCallbacks callbacks;
    callbacks.apply = [this](std::span<float> weights, std::span<const float> mean) {
      for (std::size_t i = 0; i < weights.size(); ++i) {
        momentum[i] = 0.9F * momentum[i] + mean[i];
        weights[i] -= 0.01F * momentum[i];
      }
    };
    callbacks.save_optimiser = [this] { return momentum; };
    callbacks.load_optimiser = [this](std::span<const float> state) {
      momentum.assign(state.begin(), state.end());
    };
    callbacks.fetch = [this](CatchUp why, std::uint32_t base_round) -> Expected<Fetched> {
      catch_ups.push_back(why);
      if (auto snapshot = peers.from_others(rank, base_round)) return Fetched(std::move(*snapshot));
      const bool first = rank == 0 && (why == CatchUp::start || why == CatchUp::reset);
      if (first) return Fetched();
      AgentError error;
      error.code = AgentErrorCode::timed_out;
      error.text = "no peer has weights yet";
      return error;
    };
    std::vector<float> initial(elements, static_cast<float>(rank));  // differ before the start
    trainer = std::make_unique<AsyncTrainer>(*agent, initial, callbacks, options);
    peers.set(rank, trainer.get());
  }
  ~TrainingWorker() {
    peers.set(rank, nullptr);
    agent->leave();
    trainer.reset();
  }

  /// `count` gradients that depend on the weights.
  std::string train(std::size_t count) const {
    std::size_t done = 0;
    const AgentError error =
        trainer->run([&](std::span<const float> weights, std::span<float> gradient) {
          if (done++ == count) return false;
          for (std::size_t i = 0; i < weights.size(); ++i)
            gradient[i] = weights[i] - static_cast<float>((i + rank) % 7);
          return true;
        });
    return error ? error_text(error) : "";
  }

  Peers& peers;
  std::size_t rank;
  std::unique_ptr<Agent> agent;
  std::vector<float> momentum;
  std::vector<CatchUp> catch_ups;  ///< of the trainer's thread; read when it is quiet
  std::unique_ptr<AsyncTrainer> trainer;
};

using Workers = std::vector<std::unique_ptr<TrainingWorker>>;

/// Until all have the same updates and no more come.
bool quiet(const Workers& workers) {
  const auto until = Clock::now() + 20s;
  int calm = 0;
  UpdateNumbers before;
  while (Clock::now() < until) {
    const UpdateNumbers first = workers[0]->trainer->numbers();
    bool same = first.last == before.last;
    for (const auto& worker : workers) same = same && worker->trainer->numbers().last == first.last;
    calm = same ? calm + 1 : 0;
    if (calm == 15) return true;
    before = first;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

void check_replicas(const Workers& workers) {
  const auto first = workers[0]->trainer->snapshot();
  REQUIRE(first.has_value());
  for (const auto& worker : workers) {
    const auto other = worker->trainer->snapshot();
    REQUIRE(other.has_value());
    CHECK(other->weights == first->weights);
    CHECK(other->optimiser == first->optimiser);
    CHECK(other->version == first->version);
    CHECK(other->pending.size() == first->pending.size());
  }
}

Workers start_workers(const TestSwitch& on, Peers& peers, std::size_t ranks, std::size_t elements,
                      std::string& problem, const AsyncTrainerOptions& options = {}) {
  Agents agents = join_async(on, ranks, elements, problem);
  Workers workers;
  for (std::size_t rank = 0; rank < agents.size(); ++rank)
    workers.push_back(
        std::make_unique<TrainingWorker>(peers, rank, elements, std::move(agents[rank]), options));
  return workers;
}

}  // namespace

TEST_CASE("two threads a worker: replicas are the same bits once quiet") {
  constexpr std::size_t ranks = 3, elements = 2'000;
  const std::uint64_t seed = GENERATE(21, 22, 23);
  INFO("seed " << seed);
  const PathFaults faults{.loss = 0.01, .duplicate = 0.03, .reorder = 0.03};
  TestSwitch on({.jobs = {async_job(ranks, 2)},
                 .to_switch = seed == 21 ? PathFaults{} : faults,
                 .to_members = seed == 21 ? PathFaults{} : faults,
                 .seed = seed});
  Peers peers;
  std::string problem;
  AsyncTrainerOptions options;
  options.push_timeout = 10s;
  options.pushes_in_flight = 2;
  Workers workers = start_workers(on, peers, ranks, elements, problem, options);
  REQUIRE(problem.empty());
  std::atomic<int> at_work{ranks};
  // Who is done early goes on until all are, so that nobody waits for a second push that never
  // comes.
  REQUIRE(on_each(ranks, [&](std::size_t rank) {
            std::string trouble = workers[rank]->train(100);
            --at_work;
            while (trouble.empty() && at_work > 0) trouble = workers[rank]->train(1);
            workers[rank]->trainer->wait_for_pushes(300ms);
            return trouble;
          }) == well);
  REQUIRE(quiet(workers));
  check_replicas(workers);
  // Each update is of two pushes, or one where it was forced; what is under way at the end is in
  // none, and one that failed (its worker fell behind) in some segments' or none.
  std::uint64_t pushed = 0, surely_summed = 0;
  for (const auto& worker : workers) {
    const AsyncTrainerStatistics statistics = worker->trainer->statistics();
    pushed += statistics.pushed;
    surely_summed += statistics.pushed - statistics.failed;
  }
  const std::uint64_t version = workers[0]->trainer->version();
  CHECK(version <= pushed);
  CHECK(2 * version + options.pushes_in_flight * ranks + 1 >= surely_summed);
  for (const auto& worker : workers) {
    const AsyncTrainerStatistics statistics = worker->trainer->statistics();
    std::uint64_t seen = 0;
    for (const std::uint64_t count : statistics.staleness) seen += count;
    CHECK(seen <= statistics.pushed + statistics.dropped);
    CHECK(statistics.pushed > 50);
    CHECK(statistics.applied <= version);
    std::uint64_t young = 0;
    for (std::size_t age = 0; age < statistics.staleness.size() && age <= 3; ++age)
      young += statistics.staleness[age];
    CHECK(statistics.pushed == young);
  }
}

TEST_CASE("a gradient that is too old is dropped") {
  TestSwitch on({.jobs = {async_job(1)}});
  Peers peers;
  std::string problem;
  Workers workers = start_workers(on, peers, 1, 500, problem, {.max_staleness = 1});
  REQUIRE(problem.empty());
  AsyncTrainer& trainer = *workers[0]->trainer;
  std::vector<float> weights(500), gradient(500, 1.0F);
  REQUIRE_FALSE(trainer.read_weights(weights));
  const auto push = [&] {
    const auto pushed = trainer.push(gradient);
    INFO((pushed ? "" : pushed.error().text));
    REQUIRE(pushed);
    if (*pushed) REQUIRE(trainer.wait_for_pushes(5s));
    for (int i = 0; i < 500 && trainer.version() < trainer.statistics().pushed; ++i)
      std::this_thread::sleep_for(10ms);
    return *pushed;
  };
  CHECK(push());        // 0 old
  CHECK(push());        // 1 old
  CHECK_FALSE(push());  // 2 old
  REQUIRE_FALSE(trainer.read_weights(weights));
  CHECK(push());
  const AsyncTrainerStatistics statistics = trainer.statistics();
  CHECK(statistics.staleness == std::vector<std::uint64_t>{2, 1, 1});
  CHECK(statistics.dropped == 1);
  CHECK(statistics.pushed == 3);
}

TEST_CASE("a restarted worker and a Reset: the others' weights, without stopping them") {
  constexpr std::size_t ranks = 3, elements = 1'000;
  TestSwitch on({.jobs = {async_job(ranks, 1)}});
  Peers peers;
  std::string problem;
  Workers workers = start_workers(on, peers, ranks, elements, problem);
  REQUIRE(problem.empty());
  std::atomic<bool> enough{false};
  REQUIRE(on_each(ranks, [&](std::size_t rank) -> std::string {
            if (rank != 2) {
              std::string trouble;
              while (trouble.empty() && !enough) trouble = workers[rank]->train(1);
              return trouble;
            }
            if (std::string trouble = workers[2]->train(30); !trouble.empty()) return trouble;
            workers[2].reset();
            AgentOptions options = options_for(on, 2);
            options.async_elements = elements;
            auto joined = Agent::join(options);
            if (!joined) return joined.error().text;
            workers[2] = std::make_unique<TrainingWorker>(peers, 2, elements, std::move(*joined));
            std::string trouble = workers[2]->train(30);
            reset_job(on);
            for (int i = 0; i < 20 && trouble.empty(); ++i) {
              std::this_thread::sleep_for(5ms);
              trouble = workers[2]->train(5);
            }
            enough = true;
            return trouble;
          }) == well);
  for (const auto& worker : workers) worker->trainer->wait_for_pushes(300ms);
  REQUIRE(quiet(workers));
  check_replicas(workers);
  for (const auto& worker : workers) {
    CHECK_FALSE(worker->trainer->failure());
    CHECK(worker->trainer->statistics().catch_ups >= 1);
  }
}

TEST_CASE("a job whose members all lack an update is Reset and goes on") {
  constexpr std::size_t ranks = 2, elements = 300;  // one segment
  control::JobConfig job = async_job(ranks, 1);
  job.history = 1;
  TestSwitch on({.jobs = {job}});
  Peers peers;
  std::string problem;
  Workers workers = start_workers(on, peers, ranks, elements, problem,
                                  {.catch_up_timeout = 10s, .reset_after = 200ms});
  REQUIRE(problem.empty());
  const auto train = [&] {
    return on_each(ranks, [&](std::size_t rank) {
      std::string trouble = workers[rank]->train(3);
      workers[rank]->trainer->wait_for_pushes(5s);
      return trouble;
    });
  };
  REQUIRE(train() == well);
  REQUIRE(quiet(workers));
  // Each member's push makes an update, and the switch keeps the second alone.
  const auto updates = [&] { return on.pipeline_counter(pipeline::Counter::aggregate_completed); };
  const std::uint64_t before = updates();
  on.set_faults({}, {.loss = 1});
  for (auto& worker : workers) REQUIRE(worker->train(1) == well);
  for (int i = 0; i < 500 && updates() < before + 2; ++i) std::this_thread::sleep_for(10ms);
  REQUIRE(updates() == before + 2);
  on.set_faults({}, {});
  const auto reset = [](const auto& worker) { return worker->agent->statistics().resets > 0; };
  for (int i = 0; i < 500 && !std::all_of(workers.begin(), workers.end(), reset); ++i)
    std::this_thread::sleep_for(10ms);
  CHECK(std::all_of(workers.begin(), workers.end(), reset));
  CHECK(train() == well);
  REQUIRE(quiet(workers));
  check_replicas(workers);
  for (const auto& worker : workers) {
    CHECK_FALSE(worker->trainer->failure());
    CHECK(std::count(worker->catch_ups.begin(), worker->catch_ups.end(), CatchUp::gone) > 0);
    CHECK(worker->agent->statistics().resets <= 2);  // both may have asked
  }
}

TEST_CASE("without a peer to ask, a trainer that needs weights fails with one line") {
  TestSwitch on({.jobs = {async_job(1)}});
  std::string problem;
  Agents agents = join_async(on, 1, 100, problem);
  REQUIRE(problem.empty());
  AsyncTrainer trainer(*agents[0], std::vector<float>(100, 0.0F),
                       {.apply = [](std::span<float>, std::span<const float>) {}});
  std::vector<float> weights(100);
  REQUIRE_FALSE(trainer.read_weights(weights));
  reset_job(on);
  AgentError error;
  for (int i = 0; i < 500 && !error; ++i) {
    std::this_thread::sleep_for(10ms);
    error = trainer.read_weights(weights);
  }
  CHECK(error.code == AgentErrorCode::gone);
  CHECK(error.text.find("fetch") != std::string::npos);
}

TEST_CASE("an asynchronous job from C") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {async_job(ranks)}});
  const int caller_driven = GENERATE(0, 1);
  CHECK(on_each(ranks, [&](std::size_t rank) -> std::string {
          const char* problem = c_async_rank(on.address().c_str(), static_cast<int>(rank),
                                             static_cast<int>(ranks), caller_driven);
          return problem == nullptr ? "" : problem;
        }) == well);
}
