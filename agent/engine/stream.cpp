#include "agent/engine/stream.h"

#include <algorithm>

#include "agent/engine/payload.h"
#include "wire/serial.h"

namespace iswitch::agent {
namespace {

/// Positions behind a hole that may already be done; beyond that a loss stops the stream.
constexpr std::uint32_t range_in_windows = 4;
constexpr std::uint32_t least_range = 64;
constexpr std::uint32_t most_range = 1U << 16;

}  // namespace

Stream::Stream(const EngineOptions& options, Operations& operations, Statistics& statistics)
    : options_(options), operations_(operations), in_flight_(options, statistics) {}

void Stream::begin(const wire::ReplyBody& job, wire::MemberId member, Time now) {
  member_ = member;
  rank_ = options_.rank.value_or(member);
  slots_ = job.slots;
  origin_ = base_round_ = job.base_round;
  seen_ = 0;
  segment_bytes_ = job.segment_bytes;
  shards_ = job.shards;
  const std::uint32_t datagrams =
      std::clamp<std::uint32_t>(options_.receive_datagrams, 1, most_range);
  range_ = std::min({slots_, most_range, std::max(least_range, range_in_windows * datagrams)});
  in_flight_.flight().reset(range_);
  in_flight_.begin(segment_bytes_, std::min(range_, datagrams), now);
  active_ = true;
  end_ = 0;
  sending_ = operations_.begin();
  more(now);
}

void Stream::go_on(const wire::ReplyBody& job, wire::MemberId member, std::uint64_t seen,
                   Time now) {
  member_ = member;
  base_round_ = job.base_round;
  shards_ = job.shards;
  seen_ = seen;
  in_flight_.again(now);
}

std::uint64_t Stream::end_of_results() const {
  for (std::uint64_t position = flight().next(); position > flight().head(); --position)
    if (flight().at(position - 1).state == SegmentState::done) return position;
  return flight().head();
}

std::uint32_t Stream::newest_round() const {
  const std::uint64_t last = std::max(flight().next(), seen_);
  return last == 0 ? base_round_ : round_of(last - 1);
}

void Stream::stop() {
  active_ = false;
  in_flight_.stop();
  end_ = 0;
}

void Stream::more(Time now) {
  if (!active_) return;
  const bool idle = flight().outstanding() == 0 && flight().next() == end_;
  const std::uint64_t before = end_;
  end_ = operations_.cut(end_, segment_bytes_);
  if (idle && end_ != before) in_flight_.iteration((end_ - before) * segment_bytes_, now);
}

Stream::Place Stream::find(std::uint32_t round, std::uint32_t segment) const {
  if (!active_ || segment >= slots_) return {};
  // Rounds wrap at 32 bits, positions do not: the round is placed around that of the oldest
  // position.
  const std::uint64_t turn = flight().head() / slots_;
  const std::int64_t distance =
      wire::serial_distance(round, base_round_ + static_cast<std::uint32_t>(turn));
  const std::int64_t this_turn = static_cast<std::int64_t>(turn) + distance;
  if (this_turn < 0) return {};
  const std::uint64_t position = static_cast<std::uint64_t>(this_turn) * slots_ + segment;
  if (position < flight().head()) return {Found::duplicate, position};
  if (position >= flight().next()) return {};
  const bool done = flight().at(position).state == SegmentState::done;
  return {done ? Found::duplicate : Found::outstanding, position};
}

void Stream::resend(std::uint64_t position) {
  Flight& flight = in_flight_.flight();
  if (active_ && flight.contains(position)) flight.mark_urgent(flight.at(position));
}

std::uint32_t Stream::round_of(std::uint64_t position) const {
  return base_round_ + static_cast<std::uint32_t>(position / slots_);
}

std::uint32_t Stream::slot_of(std::uint64_t position) const {
  return static_cast<std::uint32_t>(position % slots_);
}

std::uint32_t Stream::bytes_at(const Operation& operation, std::uint64_t position) const {
  const std::uint64_t offset = (position - operation.first) * segment_bytes_;
  const std::uint64_t total = vector_bytes(operation.request);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(total - offset, segment_bytes_));
}

bool Stream::fresh_may_go() const {
  if (flight().next() == end_ || in_flight_.full() || flight().next() - flight().head() >= range_ ||
      flight().first_lost() != nullptr)
    return false;
  // A short last segment counts in full: one comparison here instead of a search for its operation.
  return in_flight_.fits_window(segment_bytes_);
}

bool Stream::ready() const {
  return active_ && !paused() && (in_flight_.due() != nullptr || fresh_may_go());
}

bool Stream::transmit(Outgoing& out, Time now) {
  if (!active_ || paused()) return false;
  Flight& flight = in_flight_.flight();
  if (Segment* segment = in_flight_.due(); segment != nullptr) {
    flight.send_again(*segment, now);
    write(*segment, out);
    return true;
  }
  if (!fresh_may_go()) return false;
  sending_ = std::max(sending_, operations_.begin());
  while (flight.next() >= operations_.at(sending_).first + operations_.at(sending_).segments)
    ++sending_;
  const Operation& operation = operations_.at(sending_);
  Segment& segment = flight.send_new(sending_, bytes_at(operation, flight.next()), now);
  in_flight_.sent(now);
  write(segment, out);
  return true;
}

void Stream::write(const Segment& segment, Outgoing& out) {
  const Operation& operation = operations_.at(segment.operation);
  const std::uint64_t offset = (segment.position - operation.first) * segment_bytes_;
  in_flight_.write(segment,
                   {.member = member_,
                    .round = round_of(segment.position),
                    .segment = slot_of(segment.position),
                    .tag = operation.tag,
                    .shards = shards_,
                    .payload = contribution(operation.request, rank_, offset, segment.bytes)},
                   out);
}

}  // namespace iswitch::agent
