// A job's slots in one shard: the open sum of each, and the ring of its kept results.
#pragma once

#include <cstdint>
#include <vector>

#include "switchd/pipeline/frame.h"

namespace iswitch::pipeline {

/// The open sum of a slot and where its kept results stand; one cache line, all that a contribution
/// touches besides the sum itself. In a synchronous job the open sum's round is last_round + 1
/// always.
template <class Handle>
struct alignas(64) Slot {
  enum class State : std::uint8_t {
    idle,
    open,
    waiting,    ///< synchronous: complete here and sent up; the sum is not written any more
    unsettled,  ///< asynchronous: members have not all said what they have (section 9)
  };
  /// Direct members in the open (or waiting) sum; unsettled: those that have said nothing yet.
  MemberMask members = 0;
  Handle sum{};                    ///< null until a contribution that is not empty
  std::uint8_t* floats = nullptr;  ///< of `sum`
  Time opened_at = 0;
  std::uint32_t last_round = 0;     ///< of the last completed result
  std::uint32_t tag = 0;            ///< operation tag of the open sum
  std::uint32_t workers = 0;        ///< in the open sum
  std::uint16_t bytes = 0;          ///< length of the sum; 0 while all of it was empty
  std::uint16_t threshold = 0;      ///< it was opened under; 0 follows the members
  std::uint16_t newest = 0;         ///< place of the last result in the ring
  std::uint16_t contributions = 0;  ///< distinct members that count towards the threshold
  std::uint16_t checksum = 0;       ///< of a waiting sum: folded partial sum, 0 where they are off
  State state = State::idle;
  std::uint8_t flags = 0;  ///< of the result to be: ECN-ECHO, PARTIAL
  // After a restart (section 9).
  bool recovering = false;  ///< the next round is one that a member may have: nothing is forced
  bool handed = false;      ///< what waits is a result handed back, and `members` its bitmap
  /// Asynchronous: last update from before the stream went on; those acknowledge nothing any more.
  std::uint32_t settled_at = 0;

  /// The sum has gone elsewhere.
  void forget_sum() {
    state = State::idle;
    sum = {};
    floats = nullptr;
    members = 0;
    contributions = 0;
    workers = 0;
    bytes = 0;
    flags = 0;
    handed = false;
  }
};

static_assert(sizeof(Slot<void*>) == 64);

/// What stands at a place of the ring.
enum class Place : std::uint8_t {
  unused,  ///< its round is before the base round: there is no such result
  hole,    ///< at a child: a newer result has come and not this one
  kept,
};

/// A completed result.
template <class Handle>
struct Kept {
  Handle payload{};
  MemberMask members = 0;
  std::uint32_t tag = 0;
  std::uint16_t workers = 0;
  std::uint16_t bytes = 0;
  std::uint16_t checksum = 0;  ///< folded partial sum of the payload; 0 where checksums are off
  std::uint8_t flags = 0;
  Place place = Place::unused;
  /// False: the parent's, without a sum of this switch in it, or handed back. Of an asynchronous
  /// job: who is in it is not known here.
  bool tag_known = true;
};

/// Slots are counted within the shard: slot = segment / shards.
template <class Handle>
class SlotTable {
 public:
  /// May throw bad_alloc.
  SlotTable(std::uint32_t slots, std::uint16_t history)
      : history_(history), slots_(slots), kept_(std::size_t{slots} * history) {}

  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint16_t history() const { return history_; }
  Slot<Handle>& slot(std::uint32_t index) { return slots_[index]; }
  const Slot<Handle>& slot(std::uint32_t index) const { return slots_[index]; }

  /// The result `age` rounds before the last one; age < history. It may not be kept.
  Kept<Handle>& kept(std::uint32_t index, std::uint32_t age) { return kept_[place_of(index, age)]; }
  /// Where that stands among all kept results of the table.
  std::size_t place_of(std::uint32_t index, std::uint32_t age) const {
    const std::uint32_t newest = slots_[index].newest;
    const std::uint32_t place = newest >= age ? newest - age : newest + history_ - age;
    return std::size_t{index} * history_ + place;
  }
  std::size_t places() const { return kept_.size(); }

  /// Moves the ring on by one round: the place of the result to come, still holding the oldest one.
  Kept<Handle>& advance(std::uint32_t index) {
    Slot<Handle>& s = slots_[index];
    s.newest = s.newest + 1 == history_ ? 0 : s.newest + 1;
    ++s.last_round;
    s.recovering = false;
    return kept_[std::size_t{index} * history_ + s.newest];
  }

  void prefetch(std::uint32_t index) const {
    __builtin_prefetch(&slots_[index], 1);
    __builtin_prefetch(&kept_[std::size_t{index} * history_], 1);
  }

 private:
  std::uint16_t history_;
  std::vector<Slot<Handle>> slots_;
  std::vector<Kept<Handle>> kept_;
};

}  // namespace iswitch::pipeline
