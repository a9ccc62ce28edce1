#include "tools/sim/intruder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/bytes.h"
#include "wire/checksum.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace iswitch::sim {

Intruder::Intruder(World& world, const wire::Endpoint& own, const datapath::SwitchAddress& node,
                   std::uint16_t number, Random random)
    : world_(world), own_(own), node_(node), number_(number), random_(random) {}

void Intruder::start(Time interval, Time until) {
  interval_ = interval;
  until_ = until;
  if (interval_ > 0 && !targets_.empty()) schedule_next();
}

void Intruder::schedule_next() {
  const Time at = world_.now() + 1 + random_.exponential(interval_);
  if (at < until_) world_.queue.schedule(at, *this, send_kind);
}

void Intruder::handle(const Event& event) {
  if (event.kind == arrival_event) {
    const FrameRef frame = FrameRef::attach(event.object);
    ++arrived_;
    world_.trace.arrival(world_.now(), number_, 0, frame.view());
    return;
  }
  FrameRef frame = make();
  if (random_.chance(0.2)) damage(frame);
  ++sent_;
  out_->send(std::move(frame));
  schedule_next();
}

FrameRef Intruder::make() {
  switch (random_.below(5)) {
    case 0:
    case 1:
      return contribution();
    case 2:
      return control();
    case 3:
      return ordinary();
    default:
      return noise();
  }
}

HostNode* Intruder::victim(const Target& target) {
  return target.members[random_.below(target.members.size())];
}

FrameRef Intruder::enclose(const wire::Endpoint& from, std::uint8_t tos, Bytes message) {
  FrameRef frame = world_.frames.make(wire::encapsulation_bytes + message.size());
  const auto bytes = frame.own();
  wire::Route route;
  route.from = from;
  route.to = {
      node_.mac, node_.rules.ip,
      static_cast<std::uint16_t>(node_.rules.udp_port + random_.below(node_.rules.ports + 1U))};
  route.tos = tos;
  const std::size_t length = bytes.size() - wire::encapsulation_bytes;
  wire::write_encapsulation(route, length, bytes.data());
  std::copy_n(message.begin(), length, bytes.begin() + wire::encapsulation_bytes);
  wire::set_udp_checksum(bytes);
  return frame;
}

FrameRef Intruder::contribution() {
  const Target& target = targets_[random_.below(targets_.size())];
  HostNode* host = victim(target);
  agent::Engine* engine = host->engine();
  wire::Header header;
  header.type = random_.chance(0.9) ? wire::Type::contribution : wire::Type::result;
  header.flags = random_.chance(0.8) ? 0 : static_cast<std::uint8_t>(random_.next() & ~0xC4U);
  header.job = random_.chance(0.9) ? target.job : static_cast<std::uint16_t>(random_.next());
  header.member = engine != nullptr ? engine->member() : 0;
  header.round = (engine != nullptr ? engine->job().base_round : 0) +
                 static_cast<std::uint32_t>(random_.below(5));
  header.segment = static_cast<std::uint32_t>(random_.below(target.slots + 1));
  header.set = wire::contribution_set(static_cast<std::uint32_t>(random_.next()), 1);
  std::vector<std::uint8_t> message(
      wire::header_bytes + (random_.chance(0.5) ? target.segment_bytes : 4 * random_.below(9)));
  wire::write_header(header, message.data());
  for (std::size_t i = wire::header_bytes; i < message.size(); i += 4)
    message[i + 3] = 0x47;  // 32768
  // In its own name, or in the member's: the ingress port tells.
  const bool own_name = random_.chance(0.3);
  return enclose(own_name ? own_ : host->spec().endpoint, node_.rules.data_tos, message);
}

// Never a Join that a job without a key would have to believe.
FrameRef Intruder::control() {
  const Target& target = targets_[random_.below(targets_.size())];
  HostNode* host = victim(target);
  const wire::Endpoint from = random_.chance(0.5) ? own_ : host->spec().endpoint;
  wire::ControlHeader header;
  header.job = target.job;
  header.member = host->up() ? host->engine()->member() : wire::no_member;
  header.request_id = static_cast<std::uint32_t>(random_.below(100));
  header.nonce = random_.chance(0.5) ? ~std::uint64_t{0} : random_.next();
  const wire::Client client{{}, from.ip, from.udp_port};
  wire::ControlDatagram datagram;
  switch (random_.below(target.has_key ? 6 : 5)) {
    case 0:
      header.action = random_.chance(0.5) ? wire::Action::halt : wire::Action::leave;
      datagram = wire::write_plain_request(header, client);
      break;
    case 1:
      header.action = wire::Action::reset;
      datagram = wire::write_reset(header, static_cast<std::uint32_t>(random_.next()), client);
      break;
    case 2:
      header.action = wire::Action::set_threshold;
      datagram =
          wire::write_set_threshold(header, static_cast<std::uint16_t>(random_.below(70)), client);
      break;
    case 3:
      header.action = random_.chance(0.5) ? wire::Action::force_broadcast : wire::Action::help;
      datagram = wire::write_slot_request(
          header, {static_cast<std::uint32_t>(random_.below(target.slots + 1)), 0}, client);
      break;
    case 4: {
      wire::ReplyBody body;
      body.missing = random_.next();
      header.action = wire::Action::reset;
      datagram = wire::write_reply(header, body, client);
      break;
    }
    default: {
      wire::JoinBody body;
      body.max_segment_bytes = wire::max_segment_bytes;
      body.incarnation = static_cast<std::uint32_t>(random_.next());
      header.action = wire::Action::join;
      datagram = wire::write_join(header, body, client);
      break;
    }
  }
  return enclose(from, node_.rules.control_tos, datagram.view());
}

// ARP and ping for the switch, and frames for hosts known and unknown.
FrameRef Intruder::ordinary() {
  const Target& target = targets_[random_.below(targets_.size())];
  const wire::Endpoint to = victim(target)->spec().endpoint;
  if (random_.chance(0.3)) {
    FrameRef frame = world_.frames.make(60);
    const auto b = frame.own();
    std::fill(b.begin(), b.end(), std::uint8_t{0});
    std::fill_n(b.begin(), 6, std::uint8_t{0xFF});
    std::copy_n(own_.mac.bytes.begin(), 6, b.begin() + 6);
    const std::uint8_t arp[] = {0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1};
    std::copy(std::begin(arp), std::end(arp), b.begin() + 12);
    std::copy_n(own_.mac.bytes.begin(), 6, b.begin() + 22);
    wire::store_be32(&b[28], own_.ip.value);
    wire::store_be32(&b[38], random_.chance(0.7) ? node_.rules.ip.value : to.ip.value);
    return frame;
  }
  const std::uint8_t data[200] = {};
  wire::Route route{own_, to, 0};
  if (random_.chance(0.3)) route.to.mac.bytes[5] ^= 0x80;  // nobody: flooded
  if (random_.chance(0.3)) route.to = {node_.mac, node_.rules.ip, 9};
  FrameRef frame = world_.frames.make(wire::encapsulation_bytes + random_.below(sizeof data));
  const auto bytes = frame.own();
  const std::size_t length = bytes.size() - wire::encapsulation_bytes;
  wire::write_encapsulation(route, length, bytes.data());
  std::copy_n(data, length, bytes.begin() + wire::encapsulation_bytes);
  wire::set_udp_checksum(bytes);
  return frame;
}

FrameRef Intruder::noise() {
  FrameRef frame = random_.chance(0.5) ? contribution() : world_.frames.make(random_.below(200));
  const auto bytes = frame.own();
  const std::size_t first =
      random_.chance(0.7) ? std::min<std::size_t>(bytes.size(), 14 + random_.below(60)) : 0;
  for (std::size_t i = first; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(random_.next());
  // With a right checksum what lies behind it is looked at.
  if (bytes.size() > wire::payload_offset && first >= wire::encapsulation_bytes)
    wire::set_udp_checksum(bytes);
  return frame;
}

// One byte changed, checksums made right again or not; or the frame cut short.
void Intruder::damage(FrameRef& frame) {
  if (frame.size() == 0) return;
  if (random_.chance(0.3)) {
    frame = world_.frames.copy(frame.view().first(random_.below(frame.size())));
    return;
  }
  const auto bytes = frame.own();
  const std::size_t place = random_.below(bytes.size());
  bytes[place] = static_cast<std::uint8_t>(random_.next());
  if (bytes.size() > wire::payload_offset && random_.chance(0.7)) {
    std::memset(&bytes[wire::ethernet_bytes + 10], 0, 2);
    const auto field = wire::checksum_field(
        wire::partial_sum(Bytes{bytes.data() + wire::ethernet_bytes, wire::ipv4_bytes}));
    std::memcpy(&bytes[wire::ethernet_bytes + 10], &field, 2);
    wire::set_udp_checksum(bytes);
  }
}

}  // namespace iswitch::sim
