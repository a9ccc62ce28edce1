// Workers over a real switch's pipeline and control, with losses; and what a worker says when
// something is wrong.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/unit/agent/test_switch.h"
#include "tools/rl/algorithms/registry.h"
#include "tools/rl/core/digest.h"
#include "tools/rl/environments/registry.h"
#include "tools/rl/exchanges/registry.h"
#include "tools/rl/worker/generation.h"
#include "tools/rl/worker/run.h"

using namespace iswitch::rl;
using iswitch::test::TestSwitch;

namespace {

TestSwitch::Options with_job(std::uint16_t members) {
  iswitch::control::JobConfig job;
  job.id = 1;
  job.members = members;
  return {.jobs = {job}};
}

SwitchOptions options_for(const TestSwitch& sw, std::uint16_t rank, double timeout_seconds = 20.0) {
  SwitchOptions options;
  options.switch_address = sw.address();
  options.rank = rank;
  options.join_timeout = std::chrono::seconds(20);
  options.timeout = std::chrono::milliseconds(static_cast<int>(timeout_seconds * 1000));
  options.fingerprint = 7;
  return options;
}

std::unique_ptr<Exchange> joined(const SwitchOptions& options) {
  auto made = make_exchange("iswitch", options);
  if (auto* failure = std::get_if<Failure>(&made)) {
    UNSCOPED_INFO(failure->text);
    return nullptr;
  }
  return std::move(std::get<std::unique_ptr<Exchange>>(made));
}

std::unique_ptr<Algorithm> tiny_ppo(std::size_t rank, std::size_t size, std::uint64_t seed = 5) {
  auto parameters = std::get<Parameters>(default_parameters("ppo", "hopper"));
  const std::vector<std::string> set{"environments=2", "steps=16", "minibatches=2", "epochs=2"};
  if (parameters.set(set)) return nullptr;
  auto made = make_algorithm("ppo", {std::get<EnvironmentFactory>(environment_factory("hopper")),
                                     parameters, seed, rank, size});
  return std::move(std::get<std::unique_ptr<Algorithm>>(made));
}

struct Worker {
  std::unique_ptr<Algorithm> algorithm;
  std::unique_ptr<Exchange> exchange;
  Failure failure;
  int resets = 0;
};

/// Trains until `updates` were made, beginning a generation first and after every reset.
Failure train(Worker& worker, std::uint64_t updates) {
  while (true) {
    Failure failure = begin_generation(*worker.exchange, *worker.algorithm);
    while (!failure && worker.algorithm->updates() < updates) {
      IterationFigures figures;
      failure = worker.algorithm->iterate(*worker.exchange, {}, figures);
    }
    if (failure.kind != FailureKind::reset) return failure;
    ++worker.resets;
  }
}

std::vector<Worker> start(const TestSwitch& sw, std::uint16_t count,
                          double timeout_seconds = 20.0) {
  std::vector<Worker> workers(count);
  std::vector<std::thread> threads;
  for (std::uint16_t rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      workers[rank].exchange = joined(options_for(sw, rank, timeout_seconds));
      workers[rank].algorithm = tiny_ppo(rank, count);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Worker& worker : workers) REQUIRE(worker.exchange != nullptr);
  return workers;
}

}  // namespace

TEST_CASE("workers over a lossy switch keep equal bits") {
  const std::uint64_t seed = GENERATE(1, 2);
  INFO("seed " << seed);
  auto options = with_job(3);
  options.seed = seed;
  options.to_switch = options.to_members = {.loss = 0.01, .duplicate = 0.1, .reorder = 0.05};
  TestSwitch sw(options);
  auto workers = start(sw, 3);
  std::vector<std::thread> threads;
  std::vector<char> equal(3, 0);
  for (Worker& worker : workers)
    threads.emplace_back([&worker, &equal] {
      worker.failure = train(worker, 40);
      bool same = false;
      if (!worker.failure)
        worker.failure = compare_weights(*worker.exchange, *worker.algorithm, same);
      equal[worker.exchange->rank()] = same ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  for (const Worker& worker : workers) {
    INFO(worker.failure.text);
    CHECK_FALSE(worker.failure);
    CHECK(worker.algorithm->updates() == 40);
    CHECK(worker.exchange->figures().bytes > 40 * 40'976);
    CHECK(weights_digest(worker.algorithm->weights()) ==
          weights_digest(workers[0].algorithm->weights()));
  }
  CHECK(equal == std::vector<char>{1, 1, 1});
}

TEST_CASE("a worker that comes anew is given the state of the others, who go on") {
  TestSwitch sw(with_job(3));
  auto workers = start(sw, 3);
  std::vector<std::thread> threads;
  for (Worker& worker : workers)
    threads.emplace_back([&worker] {
      // Rank 0 ends early, in the middle of what the others do.
      worker.failure = train(worker, worker.exchange->rank() == 0 ? 12 : 400);
      if (worker.exchange->rank() == 0) worker.exchange.reset();
    });
  threads[0].join();
  REQUIRE_FALSE(workers[0].failure);
  workers[0].exchange = joined(options_for(sw, 0));
  REQUIRE(workers[0].exchange != nullptr);
  workers[0].algorithm = tiny_ppo(0, 3, 99);
  CHECK(workers[0].algorithm->updates() == 0);
  workers[0].failure = train(workers[0], 400);
  threads[1].join();
  threads[2].join();
  for (const Worker& worker : workers) {
    INFO(worker.failure.text);
    CHECK_FALSE(worker.failure);
    CHECK(worker.algorithm->updates() >= 400);  // the iteration that passes it is finished
    CHECK(worker.algorithm->updates() == workers[0].algorithm->updates());
    CHECK(weights_digest(worker.algorithm->weights()) ==
          weights_digest(workers[0].algorithm->weights()));
  }
  CHECK(workers[1].resets >= 1);
  CHECK(workers[2].resets >= 1);
}

TEST_CASE("a worker that stops contributing is named") {
  TestSwitch sw(with_job(2));
  auto workers = start(sw, 2, 1.0);
  std::vector<float> values(100, 1.0F);
  const auto before = std::chrono::steady_clock::now();
  const Failure failure = workers[0].exchange->sum(values);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(10));
  INFO(failure.text);
  CHECK(failure.kind == FailureKind::member_lost);
  CHECK(failure.text.find("member 1") != std::string::npos);
  CHECK(failure.text.find('\n') == std::string::npos);
}

TEST_CASE("a switch that is gone is told from a worker that is") {
  auto sw = std::make_unique<TestSwitch>(with_job(2));
  auto workers = start(*sw, 2, 2.0);
  sw.reset();
  std::vector<float> values(100, 1.0F);
  const Failure failure = workers[0].exchange->sum(values);
  INFO(failure.text);
  CHECK(failure.kind == FailureKind::switch_gone);
  CHECK(failure.text.find('\n') == std::string::npos);
}

TEST_CASE("workers that train different things are told so") {
  TestSwitch sw(with_job(2));
  std::vector<std::unique_ptr<Exchange>> exchanges(2);
  std::vector<Failure> failures(2);
  std::vector<std::thread> threads;
  for (std::uint16_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      SwitchOptions options = options_for(sw, rank, 5.0);
      options.fingerprint = 100U + rank;
      exchanges[rank] = joined(options);
      std::vector<float> values(1000, 1.0F);
      if (exchanges[rank]) failures[rank] = exchanges[rank]->sum(values);
    });
  for (std::thread& thread : threads) thread.join();
  bool explained = false;
  for (const Failure& failure : failures) {
    INFO(failure.text);
    CHECK(failure);
    explained = explained || failure.text.find("same algorithm") != std::string::npos;
  }
  CHECK(explained);
}

TEST_CASE("a whole run writes progress and figures") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("iswitch-rl-test-" +
                       std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
  std::filesystem::create_directory(folder);
  WorkerOptions options;
  options.environment = "cartpole";
  options.iterations = 3;
  options.print_every = 0;
  options.progress_file = folder / "progress";
  options.figures_file = folder / "figures.json";
  CHECK_FALSE(run_worker(options));
  const auto read = [](const std::string& name) {
    std::ifstream file(name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string progress = read(options.progress_file), figures = read(options.figures_file);
  CHECK(std::count(progress.begin(), progress.end(), '\n') == 3);
  CHECK(progress.find("\"iteration\":3,\"updates\":60,") != std::string::npos);
  CHECK(figures.find("\"gradient_bytes\": 36620") != std::string::npos);
  CHECK(figures.find("\"equal_weights\": true") != std::string::npos);
  CHECK(figures.find("\"updates\": 60") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("workers that do not wait for each other end with the same bits") {
  constexpr std::uint16_t count = 3;
  const auto threshold = static_cast<std::uint16_t>(GENERATE(0, 2));
  iswitch::control::JobConfig job;
  job.id = 1;
  job.members = count;
  job.mode = iswitch::wire::Mode::async;
  job.threshold = threshold;
  job.force_after = threshold == 0 ? 0 : 20 * iswitch::millisecond;
  TestSwitch sw({.jobs = {job}, .to_switch = {.loss = 0.01}, .to_members = {.loss = 0.01}});
  const auto folder = std::filesystem::temp_directory_path() /
                      ("iswitch-rl-async-" +
                       std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
  std::filesystem::create_directory(folder);
  std::vector<Failure> failures(count);
  std::vector<std::thread> threads;
  for (std::uint16_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      WorkerOptions options;
      options.environment = "cartpole";
      options.exchange = "iswitch-async";
      options.iterations = 4;
      options.seconds = 0;
      options.print_every = 0;
      options.set = {"environments=2", "steps=16", "minibatches=2", "epochs=2"};
      options.network = options_for(sw, rank);
      // Ports that the tests of another build at the same time would not use.
      for (std::uint16_t peer = 0; peer < count; ++peer)
        options.network.peers.push_back("127.0.0." + std::to_string(10 + peer) + ":" +
                                        std::to_string(sw.port()));
      options.figures_file = folder / std::to_string(rank);
      failures[rank] = run_worker(options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> digests;
  for (std::uint16_t rank = 0; rank < count; ++rank) {
    INFO("rank " << rank << ": " << failures[rank].text);
    REQUIRE_FALSE(failures[rank]);
    std::ifstream file(folder / std::to_string(rank));
    const std::string figures(std::istreambuf_iterator<char>(file), {});
    CHECK(figures.find("\"equal_weights\": true") != std::string::npos);
    CHECK(figures.find("\"staleness\": [") != std::string::npos);
    const std::size_t at = figures.find("\"weights_sha256\"");
    REQUIRE(at != std::string::npos);
    digests.push_back(figures.substr(at, 90));
  }
  CHECK(digests[1] == digests[0]);
  CHECK(digests[2] == digests[0]);
  std::filesystem::remove_all(folder);
}

TEST_CASE("what makes no sense is refused with one line that names it") {
  struct Bad {
    void (*spoil)(WorkerOptions& options);
    FailureKind kind;
    const char* named;
  };
  const std::vector<Bad> all{
      {[](WorkerOptions& o) { o.algorithm = "pop"; }, FailureKind::usage, "pop"},
      {[](WorkerOptions& o) { o.environment = "hoper"; }, FailureKind::usage, "hoper"},
      {[](WorkerOptions& o) { o.exchange = "pigeon"; }, FailureKind::usage, "pigeon"},
      {[](WorkerOptions& o) { o.set = {"step=1"}; }, FailureKind::usage, "step"},
      {[](WorkerOptions& o) { o.set = {"minibatches=9999"}; }, FailureKind::usage, "minibatches"},
      {[](WorkerOptions& o) { o.expected_size = 4; }, FailureKind::usage, "4"},
      {[](WorkerOptions& o) { o.progress_file = "/nowhere/p"; }, FailureKind::machine, "/nowhere"},
      {[](WorkerOptions& o) { o.figures_file = "/nowhere/f"; }, FailureKind::machine, "/nowhere"}};
  for (const Bad& bad : all) {
    INFO(bad.named);
    WorkerOptions options;
    options.environment = "cartpole";
    options.iterations = 1;
    options.print_every = 0;
    bad.spoil(options);
    const Failure failure = run_worker(options);
    INFO(failure.text);
    CHECK(failure.kind == bad.kind);
    CHECK(failure.text.find(bad.named) != std::string::npos);
    CHECK(failure.text.find('\n') == std::string::npos);
  }
  WorkerOptions nobody;
  nobody.exchange = "iswitch";
  nobody.network.switch_address = "127.0.0.1:9";
  nobody.network.join_timeout = std::chrono::milliseconds(300);
  const Failure failure = run_worker(nobody);
  INFO(failure.text);
  CHECK(failure);
  CHECK(failure.text.find("127.0.0.1:9") != std::string::npos);
}
