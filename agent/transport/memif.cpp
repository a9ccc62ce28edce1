#include "agent/transport/memif.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "agent/transport/clock.h"

namespace iswitch::agent {

namespace {

using memif::Ring;
using memif::Slot;

constexpr std::uint32_t largest_mtu = 9000;
// A frame of the largest MTU; with the headroom an odd number of cache lines, so that a ring's
// buffers do not all begin in the same few sets of the cache.
constexpr std::uint32_t usual_buffer = 9088;
constexpr std::uint32_t least_buffer = 512;
constexpr std::uint32_t most_buffer = 65'472;
// Few enough that a ring's buffers stay in a core's cache, and more than a path without a wire
// holds.
constexpr std::uint32_t usual_log2_slots = 8;
constexpr std::uint32_t least_log2_slots = 7;  // two bursts
constexpr Time handshake_patience = second;
constexpr Time refusal_patience = 2 * second;
constexpr Time reconnect_patience = 20 * millisecond;
constexpr std::chrono::milliseconds retry_interval{50};

std::optional<std::uint32_t> number(const std::string* text, std::uint32_t otherwise) {
  if (text == nullptr) return otherwise;
  std::uint32_t value = 0;
  const char* const end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

wire::Mac random_mac() {
  wire::Mac mac;
  static_cast<void>(!getrandom(mac.bytes.data(), mac.bytes.size(), 0));
  mac.bytes[0] = static_cast<std::uint8_t>((mac.bytes[0] & 0xFC) | 2);  // local, one station
  return mac;
}

/// Empty, and the options filled; or what is wrong.
std::string read_arguments(const switchd::Device& device, memif::ChannelOptions& options,
                           wire::Mac& mac) {
  constexpr std::array<std::string_view, 9> known{
      "role", "socket", "socket-abstract", "id", "secret", "rsize", "bsize", "mac", "zero-copy"};
  for (const auto& [key, value] : device.arguments) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return "memif has no argument " + key;
    }
  }
  const auto text = [&device](const char* key, const char* otherwise) {
    const std::string* const given = device.argument(key);
    return given == nullptr ? std::string(otherwise) : *given;
  };
  if (const std::string role = text("role", "client"); role != "client" && role != "slave") {
    return "role=" + role + ": a worker is the client of a switch";
  }
  options.socket = text("socket", "");
  if (options.socket.empty()) return "socket=PATH is missing: that of switchd's memif port";
  options.abstract_name =
      text("socket-abstract", options.socket.front() == '/' ? "no" : "yes") == "yes";
  options.secret = text("secret", "");
  const auto id = number(device.argument("id"), 0);
  const auto slots = number(device.argument("rsize"), usual_log2_slots);
  const auto bytes = number(device.argument("bsize"), usual_buffer);
  if (!id) return "id is no number";
  if (!slots || *slots < least_log2_slots || *slots > memif::largest_log2_ring) {
    return "rsize is not in " + std::to_string(least_log2_slots) + ".." +
           std::to_string(memif::largest_log2_ring);
  }
  if (!bytes || *bytes < least_buffer || *bytes > most_buffer) {
    return "bsize is not in " + std::to_string(least_buffer) + ".." + std::to_string(most_buffer);
  }
  mac = random_mac();
  if (const std::string* const given = device.argument("mac")) {
    const auto parsed = wire::parse_mac(*given);
    if (!parsed || parsed->is_group()) return "mac=" + *given + " is no station's address";
    mac = *parsed;
  }
  options.id = *id;
  options.log2_slots = *slots;
  options.buffer_bytes = (*bytes + 63) / 64 * 64;
  options.name = "iswitch-agent " + std::to_string(getpid());
  return {};
}

template <class T>
T load(const T& value) {
  return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}
template <class T>
void store(T& value, T what) {
  __atomic_store_n(&value, what, __ATOMIC_RELEASE);
}

}  // namespace

std::variant<std::unique_ptr<FrameDevice>, Error> Memif::open(const switchd::Device& device,
                                                              Time patience) {
  memif::ChannelOptions options;
  wire::Mac mac;
  if (const std::string problem = read_arguments(device, options, mac); !problem.empty()) {
    Error error = device_error("device '" + device.text() + "': " + problem);
    error.code = ErrorCode::bad_argument;
    return error;
  }
  std::unique_ptr<Memif> made(new Memif(device.name, options));
  made->mac_ = mac;
  // A switch may come yet; one that refuses will hardly change its mind, but for a worker of before
  // whose end it is about to notice, or a port that it is about to open.
  const Time begin = monotonic_now();
  Time deadline = begin + std::min(patience, never / 2);
  std::string problem = made->connect(handshake_patience);
  while (!problem.empty() && monotonic_now() < deadline) {
    if (made->channel_.refused()) deadline = std::min(deadline, begin + refusal_patience);
    std::this_thread::sleep_for(retry_interval);
    problem = made->connect(handshake_patience);
  }
  if (problem.empty()) return std::unique_ptr<FrameDevice>(std::move(made));
  return device_error("device " + device.name + ": cannot connect to memif socket " +
                      options.socket + ": " + problem + made->link_advice() + " (waited " +
                      std::to_string((monotonic_now() - begin) / millisecond) + " ms)");
}

Memif::Memif(std::string name, const memif::ChannelOptions& options)
    : name_(std::move(name)),
      options_(options),
      channel_(options),
      mtu_(std::min(largest_mtu,
                    options.buffer_bytes - static_cast<std::uint32_t>(wire::ethernet_bytes))),
      mask_(static_cast<std::uint16_t>((1u << options.log2_slots) - 1)) {}

std::string Memif::connect(Time patience) {
  std::string problem = channel_.connect(patience);
  if (!problem.empty()) return problem;
  written_ = read_ = 0;
  armed_ = false;
  lend_buffers();
  return {};
}

std::uint32_t Memif::receive_depth() const {
  return channel_.slots() / 2;  // a frame may come as a head and a payload
}

bool Memif::link_is_up() {
  channel_.check();
  return channel_.connected();
}

void Memif::reconnect() {
  if (!channel_.connected()) connect(reconnect_patience);
}

std::string Memif::link_advice() const {
  return "; is switchd running, with a memif port of this socket and id " +
         std::to_string(options_.id) + " that nobody else has, and may this user open it?";
}

/// The buffers whose frames have been read are the server's again.
void Memif::lend_buffers() {
  Ring& ring = channel_.to_client();
  std::uint16_t head = ring.head;
  const auto end = static_cast<std::uint16_t>(read_ + channel_.slots());
  for (; head != end; ++head) {
    Slot& slot = ring.slots()[head & mask_];
    slot.flags = 0;
    slot.length = channel_.buffer_bytes();
  }
  store(ring.head, head);
}

bool Memif::arm() {
  if (!channel_.connected()) return true;
  Ring& ring = channel_.to_client();
  armed_ = true;
  store(ring.flags, std::uint16_t{0});
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return load(ring.tail) == read_;
}

/// The frame that begins at read_; `filled`: slots before it are. False: it cannot be one of ours.
bool Memif::read_frame(std::uint16_t filled, Frame& frame) {
  Ring& ring = channel_.to_client();
  const std::uint16_t first = read_;
  std::uint16_t pieces = 0;
  bool more = true;
  while (more && read_ != filled) {
    more = (ring.slots()[read_++ & mask_].flags & Slot::next) != 0;
    ++pieces;
  }
  const auto piece = [&](std::uint16_t at) {
    // Where a buffer lies is ours to know; what the ring says about it is the other side's word.
    const std::uint32_t length = ring.slots()[at & mask_].length;
    return std::span<std::uint8_t>{channel_.to_client_buffer(at & mask_),
                                   length <= channel_.buffer_bytes() ? length : 0};
  };
  const std::span<std::uint8_t> head = piece(first);
  if (more || head.empty()) return false;
  if (pieces == 1) {
    frame.bytes = head;
    return true;
  }
  // The head is put before the payload, which stays where it is.
  const std::span<std::uint8_t> payload = piece(static_cast<std::uint16_t>(first + 1));
  if (pieces != 2 || head.size() > memif::Channel::headroom || payload.empty()) return false;
  std::uint8_t* const start = payload.data() - head.size();
  std::memcpy(start, head.data(), head.size());
  frame.bytes = {start, head.size() + payload.size()};
  return true;
}

std::span<const FrameDevice::Frame> Memif::receive() {
  if (!channel_.connected()) return {};
  Ring& ring = channel_.to_client();
  if (armed_) {
    armed_ = false;
    ring.flags = Ring::no_interrupts;
    channel_.clear_interrupt();
  }
  if (static_cast<std::uint16_t>(ring.head - read_) != channel_.slots()) lend_buffers();
  const std::uint16_t filled = load(ring.tail);
  if (static_cast<std::uint16_t>(filled - read_) > channel_.slots()) {
    channel_.disconnect();  // the other side has lost its way
    return {};
  }
  std::size_t count = 0;
  while (read_ != filled && count < burst) {
    if (read_frame(filled, frames_[count])) ++count;
  }
  return {frames_.data(), count};
}

std::uint32_t Memif::room() const {
  const std::uint16_t waiting = written_ - load(channel_.to_server().tail);
  return waiting > channel_.slots() ? 0 : channel_.slots() - waiting;
}

bool Memif::has_room() const { return !channel_.connected() || room() >= burst; }

std::span<std::uint8_t* const> Memif::reserve(unsigned count) {
  if (!channel_.connected()) return {};
  count = std::min({count, burst, room()});
  for (unsigned i = 0; i < count; ++i) {
    reserved_[i] = channel_.to_server_buffer(static_cast<std::uint16_t>(written_ + i) & mask_);
  }
  return {reserved_.data(), count};
}

void Memif::commit(std::span<const std::uint16_t> sizes) {
  if (!channel_.connected() || sizes.empty()) return;
  Ring& ring = channel_.to_server();
  for (const std::uint16_t size : sizes) {
    Slot& slot = ring.slots()[written_++ & mask_];
    slot.flags = 0;
    slot.length = size;
  }
  store(ring.head, written_);
  if ((load(ring.flags) & Ring::no_interrupts) == 0) channel_.notify_server();
}

}  // namespace iswitch::agent
