// What an lcore does after a poll. A loaded one polls on; an idle one gives way by and by, because
// people run this on laptops and two-core machines too. Pure: time comes in.
#pragma once

#include <cstdint>

#include "wire/units.h"

namespace iswitch::switchd {

enum class Rest : std::uint8_t { none, pause, yield, sleep };

class IdleBackoff {
 public:
  /// Shorter sleeps cost more processor than they save latency (100 us: 16 % of a core).
  static constexpr Time sleep_time = millisecond;
  /// Gaps within a flow of frames are bridged without leaving the CPU.
  static constexpr Time pause_time = 20 * microsecond;

  IdleBackoff(bool busy, Time idle_after) : busy_(busy), idle_after_(idle_after) {}

  /// `frames`: the poll brought some.
  Rest after_poll(bool frames, Time now) {
    if (frames) {
      last_frame_ = now;
      return Rest::none;
    }
    if (busy_) return Rest::pause;
    const Time idle = now - last_frame_;
    if (idle >= idle_after_) return Rest::sleep;
    return idle < pause_time ? Rest::pause : Rest::yield;
  }

 private:
  bool busy_;
  Time idle_after_;
  Time last_frame_ = 0;
};

}  // namespace iswitch::switchd
