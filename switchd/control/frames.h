// The frames that control sends: whole Ethernet frames around control datagrams, and the numbers
// that the switch's own requests and unasked-for replies carry.
#pragma once

#include <cstdint>

#include "switchd/control/turn.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace iswitch::control {

/// Where a control packet goes: out of one port, to one client.
struct Destination {
  wire::Endpoint endpoint;
  datapath::PortId port = 0;
};

/// The tag of a received control packet; the client is who made the request that it is or answers.
bool tag_is_right(wire::Key key, const wire::Packet& packet, wire::Ipv4 client,
                  std::uint16_t client_port);

class FrameWriter {
 public:
  explicit FrameWriter(const SwitchConfig& config) : config_(config) {}

  void send(const wire::ControlDatagram& datagram, const Destination& to, const Turn& turn) const;

  /// Microseconds since 1970, or one more than the last where time has not moved on: only grows.
  std::uint64_t next_nonce(Time now);
  std::uint32_t next_request_id();

  std::uint64_t unix_microseconds(Time now) const;

 private:
  SwitchConfig config_;
  std::uint64_t last_nonce_ = 0;
  std::uint32_t last_request_id_ = 0;
};

}  // namespace iswitch::control
