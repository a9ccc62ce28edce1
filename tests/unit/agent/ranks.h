// Several ranks in one process, each on a thread of its own while it acts. Catch2's assertions are
// not for threads: what ranks find comes back as values.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "iswitch/agent.h"
#include "switchd/control/control.h"
#include "tests/unit/agent/test_switch.h"

namespace iswitch::test {

using namespace std::chrono_literals;

inline control::JobConfig job_of(std::uint16_t members, wire::JobId id = 1) {
  control::JobConfig job;
  job.id = id;
  job.members = members;
  job.slots = 64;
  job.member_timeout = 300 * millisecond;
  return job;
}

inline AgentOptions options_for(const TestSwitch& on, std::uint16_t rank) {
  AgentOptions options;
  options.switch_address = on.address();
  options.rank = rank;
  options.join_timeout = 10s;
  options.operation_timeout = 20s;
  return options;
}

/// What a rank says that found nothing wrong. Compared with, it shows in a failure what was wrong.
inline const std::string well;

/// Runs act(rank) on a thread each; the strings that are not empty, by rank.
inline std::string on_each(std::size_t ranks, const std::function<std::string(std::size_t)>& act) {
  std::vector<std::string> problems(ranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { problems[rank] = act(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!problems[rank].empty())
      all += "rank " + std::to_string(rank) + ": " + problems[rank] + "\n";
  }
  return all;
}

using Agents = std::vector<std::unique_ptr<Agent>>;

/// Empty, with `problem` filled, when a rank could not join.
inline Agents join_all(const TestSwitch& on, std::size_t ranks, std::string& problem,
                       const std::function<void(AgentOptions&, std::size_t)>& adjust = {}) {
  Agents agents(ranks);
  problem = on_each(ranks, [&](std::size_t rank) -> std::string {
    AgentOptions options = options_for(on, static_cast<std::uint16_t>(rank));
    if (adjust) adjust(options, rank);
    auto joined = Agent::join(options);
    if (!joined) return joined.error().text;
    agents[rank] = std::move(*joined);
    return {};
  });
  return problem.empty() ? std::move(agents) : Agents{};
}

/// Integer-valued, so that the sum does not depend on the order: what rank puts at index i.
inline float value_at(std::size_t rank, std::size_t i, std::uint32_t salt = 0) {
  return static_cast<float>(static_cast<int>((i * 7 + rank * 131 + std::size_t{salt} * 17) % 2001) -
                            1000);
}
inline float sum_at(std::size_t ranks, std::size_t i, std::uint32_t salt = 0) {
  float sum = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) sum += value_at(rank, i, salt);
  return sum;
}

inline std::string error_text(const AgentError& error) {
  return std::to_string(static_cast<int>(error.code)) + " " + error.text;
}

}  // namespace iswitch::test
