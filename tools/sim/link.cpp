#include "tools/sim/link.h"

#include <algorithm>
#include <cstring>

#include "wire/checksum.h"
#include "wire/frame.h"

namespace iswitch::sim {

namespace {

constexpr std::uint32_t min_frame_bytes = 60;
constexpr std::uint32_t line_overhead_bytes = 24;  // preamble 8, FCS 4, inter-frame gap 12
constexpr std::size_t tos_offset = wire::ethernet_bytes + 1;
constexpr std::size_t ip_checksum_offset = wire::ethernet_bytes + 10;
constexpr std::size_t udp_checksum_offset = wire::ethernet_bytes + wire::ipv4_bytes + 6;

bool is_ipv4(Bytes frame) {
  return frame.size() >= wire::ethernet_bytes + wire::ipv4_bytes && frame[12] == 0x08 &&
         frame[13] == 0x00;
}

void refresh_ip_checksum(std::span<std::uint8_t> frame) {
  std::memset(&frame[ip_checksum_offset], 0, 2);
  const auto field = wire::checksum_field(
      wire::partial_sum(Bytes{frame.data() + wire::ethernet_bytes, wire::ipv4_bytes}));
  std::memcpy(&frame[ip_checksum_offset], &field, 2);
}

}  // namespace

Link::Link(World& world, const LinkSpec& spec, std::uint16_t from_node, EventHandler& to,
           std::uint32_t to_port, Random random)
    : world_(world),
      spec_(spec),
      from_node_(from_node),
      to_(to),
      to_port_(to_port),
      random_(random) {}

std::uint64_t Link::queued(Time now) {
  while (!waiting_.empty() && waiting_.front().departs <= now) {
    queued_bytes_ -= waiting_.front().bytes;
    waiting_.pop_front();
  }
  return queued_bytes_;
}

Time Link::send(FrameRef frame) {
  const Time now = world_.now();
  const std::uint32_t size = frame.size();
  ++counters_.sent;
  const std::uint64_t before = queued(now);
  if (before + size > spec_.queue_bytes) {
    ++counters_.overflow;
    world_.trace.add(now, What::overflow, from_node_, to_port_, size);
    return now;
  }
  mark(frame, before);

  LinkFaults& faults = spec_.faults;
  Time start = std::max(now, line_free_);
  if (random_.chance(faults.spike)) {
    ++counters_.spikes;
    start += random_.between(0, faults.spike_delay);
    world_.trace.add(now, What::spike, from_node_, to_port_, size);
  }
  const std::uint64_t line_bytes = std::max(size, min_frame_bytes) + line_overhead_bytes;
  const Time on_line =
      spec_.bits_per_second == 0
          ? 0
          : static_cast<Time>(line_bytes * 8 * 1'000'000'000 / spec_.bits_per_second);
  const Time departs = start + on_line;
  line_free_ = departs;
  waiting_.push_back({departs, size});
  queued_bytes_ += size;
  counters_.deepest_queue = std::max(counters_.deepest_queue, queued_bytes_);
  counters_.bytes += size;

  if (departs < cut_until_) {
    ++counters_.cut;
    world_.trace.add(now, What::lost, from_node_, to_port_, size);
    return departs;
  }
  Time arrives = departs + spec_.delay;
  if (!faults.any()) {
    deliver(std::move(frame), arrives);
    return departs;
  }
  if (random_.chance(faults.loss)) {
    ++counters_.lost;
    world_.trace.add(now, What::lost, from_node_, to_port_, size);
    return departs;
  }
  if (random_.chance(faults.duplicate)) {
    ++counters_.duplicated;
    world_.trace.add(now, What::duplicated, from_node_, to_port_, size);
    deliver(frame, arrives + random_.between(0, faults.reorder_delay));
  }
  if (random_.chance(faults.corrupt)) corrupt(frame);
  if (random_.chance(faults.reorder)) {
    ++counters_.reordered;
    arrives += random_.between(0, faults.reorder_delay);
    world_.trace.add(now, What::reordered, from_node_, to_port_, size);
  }
  deliver(std::move(frame), arrives);
  return departs;
}

void Link::deliver(FrameRef frame, Time at) {
  ++counters_.delivered;
  if (!arriving_.empty() && at < arriving_.back().at) {  // overtakes: an event of its own
    world_.queue.schedule(at, *this, stray_kind, 0, frame.detach());
    return;
  }
  arriving_.push_back({at, std::move(frame)});
  if (arriving_.size() == 1) world_.queue.schedule(at, *this, next_kind);
}

void Link::handle(const Event& event) {
  if (event.kind == stray_kind) {
    give(FrameRef::attach(event.object));
    return;
  }
  FrameRef frame = std::move(arriving_.front().frame);
  arriving_.pop_front();
  if (!arriving_.empty()) world_.queue.schedule(arriving_.front().at, *this, next_kind);
  give(std::move(frame));
}

void Link::give(FrameRef frame) {
  if (tap_ != nullptr) tap_->crossed(world_.now(), tap_tag_, frame.view());
  Event arrival;
  arrival.at = world_.now();
  arrival.handler = &to_;
  arrival.kind = arrival_event;
  arrival.value = to_port_;
  arrival.object = frame.detach();
  to_.handle(arrival);
}

void Link::mark(FrameRef& frame, std::uint64_t queued) {
  if (spec_.ecn_threshold_bytes == 0 || queued < spec_.ecn_threshold_bytes) return;
  if (!is_ipv4(frame.view())) return;
  const auto ecn = static_cast<wire::Ecn>(frame.view()[tos_offset] & 3U);
  if (ecn == wire::Ecn::not_ect || ecn == wire::Ecn::ce) return;
  const auto bytes = frame.own();
  bytes[tos_offset] |= static_cast<std::uint8_t>(wire::Ecn::ce);
  refresh_ip_checksum(bytes);
  ++counters_.marked;
  world_.trace.add(world_.now(), What::marked, from_node_, to_port_, frame.size());
}

// The Ethernet header is left alone: every hop's frame check sequence covers it, and a wrong source
// address would be learned for good. A burst of at most 15 bits is always found by the checksums,
// unless it makes the UDP checksum 0 ("none"), which is avoided.
void Link::corrupt(FrameRef& frame) {
  const std::uint32_t size = frame.size();
  const std::size_t first = spec_.faults.reseal ? wire::payload_offset : wire::ethernet_bytes;
  if (size <= first) return;
  const auto bytes = frame.own();
  const auto burst = static_cast<std::uint32_t>(random_.below(0x8000)) | 1U;
  const std::uint64_t bits = (size - first) * 8;
  const std::uint64_t start = random_.below(bits);
  for (std::uint64_t i = 0; i < 15 && start + i < bits; ++i) {
    if (((burst >> i) & 1U) == 0) continue;
    bytes[first + (start + i) / 8] ^= static_cast<std::uint8_t>(0x80U >> ((start + i) % 8));
  }
  if (size > udp_checksum_offset + 1 && bytes[udp_checksum_offset] == 0 &&
      bytes[udp_checksum_offset + 1] == 0) {
    bytes[udp_checksum_offset] = 0x55;
  }
  if (spec_.faults.reseal) {
    std::memset(&bytes[udp_checksum_offset], 0, 2);
    wire::set_udp_checksum(bytes);
  }
  ++counters_.corrupted;
  world_.trace.add(world_.now(), What::corrupted, from_node_, to_port_,
                   static_cast<std::uint32_t>(start));
}

}  // namespace iswitch::sim
