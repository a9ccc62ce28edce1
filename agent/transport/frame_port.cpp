#include "agent/transport/frame_port.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "agent/transport/clock.h"
#include "wire/bytes.h"

namespace iswitch::agent {

namespace {

constexpr Time look_interval = 20 * millisecond;
constexpr Time reconnect_interval = 100 * millisecond;
/// The switch may have another MAC when it has not been heard for so long.
constexpr Time doubt_after = second;
constexpr Time ask_interval = 100 * millisecond;
constexpr std::chrono::microseconds open_poll{200};
/// The clock is read once in so many polls without a frame.
constexpr unsigned polls_between_looks = 64;

constexpr std::uint16_t ethertype_arp = 0x0806;
constexpr std::size_t shortest_frame = 60;  // without FCS
constexpr std::size_t destination_port_at =
    wire::ethernet_bytes + wire::ipv4_bytes + 2;  // where an IPv4 header has no options

std::uint16_t random_port(std::uint16_t users) {
  std::uint16_t value = 0;
  static_cast<void>(!getrandom(&value, sizeof value, 0));
  constexpr unsigned first = 49'152, end = 65'536;  // the dynamic ports
  return static_cast<std::uint16_t>(first + value % (end - first - users));
}

/// Of a host that announces, unasked and to all, which MAC has its address now (RFC 5227): a
/// standby that takes over. Request or reply, the address is in both of its places.
std::optional<wire::Mac> announced(wire::Ipv4 ip, const wire::Mac& own, Bytes frame) {
  constexpr std::size_t arp_bytes = 28;
  if (frame.size() < wire::ethernet_bytes + arp_bytes ||
      wire::load_be16(frame.data() + 12) != ethertype_arp)
    return std::nullopt;
  const std::uint8_t* const arp = frame.data() + wire::ethernet_bytes;
  static constexpr std::array<std::uint8_t, 7> kind{0, 1, 8, 0, 6, 4, 0};
  if (!std::equal(kind.begin(), kind.end(), arp) || (arp[7] != 1 && arp[7] != 2) ||
      wire::load_be32(arp + 14) != ip.value || wire::load_be32(arp + 24) != ip.value)
    return std::nullopt;
  wire::Mac mac;
  std::copy_n(arp + 8, mac.bytes.size(), mac.bytes.begin());
  if (mac.is_group() || mac == own || mac == wire::Mac{}) return std::nullopt;
  return mac;
}

}  // namespace

std::variant<std::unique_ptr<FramePort>, Error> FramePort::open(const FramePortOptions& options) {
  const Time patience = options.device.patience;
  const Time deadline = monotonic_now() + std::min(patience, never / 2);
  auto opened = open_frame_device(options.device);
  if (auto* error = std::get_if<Error>(&opened)) return std::move(*error);
  auto device = std::get<std::unique_ptr<FrameDevice>>(std::move(opened));
  FramePortOptions own = options;
  if (own.local_port == 0) own.local_port = random_port(own.users);
  std::unique_ptr<FramePort> port(new FramePort(std::move(device), own));
  std::string problem = port->wait_for_link(deadline);
  if (problem.empty()) problem = port->wait_for_switch(deadline);
  if (problem.empty()) return port;
  return device_error("device " + port->device_->name() + ": " + problem + " (waited " +
                      std::to_string(patience / millisecond) + " ms)");
}

FramePort::FramePort(std::unique_ptr<FrameDevice> device, const FramePortOptions& options)
    : device_(std::move(device)), options_(options), local_(device_->mac(), options.local_ip) {
  rules_.ip = options.local_ip;
}

std::string FramePort::wait_for_link(Time deadline) {
  while (!device_->link_is_up()) {
    const Time now = monotonic_now();
    if (now >= deadline) return "its link does not come up" + device_->link_advice();
    look_after(now);
    std::this_thread::sleep_for(open_poll);
  }
  link_up_ = true;
  return {};
}

std::string FramePort::wait_for_switch(Time deadline) {
  Time ask_at = 0;
  while (switch_mac_ == wire::Mac{}) {
    const Time now = monotonic_now();
    if (now >= deadline) {
      return "nobody answers to ARP for " + wire::to_string(options_.switch_ip) +
             "; check the switch's address, that it is at the other end, and that " +
             wire::to_string(options_.local_ip) + " is in its network and nobody else's";
    }
    look_after(now);
    if (now >= ask_at) {
      ask_for_switch();
      ask_at = now + ask_interval;
    }
    receive();
    if (drained_) std::this_thread::sleep_for(open_poll);
  }
  return {};
}

// ---- sending

std::uint16_t FramePort::write(const Outgoing& datagram, std::uint16_t user,
                               std::uint8_t* out) const {
  const std::size_t message = datagram.head_size + datagram.payload.size();
  const std::size_t size = wire::encapsulation_bytes + message;
  const wire::Route route{{device_->mac(), options_.local_ip, local_port(user)},
                          {switch_mac_, options_.switch_ip,
                           static_cast<std::uint16_t>(options_.switch_port + datagram.shard)},
                          datagram.tos};
  wire::write_encapsulation(route, message, out);
  std::uint8_t* const head = out + wire::encapsulation_bytes;
  std::memcpy(head, datagram.head.data(), datagram.head_size);
  if (!datagram.payload.empty()) {
    std::memcpy(head + datagram.head_size, datagram.payload.data(), datagram.payload.size());
  }
  wire::set_udp_checksum({out, size});
  return static_cast<std::uint16_t>(size);
}

void FramePort::send(std::span<const Outgoing> datagrams, std::uint16_t user) {
  const std::size_t most = device_->mtu() + wire::ethernet_bytes;
  while (!datagrams.empty()) {
    const auto wanted =
        static_cast<unsigned>(std::min<std::size_t>(datagrams.size(), FrameDevice::burst));
    const auto buffers = device_->reserve(wanted);
    if (buffers.empty()) break;
    std::array<std::uint16_t, FrameDevice::burst> sizes;
    std::size_t used = 0;
    for (const Outgoing& datagram : datagrams.first(buffers.size())) {
      if (wire::encapsulation_bytes + datagram.head_size + datagram.payload.size() > most) {
        too_long_ = true;
        ++counts_.send_errors;
        continue;
      }
      sizes[used] = write(datagram, user, buffers[used]);
      ++used;
    }
    device_->commit({sizes.data(), used});
    ++counts_.send_calls;
    counts_.datagrams_sent += used;
    datagrams = datagrams.subspan(buffers.size());
  }
  counts_.send_errors += datagrams.size();  // the engine sends them again in time
}

void FramePort::flush() { device_->flush(); }

void FramePort::send_bytes(Bytes frame) {
  const auto buffers = device_->reserve(1);
  if (buffers.empty() || frame.size() > device_->mtu() + wire::ethernet_bytes) return;
  std::memcpy(buffers[0], frame.data(), frame.size());
  const auto size = static_cast<std::uint16_t>(frame.size());
  device_->commit({&size, 1});
}

// ---- receiving

bool FramePort::unpack(const FrameDevice::Frame& frame, Received& received) {
  if (frame.bytes.size() < wire::encapsulation_bytes) return false;
  // Each user is an address of its own; the rules are of the one that the frame names.
  const std::uint16_t udp_port = wire::load_be16(&frame.bytes[destination_port_at]);
  const auto user = static_cast<std::uint16_t>(udp_port - options_.local_port);
  if (user >= options_.users) return false;
  rules_.udp_port = udp_port;
  wire::Packet packet;
  const wire::ParsedFrame parsed = wire::parse_frame(rules_, frame.bytes, frame.verified, packet);
  if (parsed.origin != wire::Origin::ours || parsed.fault != wire::Fault::none ||
      packet.source.ip != options_.switch_ip || packet.source.udp_port != options_.switch_port) {
    return false;
  }
  const std::size_t message = wire::header_bytes + packet.message.payload.size();
  received = {frame.bytes.subspan(wire::encapsulation_bytes, message), packet.ecn, user};
  return true;
}

std::span<const Received> FramePort::receive() {
  received_.clear();
  const auto frames = device_->receive();
  ++counts_.receive_calls;
  drained_ = frames.size() < FrameDevice::burst;
  if (frames.empty()) {
    if (++quiet_polls_ % polls_between_looks == 0) look_after(monotonic_now());
    return {};
  }
  for (const FrameDevice::Frame& frame : frames) {
    Received received;
    if (unpack(frame, received)) {
      received_.push_back(received);
    } else {
      answer(frame.bytes);
    }
  }
  counts_.datagrams_received += received_.size();
  if (!received_.empty()) too_long_ = false;
  return received_;
}

bool FramePort::arm() {
  look_after(monotonic_now());
  return device_->arm();
}

void FramePort::answer(Bytes frame) {
  if (const auto mac = local_.arp_reply_from(options_.switch_ip, frame)) {
    switch_mac_ = *mac;
    heard_at_ = monotonic_now();
    return;
  }
  if (const auto mac = announced(options_.switch_ip, device_->mac(), frame)) {
    switch_mac_ = *mac;
    return;
  }
  if (const auto outcome = local_.handle(frame); !outcome.reply.empty()) send_bytes(outcome.reply);
}

// ---- the link and the switch

void FramePort::ask_for_switch() {
  std::array<std::uint8_t, shortest_frame> frame{};
  std::fill_n(frame.begin(), 6, std::uint8_t{0xFF});
  const wire::Mac own = device_->mac();
  std::copy(own.bytes.begin(), own.bytes.end(), frame.begin() + 6);
  wire::store_be16(&frame[12], ethertype_arp);
  // RFC 826: hardware type 1, protocol 0x0800, address lengths 6 and 4, operation 1: a request.
  static constexpr std::array<std::uint8_t, 8> request{0, 1, 8, 0, 6, 4, 0, 1};
  std::uint8_t* const arp = frame.data() + wire::ethernet_bytes;
  std::copy(request.begin(), request.end(), arp);
  std::copy(own.bytes.begin(), own.bytes.end(), arp + 8);
  wire::store_be32(arp + 14, options_.local_ip.value);
  wire::store_be32(arp + 24, options_.switch_ip.value);
  send_bytes(frame);
}

/// Nothing has come for a moment: is the link there, and the switch where it was?
void FramePort::look_after(Time now) {
  if (now - looked_at_ < look_interval) return;
  looked_at_ = now;
  if (counts_.datagrams_received != received_before_) heard_at_ = now;
  received_before_ = counts_.datagrams_received;
  const bool up = device_->link_is_up();
  if (!up && now - reconnected_at_ >= reconnect_interval) {
    reconnected_at_ = now;
    device_->reconnect();
  }
  const bool doubts = up && now - heard_at_ >= doubt_after && now - asked_at_ >= ask_interval;
  if (doubts || (up && !link_up_)) {
    asked_at_ = now;
    ask_for_switch();
  }
  link_up_ = up;
}

std::string FramePort::trouble_text() const {
  if (!link_up_) {
    return " (the link of device " + device_->name() + " is down" + device_->link_advice() + ")";
  }
  if (monotonic_now() - heard_at_ > 3 * doubt_after) {
    return " (nobody answers to ARP for " + wire::to_string(options_.switch_ip) + " at device " +
           device_->name() + ")";
  }
  return {};
}

}  // namespace iswitch::agent
