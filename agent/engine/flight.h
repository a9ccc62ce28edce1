// The contributions that are outstanding: a ring by stream position, or a table by slot, and three
// lists threaded through it by order of transmission. No allocation but in reset().
#pragma once

#include <cstdint>
#include <vector>

#include "wire/units.h"

namespace iswitch::agent {

enum class SegmentState : std::uint8_t {
  idle,       ///< its position is not in the ring
  in_flight,  ///< contributed, result awaited
  lost,       ///< to be sent again when the window allows; not counted as in flight
  urgent,     ///< to be sent again at once (probe, Help); counted as in flight
  done        ///< result taken; waits for older positions to be done
};

struct Segment {
  std::uint64_t position = 0;
  std::uint64_t order = 0;  ///< of its last transmission; grows by one a datagram
  Time first_sent = 0;
  Time last_sent = 0;
  std::uint64_t operation = 0;  ///< Operation::index
  std::uint32_t bytes = 0;      ///< of the segment, whether sent empty or not
  std::uint32_t previous = 0;
  std::uint32_t next = 0;
  SegmentState state = SegmentState::idle;
  bool retransmitted = false;
};

/// Positions [head, next): head is the oldest without a result. As a table: every slot, used again
/// and again in any order.
class Flight {
 public:
  /// Empty, positions from 0, at most `capacity` (rounded up to a power of two) in the ring.
  void reset(std::uint32_t capacity);
  /// Empty, a table of `slots`: a position is a slot.
  void reset_table(std::uint32_t slots);
  void clear();

  std::uint64_t head() const { return head_; }
  std::uint64_t next() const { return next_; }
  std::uint32_t outstanding() const { return outstanding_; }
  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  std::uint64_t orders() const { return orders_; }  ///< of the next transmission

  /// The segment at a position of [head, next).
  Segment& at(std::uint64_t position) { return ring_[position & mask_]; }
  const Segment& at(std::uint64_t position) const { return ring_[position & mask_]; }
  bool contains(std::uint64_t position) const { return position >= head_ && position < next_; }

  /// The next position is sent for the first time.
  Segment& send_new(std::uint64_t operation, std::uint32_t bytes, Time now) {
    return send_first(next_++, operation, bytes, now);
  }
  /// Of a table: the slot is idle.
  Segment& send_slot(std::uint32_t slot, std::uint64_t operation, std::uint32_t bytes, Time now) {
    return send_first(slot, operation, bytes, now);
  }
  bool is_outstanding(std::uint64_t position) const {
    const SegmentState state = at(position).state;
    return state != SegmentState::idle && state != SegmentState::done;
  }
  void send_again(Segment& segment, Time now);
  void mark_lost(Segment& segment);
  /// Nothing for a segment that is done or urgent already.
  void mark_urgent(Segment& segment);
  void complete(Segment& segment);
  /// Whatever is outstanding is to be sent again, the oldest (table: lowest) first.
  void lose_all();
  /// It stays outstanding and is sent again, but its bytes count no more.
  void take_out_of_window(Segment& segment);

  /// Marks as urgent the `count` for which it is most due: in a stream those in front, in a table
  /// the least recently transmitted.
  void probe(unsigned count);
  bool is_table() const { return table_; }

  /// Least recently transmitted of its kind; null when there is none.
  Segment* first_in_flight() { return first(in_flight_); }
  Segment* first_lost() { return first(lost_); }
  Segment* first_urgent() { return first(urgent_); }
  const Segment* first_lost() const { return lost_.head == none ? nullptr : &ring_[lost_.head]; }
  const Segment* first_urgent() const {
    return urgent_.head == none ? nullptr : &ring_[urgent_.head];
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct List {
    std::uint32_t head = none;
    std::uint32_t tail = none;
  };
  Segment& send_first(std::uint64_t position, std::uint64_t operation, std::uint32_t bytes,
                      Time now);
  Segment* first(List& list) { return list.head == none ? nullptr : &ring_[list.head]; }
  List& list_of(SegmentState state);
  void append(List& list, Segment& segment);
  void unlink(Segment& segment);

  std::vector<Segment> ring_;
  bool table_ = false;
  std::uint64_t mask_ = 0;
  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t orders_ = 1;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint32_t outstanding_ = 0;
  List in_flight_;
  List lost_;
  List urgent_;
};

}  // namespace iswitch::agent
