#include "tools/sim/host_node.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "wire/bytes.h"
#include "wire/frame.h"

namespace iswitch::sim {

HostNode::HostNode(World& world, HostSpec spec, std::uint16_t number, Random random)
    : world_(world), spec_(std::move(spec)), number_(number), random_(random) {}

void HostNode::start(agent::EngineOptions options) {
  const Time now = world_.now();
  options.own_ip = spec_.endpoint.ip;
  options.own_port = spec_.endpoint.udp_port;
  options.switch_ip = spec_.switch_endpoint.ip;
  options.switch_port = spec_.switch_endpoint.udp_port;
  options.receive_datagrams = spec_.receive_datagrams;
  options.start_time = now;
  options.start_unix_microseconds =
      spec_.unix_microseconds + static_cast<std::uint64_t>(now / microsecond);
  world_.trace.add(now, What::start, number_, options.incarnation);
  engine_.emplace(std::move(options));
  last_state_ = engine_->state();
  wake_at(now);
}

void HostNode::crash() {
  if (!up()) return;
  world_.trace.add(world_.now(), What::crash, number_);
  engine_.reset();
  buffer_.clear();
  wake_time_ = never;
}

void HostNode::wake_at(Time at) {
  at = std::max({at, world_.now(), paused_until_});
  if (!up() || at >= wake_time_) return;
  wake_time_ = at;
  world_.queue.schedule(at, *this, wake_kind);
}

void HostNode::handle(const Event& event) {
  if (event.kind == arrival_event) {
    receive(FrameRef::attach(event.object));
    return;
  }
  // An event whose time was superseded by an earlier one finds another wake time.
  if (!up() || wake_time_ != world_.now()) return;
  wake_time_ = never;
  if (world_.now() < paused_until_) {
    wake_at(paused_until_);
    return;
  }
  wake();
}

void HostNode::receive(FrameRef frame) {
  const Time now = world_.now();
  ++totals_.arrived;
  world_.trace.arrival(now, number_, 0, frame.view());
  if (!up()) {
    ++totals_.while_down;
    return;
  }
  const Bytes bytes = frame.view();
  if (bytes.size() < wire::ethernet_bytes ||
      std::memcmp(bytes.data(), spec_.endpoint.mac.bytes.data(), 6) != 0) {
    ++totals_.not_mine;
    return;
  }
  wire::FrameRules rules;
  rules.ip = spec_.endpoint.ip;
  rules.udp_port = spec_.endpoint.udp_port;
  wire::Packet packet;
  const auto parsed = wire::parse_frame(rules, bytes, {}, packet);
  if (parsed.origin != wire::Origin::ours || parsed.fault != wire::Fault::none) {
    ++totals_.malformed;
    return;
  }
  if (packet.source.ip != spec_.switch_endpoint.ip ||
      packet.source.udp_port != spec_.switch_endpoint.udp_port) {
    ++totals_.foreign;
    return;
  }
  if (buffer_.size() >= spec_.receive_datagrams) {
    ++totals_.overrun;
    return;
  }
  ++totals_.received;
  const auto size = static_cast<std::uint32_t>(wire::header_bytes + packet.message.payload.size());
  buffer_.push_back({std::move(frame), wire::encapsulation_bytes, size, packet.ecn});
  wake_at(now + random_.around(spec_.wake_delay, 0.9));
}

void HostNode::wake() {
  const Time now = world_.now();
  const std::uint64_t sent_before = out_->counters().sent;
  const bool had_input = !buffer_.empty();
  while (!buffer_.empty()) {
    const Datagram datagram = std::move(buffer_.front());
    buffer_.pop_front();
    engine_->receive(datagram.frame.view().subspan(datagram.offset, datagram.size), datagram.ecn,
                     now);
  }
  take_completions(now);
  engine_->tick(now);
  take_completions(now);
  program_->run(*engine_, now);
  if (!up()) return;
  transmit(now);
  take_completions(now);
  if (engine_->state() != last_state_) {
    last_state_ = engine_->state();
    world_.trace.add(now, What::state, number_, static_cast<std::uint32_t>(last_state_),
                     engine_->job().base_round);
  }

  const bool busy = had_input || out_->counters().sent != sent_before;
  idle_wakes_ = busy || now > last_wake_ + microsecond ? 0 : idle_wakes_ + 1;
  last_wake_ = now;
  if (idle_wakes_ == 1000) {
    world_.violation(
        "idle", spec_.name + ": the engine asks to be called again and again, with nothing to do");
  }
  if (spec_.bug == HostBug::sleep_late) {
    wake_at(now + 3 * second);
    return;
  }
  if (spec_.bug == HostBug::wake_for_nothing) {
    wake_at(now + 100);
    return;
  }
  const Time next = std::min(engine_->next_deadline(), program_->next_run());
  if (next != never) wake_at(std::max(next, now + 100));
}

void HostNode::take_completions(Time now) {
  while (auto completion = engine_->take_completion()) {
    program_->completed(*completion, *engine_, now);
  }
}

void HostNode::transmit(Time now) {
  std::array<agent::Outgoing, 32> out;
  while (true) {
    const std::size_t count = engine_->transmit(out, now);
    for (std::size_t i = 0; i < count; ++i) {
      const agent::Outgoing& datagram = out[i];
      const std::size_t message = datagram.head_size + datagram.payload.size();
      FrameRef frame = world_.frames.make(wire::encapsulation_bytes + message);
      const auto bytes = frame.own();
      wire::Route route{spec_.endpoint, spec_.switch_endpoint, datagram.tos};
      route.to.udp_port = static_cast<std::uint16_t>(route.to.udp_port + datagram.shard);
      wire::write_encapsulation(route, message, bytes.data());
      std::memcpy(&bytes[wire::encapsulation_bytes], datagram.head.data(), datagram.head_size);
      if (!datagram.payload.empty()) {
        std::memcpy(&bytes[wire::encapsulation_bytes + datagram.head_size], datagram.payload.data(),
                    datagram.payload.size());
      }
      if (spec_.bug == HostBug::wrong_slot) plant(bytes);
      wire::set_udp_checksum(bytes);
      out_->send(std::move(frame));
    }
    if (count < out.size()) return;
  }
}

// Now and then a filled contribution that its receiver cannot tell from the next slot's.
void HostNode::plant(std::span<std::uint8_t> frame) {
  const std::size_t header = wire::encapsulation_bytes;
  if (frame.size() <= wire::payload_offset || frame[header] != wire::protocol_version << 4) return;
  if (++planted_ % 100 != 0) return;
  wire::store_be32(&frame[header + 10], wire::load_be32(&frame[header + 10]) + 1);
}

}  // namespace iswitch::sim
