// Where an lcore's cycles go, by stage of a burst: for benchmarks.
#pragma once

#include <rte_cycles.h>

#include <array>
#include <cstdint>

#include "switchd/pipeline/frame.h"

namespace iswitch::switchd {

/// In the order of a turn.
enum class LoopStage : std::uint8_t {
  receive,
  parse,
  classify,
  aggregate,
  deliver,
  release,   ///< received frames go back to their pool
  transmit,  ///< and all that comes between bursts
  count_
};
inline constexpr std::array<const char*, static_cast<std::size_t>(LoopStage::count_)>
    loop_stage_names{"receive", "parse", "classify", "aggregate", "deliver", "release", "transmit"};

inline constexpr LoopStage stage_of(pipeline::Stage stage) {
  return static_cast<LoopStage>(static_cast<unsigned>(LoopStage::parse) +
                                static_cast<unsigned>(stage));
}
static_assert(stage_of(pipeline::Stage::deliver) == LoopStage::deliver);

/// Written by the lcore while it runs; everything else while it is stopped.
struct StageClock {
  std::array<std::uint64_t, static_cast<std::size_t>(LoopStage::count_)> cycles{};  ///< of the TSC
  std::uint64_t last = 0;
  bool on = false;

  /// `stage` has just ended.
  void mark(LoopStage stage) {
    const std::uint64_t now = rte_rdtsc();
    cycles[static_cast<std::size_t>(stage)] += now - last;
    last = now;
  }
  void start() {
    cycles = {};
    last = rte_rdtsc();
    on = true;
  }
};

}  // namespace iswitch::switchd
