// What the command line says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/rl/exchanges/switch_exchange.h"

namespace iswitch::rl {

struct WorkerOptions {
  std::string algorithm = "ppo";
  std::string environment = "hopper";
  std::string exchange = "local";
  SwitchOptions network;          ///< for exchanges through a switch
  std::size_t expected_size = 0;  ///< workers that the job should have; 0: whatever it has
  std::vector<std::string> set;   ///< "name=value" of the algorithm's parameters
  std::uint64_t seed = 1;         ///< the same on all workers
  double seconds = 100.0;         ///< of training; 0: no bound
  std::uint64_t iterations = 0;   ///< likewise
  double print_every = 2.0;       ///< seconds between rows on stdout (rank 0); 0: none
  std::string progress_file;      ///< one JSON object an iteration; "-": stdout
  std::string figures_file;       ///< the run's figures as JSON
};

}  // namespace iswitch::rl
