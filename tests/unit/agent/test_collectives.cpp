// Sums, means, broadcasts and barriers come out right, over good and bad paths.
#include <catch2/catch.hpp>
#include <random>

#include "tests/unit/agent/ranks.h"

using namespace iswitch;
using namespace iswitch::test;

namespace {

/// All-reduces `length` floats that begin `offset` floats into their memory.
std::string check_sum(Agent& agent, std::size_t rank, std::size_t ranks, std::size_t length,
                      std::size_t offset, bool in_place, Reduce reduce) {
  std::vector<float> in(offset + length + 1, -7777.0F), out(offset + length + 1, -7777.0F);
  for (std::size_t i = 0; i < length; ++i) in[offset + i] = value_at(rank, i);
  std::vector<float>& result = in_place ? in : out;
  Handle handle =
      agent.all_reduce({in.data() + offset, length}, {result.data() + offset, length}, reduce);
  if (const AgentError error = handle.wait()) return error_text(error);
  for (std::size_t i = 0; i < length; ++i) {
    float right = sum_at(ranks, i);
    if (reduce == Reduce::mean) right /= static_cast<float>(ranks);
    if (result[offset + i] != right) {
      return "length " + std::to_string(length) + " index " + std::to_string(i) + ": " +
             std::to_string(result[offset + i]) + " instead of " + std::to_string(right);
    }
    if (!in_place && in[offset + i] != value_at(rank, i)) return "the input was written";
  }
  for (std::size_t i = 0; i < offset; ++i) {
    if (result[i] != -7777.0F) return "written in front of the vector";
  }
  if (result[offset + length] != -7777.0F) return "written behind the vector";
  if (length > 0 && handle.smallest_workers() != ranks) return "wrong number of workers";
  if (handle.partial()) return "partial without being forced";
  return {};
}

}  // namespace

TEST_CASE("sums are exact for every length, offset and placement") {
  constexpr std::size_t ranks = 3;
  const auto shards = static_cast<std::uint16_t>(GENERATE(1, 3));
  TestSwitch on({.jobs = {job_of(ranks)}, .shards = shards});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  CHECK(agents[1]->rank() == 1);
  CHECK(agents[1]->size() == ranks);
  CHECK(agents[1]->size_expected() == ranks);
  CHECK(agents[1]->segment_bytes() == 1440);
  CHECK(on_each(ranks, [&](std::size_t rank) -> std::string {
          for (const std::size_t length : {0, 1, 2, 359, 360, 361, 719, 721, 10'244, 60'001}) {
            for (const std::size_t offset : {0, 1, 3}) {
              for (const bool in_place : {false, true}) {
                const Reduce reduce = offset == 3 ? Reduce::mean : Reduce::sum;
                std::string wrong =
                    check_sum(*agents[rank], rank, ranks, length, offset, in_place, reduce);
                if (!wrong.empty()) return wrong;
              }
            }
          }
          return {};
        }) == well);
}

TEST_CASE("without faults every segment is sent once and answered once") {
  constexpr std::size_t ranks = 2, length = 3'600;  // ten segments
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  REQUIRE(on_each(ranks, [&](std::size_t rank) {
            return check_sum(*agents[rank], rank, ranks, length, 0, true, Reduce::sum);
          }) == well);
  for (const auto& agent : agents) {
    const AgentStatistics statistics = agent->statistics();
    CHECK(statistics.results == 10);
    CHECK(statistics.contributions_sent == 10 + statistics.retransmissions);
    CHECK(statistics.gradient_bytes_received == length * sizeof(float));
    CHECK(statistics.operations_done == 1);
    CHECK(statistics.operations_failed == 0);
    CHECK(statistics.send_calls > 0);
    CHECK(statistics.receive_calls > 0);
    CHECK(statistics.smoothed_rtt.count() > 0);
  }
  // Every datagram had the ToS, port and layout that make it ours.
  CHECK(on.pipeline_counter(pipeline::Counter::aggregate_added) == ranks * 10);
  CHECK(on.pipeline_counter(pipeline::Counter::l2_flooded) == 0);
}

TEST_CASE("sums stay exact over paths that lose, repeat, reorder and corrupt") {
  constexpr std::size_t ranks = 3;
  const std::uint64_t seed = GENERATE(1, 2, 3, 4);
  INFO("seed " << seed);
  const PathFaults faults{.loss = 0.01, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.005};
  TestSwitch on({.jobs = {job_of(ranks)},
                 .shards = static_cast<std::uint16_t>(1 + seed % 2),
                 .to_switch = faults,
                 .to_members = faults,
                 .seed = seed});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  INFO(problem);
  REQUIRE(problem.empty());
  CHECK(on_each(ranks, [&](std::size_t rank) -> std::string {
          for (const std::size_t length : {1, 10'244, 100'000}) {
            std::string wrong = check_sum(*agents[rank], rank, ranks, length, 1, true, Reduce::sum);
            if (!wrong.empty()) return wrong;
          }
          return {};
        }) == well);
  const PathCounts counts = on.counts_to_switch();
  CHECK(counts.lost > 0);
  CHECK(counts.duplicated > 0);
  CHECK(counts.corrupted > 0);
  CHECK(agents[0]->statistics().retransmissions > 0);
}

namespace {

struct Step {
  enum Kind { sum, mean, broadcast, barrier } kind = sum;
  std::size_t length = 0;
  std::uint16_t root = 0;
  bool in_place = false;
  bool wait_now = false;
};

std::vector<Step> random_steps(std::uint64_t seed, std::size_t ranks, std::size_t count) {
  std::mt19937_64 random(seed);
  std::vector<Step> steps(count);
  for (Step& step : steps) {
    step.kind = static_cast<Step::Kind>(random() % 4);
    const std::uint64_t size = random() % 4;
    step.length = size == 0 ? random() % 3 : size == 3 ? random() % 20'000 : random() % 1'000;
    step.root = static_cast<std::uint16_t>(random() % ranks);
    step.in_place = random() % 2 == 0;
    step.wait_now = random() % 4 == 0;
  }
  return steps;
}

struct Running {
  Step step;
  std::vector<float> in, out;
  Handle handle;
};

std::string check_step(const Running& running, std::size_t rank, std::size_t ranks,
                       std::uint32_t salt) {
  const Step& step = running.step;
  const bool moved = step.kind != Step::barrier;
  const std::vector<float>& result =
      step.kind == Step::broadcast || step.in_place ? running.in : running.out;
  for (std::size_t i = 0; moved && i < step.length; ++i) {
    float right =
        step.kind == Step::broadcast ? value_at(step.root, i, salt) : sum_at(ranks, i, salt);
    if (step.kind == Step::mean) right /= static_cast<float>(ranks);
    if (result[i] != right) {
      return "step " + std::to_string(salt) + " kind " + std::to_string(step.kind) + " index " +
             std::to_string(i) + ": " + std::to_string(result[i]) + " instead of " +
             std::to_string(right) + " at rank " + std::to_string(rank);
    }
  }
  return {};
}

std::string run_steps(Agent& agent, std::size_t rank, std::size_t ranks,
                      const std::vector<Step>& steps) {
  std::vector<std::unique_ptr<Running>> running;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    auto now = std::make_unique<Running>();
    now->step = steps[i];
    now->in.resize(steps[i].length);
    now->out.resize(steps[i].length);
    for (std::size_t k = 0; k < now->in.size(); ++k) {
      now->in[k] = value_at(rank, k, static_cast<std::uint32_t>(i));
    }
    std::vector<float>& result = steps[i].in_place ? now->in : now->out;
    switch (steps[i].kind) {
      case Step::sum:
        now->handle = agent.all_reduce(now->in, result);
        break;
      case Step::mean:
        now->handle = agent.all_reduce(now->in, result, Reduce::mean);
        break;
      case Step::broadcast:
        now->handle = agent.broadcast(now->in, steps[i].root);
        break;
      case Step::barrier:
        now->handle = agent.barrier();
        break;
    }
    if (steps[i].wait_now) {
      if (const AgentError error = now->handle.wait()) return error_text(error);
    }
    running.push_back(std::move(now));
  }
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (const AgentError error = running[i]->handle.wait()) return error_text(error);
    std::string wrong = check_step(*running[i], rank, ranks, static_cast<std::uint32_t>(i));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace

TEST_CASE("random sequences of overlapping operations") {
  constexpr std::size_t ranks = 3;
  const std::uint64_t seed = GENERATE(11, 12, 13, 14, 15, 16);
  const bool thread = seed % 2 == 0;
  INFO("seed " << seed);
  const PathFaults faults{.loss = 0.01, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.002};
  TestSwitch on({.jobs = {job_of(ranks)},
                 .shards = 2,
                 .to_switch = seed % 3 == 0 ? PathFaults{} : faults,
                 .to_members = seed % 3 == 0 ? PathFaults{} : faults,
                 .seed = seed});
  std::string problem;
  Agents agents = join_all(on, ranks, problem, [&](AgentOptions& options, std::size_t) {
    options.background_thread = thread;
  });
  REQUIRE(problem.empty());
  const std::vector<Step> steps = random_steps(seed, ranks, 40);
  CHECK(on_each(ranks, [&](std::size_t rank) {
          return run_steps(*agents[rank], rank, ranks, steps);
        }) == well);
}

TEST_CASE("two jobs and several agents share one address") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks, 1), job_of(ranks, 2)}});
  std::string problem;
  Agents agents = join_all(on, 2 * ranks, problem, [](AgentOptions& options, std::size_t i) {
    options.job = static_cast<std::uint16_t>(1 + i / ranks);
    options.rank = static_cast<std::uint16_t>(i % ranks);
  });
  REQUIRE(problem.empty());
  CHECK(on_each(2 * ranks, [&](std::size_t i) -> std::string {
          // The second job's vectors differ, so that a sum of the other job would show.
          const std::size_t salt = i / ranks * 1000;
          std::vector<float> data(5'000);
          for (int turn = 0; turn < 20; ++turn) {
            for (std::size_t k = 0; k < data.size(); ++k) data[k] = value_at(i % ranks, k + salt);
            if (const AgentError error = agents[i]->all_reduce(data, data).wait())
              return error_text(error);
            for (std::size_t k = 0; k < data.size(); ++k) {
              if (data[k] != sum_at(ranks, k + salt)) return "wrong sum";
            }
          }
          return {};
        }) == well);
}

TEST_CASE("the window keeps to what was asked for") {
  TestSwitch on({.jobs = {job_of(1)}});
  std::string problem;
  Agents agents = join_all(
      on, 1, problem, [](AgentOptions& options, std::size_t) { options.window_bytes = 4 * 1440; });
  REQUIRE(problem.empty());
  std::vector<float> data(50'000, 1.0F);
  REQUIRE_FALSE(agents[0]->all_reduce(data, data).wait());
  CHECK(agents[0]->statistics().window_bytes <= 4 * 1440);
  CHECK(agents[0]->statistics().window_bytes > 0);
}

TEST_CASE("congestion marks reach the agent") {
  TestSwitch on({.jobs = {job_of(1)}, .to_members = {.mark = 0.5}});
  std::string problem;
  Agents agents =
      join_all(on, 1, problem, [](AgentOptions& options, std::size_t) { options.ecn = true; });
  REQUIRE(problem.empty());
  std::vector<float> data(20'000, 1.0F);
  REQUIRE_FALSE(agents[0]->all_reduce(data, data).wait());
  CHECK(on.counts_to_members().marked > 0);
  CHECK(agents[0]->statistics().ecn_marks > 0);
}
