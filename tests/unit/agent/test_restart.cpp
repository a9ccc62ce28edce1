// The switch restarts, without a word or with one, while agents are at work: everything goes on as
// if nothing had been.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "iswitch/async_trainer.h"
#include "tests/unit/agent/async_ranks.h"

using namespace iswitch;
using namespace iswitch::test;
using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

namespace {

/// Restarts the switch three times or more. Once it is enough() it has calmed down for good, so
/// that ranks may finish one after another.
class Restarts {
 public:
  Restarts(TestSwitch& on, std::uint64_t seed, bool with_a_word) {
    thread_ = std::thread([this, &on, seed, with_a_word] {
      std::mt19937_64 random(seed);
      do {
        sleep(std::chrono::milliseconds(20 + random() % 150));
        if (with_a_word) {
          on.leave();
          sleep(std::chrono::milliseconds(random() % 300));
        }
        on.restart();
        // Now and then once more, before all are back.
        if (random() % 3 == 0) {
          sleep(std::chrono::milliseconds(random() % 40));
          on.restart();
        }
        sleep(std::chrono::milliseconds(500));
        ++count_;
      } while (!stop_ && !enough());
    });
  }
  ~Restarts() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  bool enough() const { return count_ >= 3; }

 private:
  static void sleep(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> count_{0};
  std::thread thread_;
};

std::uint64_t mix(std::uint64_t digest, std::span<const float> values) {
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    digest = (digest ^ bits) * 0x100000001B3ULL;
  }
  return digest;
}

constexpr PathFaults clean{};
constexpr PathFaults faulty{.loss = 0.01, .duplicate = 0.03, .reorder = 0.03, .corrupt = 0.001};

}  // namespace

TEST_CASE("sums over restarts are exact, and the same bits on all ranks") {
  constexpr std::size_t ranks = 3;
  const std::uint64_t seed = GENERATE(1, 2, 3, 4);
  INFO("seed " << seed);
  const PathFaults faults = seed % 2 == 0 ? faulty : clean;
  TestSwitch on({.jobs = {job_of(ranks)},
                 .shards = 2,
                 .to_switch = faults,
                 .to_members = faults,
                 .seed = seed});
  std::string problem;
  Agents agents = join_all(on, ranks, problem, [&](AgentOptions& options, std::size_t) {
    options.background_thread = seed < 3;
  });
  REQUIRE(problem.empty());
  std::vector<std::uint64_t> digests(ranks, 1);
  std::vector<unsigned> operations(ranks, 0);
  Restarts restarts(on, seed, seed == 3);
  const std::string said = on_each(ranks, [&](std::size_t rank) -> std::string {
    std::mt19937_64 random(seed * 100 + rank);
    std::uniform_real_distribution<float> value(-1, 1);
    for (std::uint32_t round = 0;; ++round) {
      const std::size_t size = 1 + (round * 7919U) % 60'000;  // up to 167 segments, of 64 slots
      std::vector<float> whole(size), real(size);
      for (std::size_t i = 0; i < size; ++i) {
        whole[i] = value_at(rank, i, round);
        real[i] = value(random);
      }
      // Rank 0 says when it is enough.
      std::vector<float> stop(1, rank == 0 && restarts.enough() ? 1.0F : 0.0F);
      Handle sums = agents[rank]->all_reduce(whole, whole);
      Handle means = agents[rank]->all_reduce(real, real, Reduce::mean);
      Handle told = agents[rank]->broadcast(stop, 0);
      for (Handle* handle : {&sums, &means, &told})
        if (const AgentError error = handle->wait()) return error_text(error);
      for (std::size_t i = 0; i < size; ++i)
        if (whole[i] != sum_at(ranks, i, round)) return "wrong sum at " + std::to_string(i);
      digests[rank] = mix(mix(digests[rank], whole), real);
      operations[rank] += 3;
      if (stop[0] != 0) return {};
    }
  });
  restarts.stop();
  CHECK(said == well);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CHECK(digests[rank] == digests[0]);
    CHECK(agents[rank]->statistics().operations_done == operations[0]);
    CHECK(agents[rank]->statistics().resets == 0);
    CHECK(agents[rank]->statistics().resumes >= 3);
  }
}

TEST_CASE("asynchronous pushes over restarts count once each") {
  constexpr std::size_t ranks = 3, elements = 5'000, count = 150;
  const std::uint64_t seed = GENERATE(1, 2, 3);
  INFO("seed " << seed);
  const PathFaults faults = seed == 2 ? faulty : clean;
  TestSwitch on({.jobs = {async_job(ranks)},
                 .shards = 2,
                 .to_switch = faults,
                 .to_members = faults,
                 .seed = seed});
  std::string problem;
  Agents agents = join_async(on, ranks, elements, problem);
  REQUIRE(problem.empty());
  REQUIRE(begin_all(agents) == well);
  const std::uint32_t base_round = agents[0]->numbers().base_round;
  std::vector<std::vector<float>> weights(ranks, std::vector<float>(elements, 0.0F));
  Restarts restarts(on, seed, seed == 3);
  std::size_t pushed = 0;
  while (!restarts.enough()) {
    REQUIRE(on_each(ranks, [&](std::size_t rank) {
              return push_and_take(*agents[rank], rank, elements, count, weights[rank]);
            }) == well);
    ++pushed;
  }
  restarts.stop();
  for (std::size_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (std::uint32_t k = 0; k < count; ++k) sum += sum_at(ranks, i, k);
    REQUIRE(weights[0][i] == sum * static_cast<float>(pushed));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CHECK(weights[rank] == weights[0]);
    CHECK(agents[rank]->statistics().resumes >= 1);
    // For the user numbers have gone on.
    const UpdateNumbers numbers = agents[rank]->numbers();
    CHECK(numbers.base_round == base_round);
    for (const std::uint32_t last : numbers.last) CHECK(last == base_round + pushed * count);
  }
}

TEST_CASE("a trainer notices nothing of a restart") {
  constexpr std::size_t ranks = 2, elements = 900;
  TestSwitch on({.jobs = {async_job(ranks)}});
  std::string problem;
  Agents agents = join_async(on, ranks, elements, problem);
  REQUIRE(problem.empty());
  REQUIRE(begin_all(agents) == well);
  std::vector<std::unique_ptr<AsyncTrainer>> trainers;
  for (auto& agent : agents) {
    AsyncTrainerCallbacks callbacks;
    callbacks.apply = [](std::span<float> weights, std::span<const float> mean) {
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.01F * mean[i];
    };
    trainers.push_back(std::make_unique<AsyncTrainer>(*agent, std::vector<float>(elements, 1.0F),
                                                      std::move(callbacks)));
  }
  Restarts restarts(on, 7, false);
  std::atomic<unsigned> finished{0};
  CHECK(on_each(ranks, [&](std::size_t rank) -> std::string {
          AsyncTrainer& trainer = *trainers[rank];
          const AgentError error =
              trainer.run([&](std::span<const float> weights, std::span<float> gradient) {
                for (std::size_t i = 0; i < weights.size(); ++i)
                  gradient[i] = weights[i] - static_cast<float>((i + rank) % 7);
                return trainer.version() < 400 || !restarts.enough();
              });
          // The ranks do not see the end after the same number of pushes: who is done lends the
          // others the pushes that theirs wait for.
          ++finished;
          std::vector<float> read(elements);
          const std::vector<float> nothing(elements);
          const auto until = Clock::now() + 10s;
          while (finished < ranks && Clock::now() < until) {
            if (!trainer.wait_for_pushes(20ms)) continue;
            if (AgentError failed = trainer.read_weights(read)) return error_text(failed);
            if (const auto pushed = trainer.push(nothing); !pushed)
              return error_text(pushed.error());
          }
          if (error) return error_text(error);
          return trainer.statistics().catch_ups == 0 ? "" : "it took weights from a peer";
        }) == well);
  restarts.stop();
  const auto same = [&] { return trainers[0]->numbers().last == trainers[1]->numbers().last; };
  for (int i = 0; i < 500 && !same(); ++i) std::this_thread::sleep_for(10ms);
  CHECK(same());
  CHECK(trainers[0]->weights() == trainers[1]->weights());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CHECK(trainers[rank]->statistics().failed == 0);
    CHECK(agents[rank]->statistics().resumes >= 3);
    CHECK(agents[rank]->statistics().resets == 0);
  }
  for (auto& trainer : trainers) trainer->give_up_pushes();
}

TEST_CASE("a member that dies while the switch restarts is waited for, then the others are told") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem, [](AgentOptions& options, std::size_t rank) {
    options.background_thread = rank == 0;  // rank 1 stands still unless it is asked
    options.resume_within = 700ms;
  });
  REQUIRE(problem.empty());
  std::vector<float> data(5'000, 1.0F);
  Handle handle = agents[0]->all_reduce(data, data);
  std::this_thread::sleep_for(50ms);
  on.restart();
  const auto begin = Clock::now();
  const AgentError error = handle.wait();
  INFO(error.text);
  CHECK(error.code == AgentErrorCode::timed_out);
  CHECK_THAT(error.text, Contains("1 of 2 members are back") && Contains("700 ms"));
  CHECK(Clock::now() - begin < 3s);
}
