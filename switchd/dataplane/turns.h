// Which turn of its loop each lcore is in: who has taken something away from the lcores waits until
// all of them have begun a new turn, and so have let go of it.
#pragma once

#include <rte_config.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace iswitch::switchd {

/// By EAL's number of the lcore; 0: its loop does not run.
inline std::array<std::atomic<std::uint64_t>, RTE_MAX_LCORE> lcore_turns{};

/// The lcore's. What it reads in the turn it reads after this.
inline void begin_turn_of(unsigned lcore, std::uint64_t turn) {
  lcore_turns[lcore].store(turn, std::memory_order_seq_cst);
}

/// Whether every lcore that ran when `before` was taken is in a later turn, or at the end of its
/// loop.
using Turns = std::array<std::uint64_t, RTE_MAX_LCORE>;
inline Turns turns_now() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Turns turns{};
  for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = lcore_turns[i].load();
  return turns;
}
inline bool all_have_let_go(const Turns& before) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == 0) continue;
    const std::uint64_t now = lcore_turns[i].load();
    if (now != 0 && now == before[i]) return false;
  }
  return true;
}

}  // namespace iswitch::switchd
