// Through an iSwitch: one all-reduce a vector, in place in the worker's buffer.
#pragma once

#include <iswitch/agent.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/rl/exchanges/exchange.h"

namespace iswitch::rl {

struct SwitchOptions {
  std::string switch_address;  ///< IPv4 or IPv4:port
  std::uint16_t job = 1;
  std::optional<std::uint16_t> rank;  ///< in the whole job; none: the switch chooses
  /// Id at the switch (or any_member) where that has only a part of the job; then `size` is needed.
  std::optional<std::uint16_t> member;
  std::size_t size = 0;  ///< workers in the whole job
  std::string local_address;
  std::uint16_t local_port = 0;  ///< a fixed one lets a restarted worker take its own place at once
  std::string key_file;
  std::chrono::milliseconds join_timeout{30'000};
  std::chrono::milliseconds timeout{30'000};        ///< of each operation
  std::chrono::milliseconds resume_within{10'000};  ///< to wait for a switch that restarts
  /// Of what is trained and how: workers that disagree are told so instead of adding different
  /// things.
  std::uint32_t fingerprint = 0;
  std::size_t gradient_floats = 0;

  // Asynchronous exchanges only.
  std::vector<std::string> peers;  ///< by rank, "IPv4:port": where workers serve their weights
  unsigned max_staleness = 3;      ///< gradients that are more updates old are dropped
  unsigned pushes_in_flight = 1;
};

/// What all exchanges through a switch join with.
AgentOptions agent_options_of(const SwitchOptions& options);

/// Joins and waits until all workers of the job are there.
std::variant<std::unique_ptr<Exchange>, Failure> join_switch(const SwitchOptions& options);

}  // namespace iswitch::rl
