#include "agent/engine/asking.h"

#include <algorithm>

#include "wire/serial.h"

namespace iswitch::agent {
namespace {

/// Asked for at once, and the pause after so many: control packets must not crowd out the data.
constexpr unsigned enough_at_once = 8;
constexpr Time pause = millisecond;
/// Of the receive buffer, for the answers to what is asked for at once: a result and a reply each,
/// while data come as well. Times double alike for all segments, so what has no room once would
/// have none ever.
constexpr unsigned share_of_buffer = 4;
constexpr Time level_least = 20 * millisecond;
constexpr Time level_most = second;
/// Segments may stay behind for good where some were forced: those are asked about seldom.
constexpr Time behind_least = 20 * millisecond;
constexpr Time behind_most = 2 * second;

/// How much later a result may come than one sent after it.
Time patience(Time timeout) {
  return std::clamp<Time>(timeout / 8, 50 * microsecond, 2 * millisecond);
}

}  // namespace

unsigned Asking::most_at_once() const {
  return std::clamp(options_.receive_datagrams / share_of_buffer, 1U, enough_at_once);
}

void Asking::begin(std::uint32_t segments, Time now) {
  timers_.assign(segments, {});
  for (Timer& timer : timers_) timer.heard = timer.at = now;
  level_cursor_ = 0;
  level_interval_ = level_least;
  sweep_at_ = level_at_ = now + level_least;
  asked_ = level_left_ = 0;
}

Time Asking::level_interval(bool outstanding, Time timeout) {
  return outstanding ? std::clamp(4 * timeout, level_least, level_most) : level_most;
}

void Asking::heard(const Updates& updates, std::uint32_t segment, Time timeout, Time now) {
  Timer& timer = timers_[segment];
  timer.heard = now;
  const bool hole = updates.hole(segment);
  // Later updates behind the same hole change nothing about when to ask for it again.
  if (!hole || !timer.hole || timer.complete != updates.complete_to(segment)) {
    timer.at = now + (hole ? patience(timeout) : 2 * timeout);
    timer.interval = 0;
    sweep_at_ = std::min(sweep_at_, timer.at);
  }
  timer.hole = hole;
  timer.complete = updates.complete_to(segment);
  level_interval_ = 0;
  level_at_ = std::max(level_at_, now + level_interval(true, timeout));
}

void Asking::expect(Time timeout, Time now) {
  level_interval_ = 0;
  level_at_ = std::min(level_at_, now + level_interval(true, timeout));
  sweep_at_ = std::min(sweep_at_, level_at_);
}

std::optional<std::uint32_t> Asking::next(const Updates& updates, bool outstanding, Time timeout,
                                          Time now) {
  if (timers_.empty() || now < sweep_at_) return std::nullopt;
  if (asked_ >= most_at_once()) {
    asked_ = 0;
    sweep_at_ = now + pause;
    return std::nullopt;
  }
  std::uint32_t furthest = updates.complete_to(0);
  for (std::uint32_t segment = 1; segment < timers_.size(); ++segment)
    furthest = wire::serial_latest(furthest, updates.complete_to(segment));
  Time soonest = never;
  for (std::uint32_t segment = 0; segment < timers_.size(); ++segment) {
    if (!updates.room(segment)) continue;
    const bool hole = updates.hole(segment);
    if (!hole && updates.complete_to(segment) == furthest) continue;
    Timer& timer = timers_[segment];
    const Time due =
        hole ? timer.at : std::max(timer.at, timer.heard + std::max(2 * timeout, behind_least));
    if (now < due) {
      soonest = std::min(soonest, due);
      continue;
    }
    const Time most = options_.max_retransmit;
    timer.interval = std::min(std::max(2 * timer.interval, hole ? timeout : behind_least),
                              hole ? most : std::max(behind_most, most));
    timer.at = now + timer.interval;
    ++asked_;
    return segment;
  }
  if (now >= level_at_) {
    level_interval_ = std::clamp(2 * level_interval_, level_interval(outstanding, timeout),
                                 std::max(level_most, level_interval(outstanding, timeout)));
    level_at_ = now + level_interval_;
    level_left_ = most_at_once();
    level_searched_ = 0;
  }
  // Those that are behind have their own times.
  while (level_left_ != 0 && level_searched_ < timers_.size()) {
    ++level_searched_;
    level_cursor_ = (level_cursor_ + 1) % static_cast<std::uint32_t>(timers_.size());
    if (!updates.room(level_cursor_) || updates.complete_to(level_cursor_) != furthest) continue;
    --level_left_;
    ++asked_;
    return level_cursor_;
  }
  level_left_ = 0;
  asked_ = 0;
  sweep_at_ = std::min(soonest, level_at_);
  return std::nullopt;
}

}  // namespace iswitch::agent
