#include "agent/engine/in_flight.h"

#include <algorithm>
#include <utility>

namespace iswitch::agent {

void InFlight::begin(std::uint32_t segment_bytes, std::uint32_t most_segments, Time now) {
  segment_bytes_ = segment_bytes;
  most_segments_ = most_segments;
  recovery_.reset();
  recovery_.each_for_itself(flight_.is_table());
  congestion_ = Reno({.segment_bytes = segment_bytes,
                      .max_window_bytes = std::uint64_t{most_segments} * segment_bytes});
  echo_mark_ = false;
  resume(now);
}

void InFlight::again(Time now) {
  flight_.lose_all();
  begin(segment_bytes_, most_segments_, now);
}

void InFlight::stop() {
  flight_.clear();
  recovery_.reset();
}

void InFlight::pause() {
  paused_ = true;
  recovery_.pause();
}

void InFlight::resume(Time now) {
  paused_ = false;
  recovery_.resume(now);
}

bool InFlight::fits_window(std::uint64_t bytes) const {
  if (flight_.bytes_in_flight() == 0) return true;
  const std::uint64_t window =
      std::visit([](const auto& control) { return control.window_bytes(); }, congestion_);
  return flight_.bytes_in_flight() + bytes <= window;
}

void InFlight::iteration(std::uint64_t bytes, Time now) {
  std::visit([&](auto& control) { control.on_iteration_start(now, bytes); }, congestion_);
}

void InFlight::acknowledge(std::uint64_t position, bool marked, Time now) {
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

void InFlight::detect(Time now) {
  recovery_.detect(flight_, now, [&](const Segment& segment) {
    std::visit([&](auto& control) { control.on_loss(now, segment.last_sent); }, congestion_);
  });
}

const Segment* InFlight::due() const {
  if (const Segment* urgent = flight_.first_urgent(); urgent != nullptr) return urgent;
  const Segment* lost = flight_.first_lost();
  return lost != nullptr && fits_window(lost->bytes) ? lost : nullptr;
}

Segment* InFlight::due() { return const_cast<Segment*>(std::as_const(*this).due()); }

void InFlight::address(const wire::Header& header, std::uint16_t shards, Outgoing& out) const {
  wire::write_header(header, out.head.data());
  out.head_size = wire::header_bytes;
  out.shard = static_cast<std::uint16_t>(header.segment % shards);
  const auto ecn = options_.ecn ? wire::Ecn::ect0 : wire::Ecn::not_ect;
  out.tos = static_cast<std::uint8_t>(options_.data_tos | static_cast<std::uint8_t>(ecn));
}

void InFlight::write(const Segment& segment, const Contribution& contribution, Outgoing& out) {
  wire::Header header;
  header.type = wire::Type::contribution;
  header.flags = static_cast<std::uint8_t>(wire::DataType::float32);
  if (segment.retransmitted) header.flags |= wire::flag::retransmit;
  if (echo_mark_) header.flags |= wire::flag::ecn_echo;
  echo_mark_ = false;
  header.job = options_.job;
  header.member = contribution.member;
  header.round = contribution.round;
  header.segment = contribution.segment;
  header.set = wire::contribution_set(contribution.tag, 1);
  address(header, contribution.shards, out);
  out.payload = contribution.payload;
  ++statistics_.contributions_sent;
  if (segment.retransmitted)
    ++statistics_.retransmissions;
  else
    statistics_.gradient_bytes_sent += out.payload.size();
}

void InFlight::tick(Time now) {
  if (paused_) return;
  detect(now);
  if (recovery_.timed_out(flight_, now)) ++statistics_.timeouts;
}

Time InFlight::next_deadline() const {
  return paused_ ? never : recovery_.next_deadline(flight_.outstanding());
}

void InFlight::describe(Statistics& statistics) const {
  statistics.window_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      std::visit([](const auto& control) { return control.window_bytes(); }, congestion_),
      UINT32_MAX));
  statistics.in_flight_bytes = static_cast<std::uint32_t>(flight_.bytes_in_flight());
  statistics.smoothed_rtt = recovery_.round_trip().smoothed();
  statistics.retransmit_timeout = recovery_.timeout();
}

}  // namespace iswitch::agent
