#include "agent/engine/flight.h"

#include <algorithm>
#include <bit>

namespace iswitch::agent {

void Flight::reset(std::uint32_t capacity) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(capacity, 1));
  if (ring_.size() != size) ring_.assign(size, Segment{});
  mask_ = size - 1;
  table_ = false;
  clear();
}

void Flight::reset_table(std::uint32_t slots) {
  reset(slots);
  table_ = true;
}

void Flight::clear() {
  for (Segment& segment : ring_) segment.state = SegmentState::idle;
  head_ = next_ = 0;
  bytes_in_flight_ = 0;
  outstanding_ = 0;
  in_flight_ = lost_ = urgent_ = List{};
}

Segment& Flight::send_first(std::uint64_t position, std::uint64_t operation, std::uint32_t bytes,
                            Time now) {
  Segment& segment = at(position);
  segment = Segment{};
  segment.position = position;
  segment.order = orders_++;
  segment.first_sent = segment.last_sent = now;
  segment.operation = operation;
  segment.bytes = bytes;
  segment.state = SegmentState::in_flight;
  append(in_flight_, segment);
  bytes_in_flight_ += bytes;
  ++outstanding_;
  return segment;
}

void Flight::send_again(Segment& segment, Time now) {
  if (segment.state == SegmentState::lost) bytes_in_flight_ += segment.bytes;
  unlink(segment);
  segment.order = orders_++;
  segment.last_sent = now;
  segment.retransmitted = true;
  segment.state = SegmentState::in_flight;
  append(in_flight_, segment);
}

void Flight::mark_lost(Segment& segment) {
  if (segment.state != SegmentState::in_flight) return;
  unlink(segment);
  bytes_in_flight_ -= segment.bytes;
  segment.state = SegmentState::lost;
  append(lost_, segment);
}

void Flight::mark_urgent(Segment& segment) {
  if (segment.state != SegmentState::in_flight && segment.state != SegmentState::lost) return;
  if (segment.state == SegmentState::lost) bytes_in_flight_ += segment.bytes;
  unlink(segment);
  segment.state = SegmentState::urgent;
  append(urgent_, segment);
}

void Flight::complete(Segment& segment) {
  if (segment.state != SegmentState::lost) bytes_in_flight_ -= segment.bytes;
  unlink(segment);
  --outstanding_;
  if (table_) {
    segment.state = SegmentState::idle;
    return;
  }
  segment.state = SegmentState::done;
  while (head_ < next_ && at(head_).state == SegmentState::done)
    at(head_++).state = SegmentState::idle;
}

void Flight::lose_all() {
  const std::uint64_t end = table_ ? ring_.size() : next_;
  for (std::uint64_t position = table_ ? 0 : head_; position < end; ++position) {
    if (!is_outstanding(position)) continue;
    Segment& segment = at(position);
    if (segment.state != SegmentState::lost) bytes_in_flight_ -= segment.bytes;
    unlink(segment);
    segment.state = SegmentState::lost;
    append(lost_, segment);
  }
}

void Flight::take_out_of_window(Segment& segment) {
  if (segment.state != SegmentState::lost) bytes_in_flight_ -= segment.bytes;
  segment.bytes = 0;
}

void Flight::probe(unsigned count) {
  if (table_) {
    for (; count > 0; --count) {
      Segment* segment = first_in_flight() != nullptr ? first_in_flight() : first_lost();
      if (segment == nullptr) return;
      mark_urgent(*segment);
    }
    return;
  }
  for (std::uint64_t position = head_; position < next_ && count > 0; ++position) {
    Segment& segment = at(position);
    if (segment.state != SegmentState::in_flight && segment.state != SegmentState::lost) continue;
    mark_urgent(segment);
    --count;
  }
}

Flight::List& Flight::list_of(SegmentState state) {
  if (state == SegmentState::lost) return lost_;
  return state == SegmentState::urgent ? urgent_ : in_flight_;
}

void Flight::append(List& list, Segment& segment) {
  const auto index = static_cast<std::uint32_t>(segment.position & mask_);
  segment.previous = list.tail;
  segment.next = none;
  if (list.tail == none)
    list.head = index;
  else
    ring_[list.tail].next = index;
  list.tail = index;
}

void Flight::unlink(Segment& segment) {
  List& list = list_of(segment.state);
  if (segment.previous == none)
    list.head = segment.next;
  else
    ring_[segment.previous].next = segment.next;
  if (segment.next == none)
    list.tail = segment.previous;
  else
    ring_[segment.next].previous = segment.previous;
}

}  // namespace iswitch::agent
