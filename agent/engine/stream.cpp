#include "agent/engine/stream.h"

#include <algorithm>
#include <variant>

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
    : options_(options),
      operations_(operations),
      statistics_(statistics),
      recovery_(options.min_retransmit, options.max_retransmit),
      congestion_(Reno({})) {}

void Stream::begin(const wire::ReplyBody& job, wire::MemberId member, Time now) {
  member_ = member;
  rank_ = options_.rank.value_or(member);
  slots_ = job.slots;
  base_round_ = job.base_round;
  segment_bytes_ = job.segment_bytes;
  shards_ = job.shards;
  const std::uint32_t datagrams =
      std::clamp<std::uint32_t>(options_.receive_datagrams, 1, most_range);
  range_ = std::min({slots_, most_range, std::max(least_range, range_in_windows * datagrams)});
  most_segments_ = std::min(range_, datagrams);
  flight_.reset(range_);
  recovery_.reset();
  congestion_ = Reno({.segment_bytes = segment_bytes_,
                      .max_window_bytes = std::uint64_t{most_segments_} * segment_bytes_});
  active_ = true;
  paused_ = false;
  echo_mark_ = false;
  recovery_.resume(now);
  end_ = 0;
  sending_ = operations_.begin();
  more(now);
}

void Stream::stop() {
  active_ = false;
  flight_.clear();
  recovery_.reset();
  end_ = 0;
}

void Stream::more(Time now) {
  if (!active_) return;
  const bool idle = flight_.outstanding() == 0 && flight_.next() == end_;
  const std::uint64_t before = end_;
  end_ = operations_.cut(end_, segment_bytes_);
  if (idle && end_ != before)
    std::visit(
        [&](auto& control) { control.on_iteration_start(now, (end_ - before) * segment_bytes_); },
        congestion_);
}

void Stream::pause() {
  paused_ = true;
  recovery_.pause();
}

void Stream::resume(Time now) {
  paused_ = false;
  recovery_.resume(now);
}

Stream::Place Stream::find(std::uint32_t round, std::uint32_t segment) const {
  if (!active_ || segment >= slots_) return {};
  // Rounds wrap at 32 bits, positions do not: the round is placed around that of the oldest
  // position.
  const std::uint64_t turn = flight_.head() / slots_;
  const std::int64_t distance =
      wire::serial_distance(round, base_round_ + static_cast<std::uint32_t>(turn));
  const std::int64_t this_turn = static_cast<std::int64_t>(turn) + distance;
  if (this_turn < 0) return {};
  const std::uint64_t position = static_cast<std::uint64_t>(this_turn) * slots_ + segment;
  if (position < flight_.head()) return {Found::duplicate, position};
  if (position >= flight_.next()) return {};
  const bool done = flight_.at(position).state == SegmentState::done;
  return {done ? Found::duplicate : Found::outstanding, position};
}

void Stream::acknowledge(std::uint64_t position, bool marked, Time now) {
  Segment& segment = flight_.at(position);
  Acknowledgement acknowledgement;
  acknowledgement.now = now;
  acknowledgement.sent_at = segment.last_sent;
  acknowledgement.bytes = segment.bytes;
  acknowledgement.in_flight_before = flight_.bytes_in_flight();
  acknowledgement.marked = marked;
  acknowledgement.round_trip = recovery_.acknowledged(segment, now);
  flight_.complete(segment);
  std::visit([&](auto& control) { control.on_acknowledgement(acknowledgement); }, congestion_);
  detect(now);
}

void Stream::detect(Time now) {
  recovery_.detect(flight_, now, [&](const Segment& segment) {
    std::visit([&](auto& control) { control.on_loss(now, segment.last_sent); }, congestion_);
  });
}

void Stream::resend(std::uint64_t position) {
  if (active_ && flight_.contains(position)) flight_.mark_urgent(flight_.at(position));
}

std::uint32_t Stream::round_of(std::uint64_t position) const {
  return base_round_ + static_cast<std::uint32_t>(position / slots_);
}

std::uint32_t Stream::slot_of(std::uint64_t position) const {
  return static_cast<std::uint32_t>(position % slots_);
}

bool Stream::fits_window(std::uint64_t bytes) const {
  if (flight_.bytes_in_flight() == 0) return true;
  const std::uint64_t window =
      std::visit([](const auto& control) { return control.window_bytes(); }, congestion_);
  return flight_.bytes_in_flight() + bytes <= window;
}

std::uint32_t Stream::bytes_at(const Operation& operation, std::uint64_t position) const {
  const std::uint64_t offset = (position - operation.first) * segment_bytes_;
  const std::uint64_t total = vector_bytes(operation.request);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(total - offset, segment_bytes_));
}

Stream::Next Stream::what_next() const {
  if (!active_ || paused_) return Next::nothing;
  if (flight_.first_urgent() != nullptr) return Next::urgent;
  if (const Segment* lost = flight_.first_lost(); lost != nullptr)
    return fits_window(lost->bytes) ? Next::lost : Next::nothing;
  if (flight_.next() == end_ || flight_.outstanding() >= most_segments_ ||
      flight_.next() - flight_.head() >= range_)
    return Next::nothing;
  // A short last segment counts in full: one comparison here instead of a search for its operation.
  return fits_window(segment_bytes_) ? Next::fresh : Next::nothing;
}

bool Stream::ready() const { return what_next() != Next::nothing; }

bool Stream::transmit(Outgoing& out, Time now) {
  switch (what_next()) {
    case Next::nothing:
      return false;
    case Next::urgent: {
      Segment& segment = *flight_.first_urgent();
      flight_.send_again(segment, now);
      write(segment, out);
      return true;
    }
    case Next::lost: {
      Segment& segment = *flight_.first_lost();
      flight_.send_again(segment, now);
      write(segment, out);
      return true;
    }
    case Next::fresh:
      break;
  }
  sending_ = std::max(sending_, operations_.begin());
  while (flight_.next() >= operations_.at(sending_).first + operations_.at(sending_).segments)
    ++sending_;
  const Operation& operation = operations_.at(sending_);
  Segment& segment = flight_.send_new(sending_, bytes_at(operation, flight_.next()), now);
  recovery_.sent(flight_.outstanding(), now);
  write(segment, out);
  return true;
}

void Stream::write(const Segment& segment, Outgoing& out) {
  const Operation& operation = operations_.at(segment.operation);
  const std::uint64_t offset = (segment.position - operation.first) * segment_bytes_;
  wire::Header header;
  header.type = wire::Type::contribution;
  header.flags = static_cast<std::uint8_t>(wire::DataType::float32);
  if (segment.retransmitted) header.flags |= wire::flag::retransmit;
  if (echo_mark_) header.flags |= wire::flag::ecn_echo;
  echo_mark_ = false;
  header.job = options_.job;
  header.member = member_;
  header.round = round_of(segment.position);
  header.segment = slot_of(segment.position);
  header.set = wire::contribution_set(operation.tag, 1);
  wire::write_header(header, out.head.data());
  out.head_size = wire::header_bytes;
  out.shard = static_cast<std::uint16_t>(header.segment % shards_);
  const auto ecn = options_.ecn ? wire::Ecn::ect0 : wire::Ecn::not_ect;
  out.tos = static_cast<std::uint8_t>(options_.data_tos | static_cast<std::uint8_t>(ecn));
  out.payload = contribution(operation.request, rank_, offset, segment.bytes);
  ++statistics_.contributions_sent;
  if (segment.retransmitted)
    ++statistics_.retransmissions;
  else
    statistics_.gradient_bytes_sent += out.payload.size();
}

void Stream::tick(Time now) {
  if (!active_ || paused_) return;
  detect(now);
  if (recovery_.timed_out(flight_, now)) ++statistics_.timeouts;
}

Time Stream::next_deadline() const {
  return active_ && !paused_ ? recovery_.next_deadline(flight_.outstanding()) : never;
}

void Stream::describe(Statistics& statistics) const {
  statistics.window_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      std::visit([](const auto& control) { return control.window_bytes(); }, congestion_),
      UINT32_MAX));
  statistics.in_flight_bytes = static_cast<std::uint32_t>(flight_.bytes_in_flight());
  statistics.smoothed_rtt = recovery_.round_trip().smoothed();
  statistics.retransmit_timeout = recovery_.timeout();
}

}  // namespace iswitch::agent
