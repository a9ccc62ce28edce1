// What an agent asks of whatever carries its datagrams: kernel UDP (udp.h), or frames of its own
// over a device (framed.h). Moves datagrams and knows nothing of segments, rounds or operations.
// Never blocks; one caller at a time. One virtual call moves a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "agent/engine/engine.h"
#include "wire/address.h"
#include "wire/frame.h"

namespace iswitch::agent {

/// A UDP payload that came from the switch. The view is valid until the next receive().
struct Received {
  Bytes datagram;
  wire::Ecn ecn = wire::Ecn::not_ect;
  std::uint16_t user = 0;  ///< which of them, where several share a port (frame_port.h)
};

class Transport {
 public:
  struct Counts {
    std::uint64_t send_calls = 0, receive_calls = 0;  ///< of the kernel or the device
    std::uint64_t datagrams_sent = 0, datagrams_received = 0;
    std::uint64_t send_errors = 0;  ///< datagrams that were refused; lost like any other loss
    std::uint64_t truncated = 0;    ///< received, larger than any datagram of the protocol
  };

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Becomes readable when something has come, and writable when blocked() may be over. -1: there
  /// is none, and receive() must be called again and again.
  virtual int fd() const = 0;
  /// receive() costs next to nothing: call it again and again while something is expected. When
  /// waiting takes longer, fd(), if there is one, tells of what comes after arm(), though not
  /// always; arm() is false when something is there already.
  virtual bool polls() const { return false; }
  virtual bool arm() { return true; }
  /// The address that the switch sees, as long as nothing translates it on the way.
  virtual wire::Ipv4 local_ip() const = 0;
  virtual std::uint16_t local_port() const = 0;
  virtual wire::Ipv4 switch_ip() const = 0;
  virtual std::uint16_t switch_port() const = 0;
  /// Largest IPv4 packet that gets through, as far as is known now.
  virtual std::uint32_t path_mtu() const = 0;
  /// Datagrams with a full segment that wait for receive() without loss, the reader at work.
  virtual std::uint32_t receive_datagrams(std::uint32_t segment_bytes) const = 0;

  /// Takes all of them. What there is no room for now is copied and kept: while blocked(), call
  /// flush() when fd() is writable, or soon, and send nothing new.
  virtual void send(std::span<const Outgoing> datagrams) = 0;
  virtual bool blocked() const = 0;
  virtual void flush() = 0;

  /// One batch of what has come; empty when nothing has.
  virtual std::span<const Received> receive() = 0;
  /// The last receive() took everything that was there.
  virtual bool drained() const = 0;

  /// The last datagram was refused since it is longer than path_mtu().
  virtual bool too_long() const = 0;
  /// Why nothing gets through, for the end of an error's text: " (...)", or empty.
  virtual std::string trouble_text() const = 0;
  virtual const Counts& counts() const = 0;
};

struct SwitchAddress {
  wire::Ipv4 ip;
  std::uint16_t port = wire::default_udp_port;
};
/// "IPv4" or "IPv4:port".
std::optional<SwitchAddress> parse_switch_address(std::string_view text);

}  // namespace iswitch::agent
