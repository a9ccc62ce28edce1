// Several workers in one process: they learn as one, come to the same bits, and survive resets.
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/unit/rl/in_process_exchange.h"
#include "tools/rl/algorithms/registry.h"
#include "tools/rl/core/digest.h"
#include "tools/rl/environments/registry.h"
#include "tools/rl/exchanges/local_exchange.h"
#include "tools/rl/worker/generation.h"

using namespace iswitch::rl;
using iswitch::rl::test::InProcessExchange;
using iswitch::rl::test::Table;

namespace {

std::unique_ptr<Algorithm> ppo(const char* environment, std::vector<std::string> set,
                               std::size_t rank = 0, std::size_t size = 1, std::uint64_t seed = 5) {
  auto parameters = std::get<Parameters>(default_parameters("ppo", environment));
  REQUIRE_FALSE(parameters.set(set));
  auto made = make_algorithm("ppo", {std::get<EnvironmentFactory>(environment_factory(environment)),
                                     parameters, seed, rank, size});
  REQUIRE(std::holds_alternative<std::unique_ptr<Algorithm>>(made));
  return std::move(std::get<std::unique_ptr<Algorithm>>(made));
}

struct Worker {
  std::unique_ptr<Algorithm> algorithm;
  std::unique_ptr<Exchange> exchange;
  Failure failure;
};

std::vector<Worker> workers(std::size_t count, const char* environment,
                            const std::vector<std::string>& set) {
  auto table = std::make_shared<Table>(count);
  std::vector<Worker> result;
  for (std::size_t rank = 0; rank < count; ++rank)
    result.push_back(
        {ppo(environment, set, rank, count), std::make_unique<InProcessExchange>(table, rank), {}});
  return result;
}

/// Runs `work` for each worker on a thread of its own.
template <class Work>
void together(std::vector<Worker>& all, Work work) {
  std::vector<std::thread> threads;
  for (Worker& worker : all)
    threads.emplace_back([&worker, &work] { worker.failure = work(worker); });
  for (std::thread& thread : threads) thread.join();
}

Failure train(Worker& worker, int iterations) {
  for (int i = 0; i < iterations; ++i) {
    IterationFigures figures;
    std::vector<float> shared;
    if (Failure failure = worker.algorithm->iterate(*worker.exchange, shared, figures))
      return failure;
  }
  return {};
}

}  // namespace

TEST_CASE("the hopper's gradient is 40,976 bytes, not padded") {
  CHECK(ppo("hopper", {})->weights().size() == 10'244);
  CHECK(ppo("hopper", {})->weights().size_bytes() == 40'976);
}

TEST_CASE("two workers equal one on the joint batch up to the order of additions") {
  const char* environment = GENERATE("hopper", "cartpole");
  INFO(environment);
  // One minibatch: how rows are dealt to minibatches differs between one worker and two.
  const std::vector<std::string> half{"environments=4", "steps=16", "minibatches=1", "epochs=4"};
  const std::vector<std::string> whole{"environments=8", "steps=16", "minibatches=1", "epochs=4"};
  auto pair = workers(2, environment, half);
  together(pair, [](Worker& worker) {
    if (Failure failure = begin_generation(*worker.exchange, *worker.algorithm)) return failure;
    return train(worker, 3);
  });
  Worker one{ppo(environment, whole), std::make_unique<LocalExchange>(), {}};
  REQUIRE_FALSE(begin_generation(*one.exchange, *one.algorithm));
  const std::vector<float> initial(one.algorithm->weights().begin(),
                                   one.algorithm->weights().end());
  REQUIRE_FALSE(train(one, 3));
  for (const Worker& worker : pair) {
    REQUIRE_FALSE(worker.failure);
    CHECK(worker.algorithm->updates() == 12);
  }
  const auto joint = one.algorithm->weights(), first = pair[0].algorithm->weights(),
             second = pair[1].algorithm->weights();
  double off = 0.0, moved = 0.0;
  for (std::size_t i = 0; i < joint.size(); ++i) {
    CHECK(first[i] == second[i]);
    off = std::max(off, static_cast<double>(std::abs(joint[i] - first[i])));
    moved = std::max(moved, static_cast<double>(std::abs(joint[i] - initial[i])));
  }
  CHECK(moved > 1e-3);
  CHECK(off < 0.02 * moved);
}

TEST_CASE("four workers with several minibatches keep equal bits, and the figures are of all") {
  auto four = workers(4, "hopper", {"environments=2", "steps=16", "minibatches=4", "epochs=2"});
  std::vector<IterationFigures> figures(4);
  std::vector<std::vector<float>> shared(4);
  together(four, [&](Worker& worker) {
    if (Failure failure = begin_generation(*worker.exchange, *worker.algorithm)) return failure;
    if (Failure failure = train(worker, 3)) return failure;
    const std::size_t rank = worker.exchange->rank();
    shared[rank] = {1.0F, static_cast<float>(rank)};
    return worker.algorithm->iterate(*worker.exchange, shared[rank], figures[rank]);
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    REQUIRE_FALSE(four[rank].failure);
    CHECK(weights_digest(four[rank].algorithm->weights()) ==
          weights_digest(four[0].algorithm->weights()));
    CHECK(figures[rank].steps == 4 * 2 * 16);
    CHECK(figures[rank].episodes == figures[0].episodes);
    CHECK(shared[rank] == std::vector<float>{4.0F, 6.0F});
    CHECK(four[rank].algorithm->updates() == 4 * 2 * 4);
  }
  together(four, [](Worker& worker) {
    bool equal = false;
    if (Failure failure = compare_weights(*worker.exchange, *worker.algorithm, equal))
      return failure;
    return equal ? Failure{} : Failure{FailureKind::exchange, "weights differ"};
  });
  for (const Worker& worker : four) CHECK_FALSE(worker.failure);
}

TEST_CASE("weights that differ in one worker are found") {
  auto three = workers(3, "cartpole", {});
  three[2].algorithm = ppo("cartpole", {}, 2, 3, 99);  // another seed, and no common start
  std::vector<char> equal(3, 1);
  together(three, [&](Worker& worker) {
    bool same = true;
    Failure failure = compare_weights(*worker.exchange, *worker.algorithm, same);
    equal[worker.exchange->rank()] = same ? 1 : 0;
    return failure;
  });
  CHECK(equal == std::vector<char>{0, 0, 0});
}

TEST_CASE("after a reset a fresh worker takes the state of the one that got furthest") {
  const std::vector<std::string> set{"environments=2", "steps=16", "minibatches=2", "epochs=2"};
  auto table = std::make_shared<Table>(3);
  std::vector<Worker> three;
  for (std::size_t rank = 0; rank < 3; ++rank)
    three.push_back(
        {ppo("hopper", set, rank, 3), std::make_unique<InProcessExchange>(table, rank), {}});
  together(three, [](Worker& worker) {
    if (Failure failure = begin_generation(*worker.exchange, *worker.algorithm)) return failure;
    return train(worker, 2);
  });
  for (const Worker& worker : three) REQUIRE_FALSE(worker.failure);

  // Rank 0 dies and comes back with nothing, from another seed. The others meet the reset in the
  // middle.
  three[0].algorithm = ppo("hopper", set, 0, 3, 77);
  std::atomic<int> resets = 0;
  const std::uint64_t before = three[1].algorithm->updates();
  const std::string kept = weights_digest(three[1].algorithm->weights());
  std::vector<std::string> common(3);
  std::vector<Worker> others;
  others.push_back(std::move(three[1]));
  others.push_back(std::move(three[2]));
  std::thread late([&] {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(300));  // the others wait in their exchange
    table->reset();
    three[0].exchange = std::make_unique<InProcessExchange>(table, 0);
    Failure failure = begin_generation(*three[0].exchange, *three[0].algorithm);
    if (failure.kind == FailureKind::reset)  // its own exchange had not seen it either
      failure = begin_generation(*three[0].exchange, *three[0].algorithm);
    common[0] = weights_digest(three[0].algorithm->weights());
    if (!failure) failure = train(three[0], 2);
    three[0].failure = failure;
  });
  together(others, [&](Worker& worker) {
    Failure failure = train(worker, 2);
    if (failure.kind == FailureKind::reset) {
      ++resets;
      failure = begin_generation(*worker.exchange, *worker.algorithm);
    }
    common[worker.exchange->rank()] = weights_digest(worker.algorithm->weights());
    if (failure) return failure;
    return train(worker, 2);
  });
  late.join();
  CHECK(resets == 2);
  CHECK_FALSE(three[0].failure);
  for (const Worker& worker : others) CHECK_FALSE(worker.failure);
  for (const std::string& digest : common) CHECK(digest == kept);
  CHECK(three[0].algorithm->updates() == before + 8);
  CHECK(weights_digest(three[0].algorithm->weights()) ==
        weights_digest(others[0].algorithm->weights()));
  CHECK(weights_digest(three[0].algorithm->weights()) ==
        weights_digest(others[1].algorithm->weights()));
}

TEST_CASE("the same seed gives the same weights, another seed others") {
  const auto digest = [](std::uint64_t seed) {
    Worker worker{
        ppo("hopper", {"environments=4"}, 0, 1, seed), std::make_unique<LocalExchange>(), {}};
    REQUIRE_FALSE(begin_generation(*worker.exchange, *worker.algorithm));
    REQUIRE_FALSE(train(worker, 3));
    return weights_digest(worker.algorithm->weights());
  };
  CHECK(digest(1) == digest(1));
  CHECK(digest(1) != digest(2));
}

TEST_CASE("a state of another network is refused") {
  StateWriter writer;
  ppo("cartpole", {})->save(writer);
  StateReader reader(writer.values());
  const Failure failure = ppo("hopper", {})->load(reader);
  CHECK(failure.kind == FailureKind::exchange);
}

TEST_CASE("PPO learns to balance the pole") {
  Worker worker{ppo("cartpole", {}), std::make_unique<LocalExchange>(), {}};
  REQUIRE_FALSE(begin_generation(*worker.exchange, *worker.algorithm));
  double early = 0.0, best = 0.0;
  for (int iteration = 0; iteration < 300 && best < 475.0; ++iteration) {
    IterationFigures figures;
    REQUIRE_FALSE(worker.algorithm->iterate(*worker.exchange, {}, figures));
    if (figures.episodes == 0) continue;
    const double mean = figures.return_sum / static_cast<double>(figures.episodes);
    if (iteration == 0) early = mean;
    best = std::max(best, mean);
  }
  CHECK(early > 5.0);
  CHECK(early < 60.0);   // the untrained policy
  CHECK(best >= 475.0);  // of at most 500
}

TEST_CASE("parameters that make no batch are refused") {
  const auto refused = [](const char* assignment) {
    auto parameters = std::get<Parameters>(default_parameters("ppo", "hopper"));
    const std::vector<std::string> set{assignment};
    REQUIRE_FALSE(parameters.set(set));
    auto made = make_algorithm(
        "ppo", {std::get<EnvironmentFactory>(environment_factory("hopper")), parameters, 1, 0, 1});
    return std::holds_alternative<Failure>(made) &&
           std::get<Failure>(made).kind == FailureKind::usage;
  };
  for (const char* bad : {"environments=0", "steps=-4", "epochs=1.5", "minibatches=0",
                          "minibatches=513", "action_deviation=0", "learning_rate=0"}) {
    INFO(bad);
    CHECK(refused(bad));
  }
  CHECK_FALSE(refused("minibatches=512"));
  CHECK(std::holds_alternative<Failure>(default_parameters("pop", "hopper")));
}
