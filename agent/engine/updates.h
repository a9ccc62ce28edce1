// Updates of an asynchronous job on their way to the user (protocol.md section 5): copies are
// dropped, what comes out of order is kept until it fits, and holes are known. Update numbers count
// segment by segment.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "agent/engine/engine.h"

namespace iswitch::agent {

/// A result as it came.
struct Arrival {
  std::uint32_t segment = 0;
  std::uint32_t number = 0;
  std::uint16_t workers = 0;
  bool partial = false;
  Bytes payload;  ///< empty: zeros
};

class Updates {
 public:
  /// Nothing is kept and nothing delivered until resume().
  void begin(const wire::ReplyBody& job, std::uint64_t elements);
  /// What was kept stays, and what comes is kept, the newest of each segment; nothing is delivered
  /// until resume().
  void wait() { waiting_ = true; }

  std::uint32_t segments() const { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint32_t bytes_of(std::uint32_t segment) const;

  /// `refused`: the user has not taken what is there, or this is too far ahead.
  enum class Stored : std::uint8_t { fresh, copy, refused };
  /// The segment exists and the payload has its length or none.
  Stored store(const Arrival& arrival);
  std::optional<Update> take();
  bool ready() const { return !waiting_ && !ready_.empty(); }

  /// Numbers of the updates taken.
  const std::vector<std::uint32_t>& taken() const { return taken_; }
  /// Delivers what is newer than `numbers`, which have one a segment.
  void resume(const std::vector<std::uint32_t>& numbers);

  // What to ask for, once resumed.

  /// Everything up to this number is here.
  std::uint32_t complete_to(std::uint32_t segment) const { return slots_[segment].complete; }
  std::vector<std::uint32_t> complete() const;  ///< the same, by segment
  std::uint32_t newest(std::uint32_t segment) const { return slots_[segment].newest; }
  /// A later one than the next has been seen.
  bool hole(std::uint32_t segment) const {
    return slots_[segment].newest != slots_[segment].complete;
  }
  /// There is room for the next one.
  bool room(std::uint32_t segment) const {
    return slots_[segment].complete - taken_[segment] < window_;
  }

 private:
  struct Kept {
    bool present = false;
    bool partial = false;
    std::uint16_t workers = 0;
    std::uint32_t number = 0;
    std::vector<float> values;
  };
  struct Slot {
    std::uint32_t complete = 0;  ///< the last number without a hole before it
    std::uint32_t newest = 0;    ///< seen
    bool queued = false;         ///< in ready_
  };

  Kept& kept(std::uint32_t segment, std::uint32_t number) {
    return ring_[std::size_t{segment} * window_ + (number & (window_ - 1))];
  }
  bool holds(std::uint32_t segment, std::uint32_t number) {
    const Kept& entry = kept(segment, number);
    return entry.present && entry.number == number;
  }
  void keep(Kept& entry, const Arrival& arrival);
  void drop(Kept& entry);
  void advance(std::uint32_t segment);

  std::uint64_t elements_ = 0;
  std::uint32_t segment_elements_ = 1;
  std::uint32_t window_ = 1;  ///< updates kept a segment; a power of two, so that numbers may wrap
  bool waiting_ = true;
  std::vector<std::uint32_t> taken_;
  std::vector<Slot> slots_;
  std::vector<Kept> ring_;                 ///< window_ entries a segment, by number
  std::deque<std::uint32_t> ready_;        ///< segments whose next update is there
  std::vector<std::vector<float>> spare_;  ///< memory of updates that were taken
  std::vector<float> current_;             ///< what the user looks at
};

}  // namespace iswitch::agent
