// A frame device with an IPv4 address: where the switch is (ARP), frames around datagrams,
// datagrams out of frames. Usually one worker has it; a load generator's workers share one, each
// with a UDP port of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "agent/transport/frame_device.h"
#include "agent/transport/transport.h"
#include "switchd/pipeline/local.h"

namespace iswitch::agent {

struct FramePortOptions {
  FrameDeviceOptions device;
  wire::Ipv4 switch_ip;
  std::uint16_t switch_port = wire::default_udp_port;  ///< base
  wire::Ipv4 local_ip;
  std::uint16_t local_port = 0;  ///< of user 0, the next ones follow; 0: chosen at random
  std::uint16_t users = 1;
};

class FramePort {
 public:
  /// Opens the device, waits for its link, and asks where the switch is.
  static std::variant<std::unique_ptr<FramePort>, Error> open(const FramePortOptions& options);

  const FrameDevice& device() const { return *device_; }
  wire::Ipv4 local_ip() const { return options_.local_ip; }
  std::uint16_t local_port(std::uint16_t user) const {
    return static_cast<std::uint16_t>(options_.local_port + user);
  }
  wire::Ipv4 switch_ip() const { return options_.switch_ip; }
  std::uint16_t switch_port() const { return options_.switch_port; }

  /// Copies each payload once, into memory of the device. What there is no room for is lost, and
  /// counted.
  void send(std::span<const Outgoing> datagrams, std::uint16_t user);
  bool has_room() const { return device_->has_room(); }
  void flush();
  /// One burst; the views are into the device's memory, valid until the next call.
  std::span<const Received> receive();
  bool drained() const { return drained_; }
  /// Before a rest.
  bool arm();

  bool too_long() const { return too_long_; }
  std::string trouble_text() const;
  const Transport::Counts& counts() const { return counts_; }

 private:
  FramePort(std::unique_ptr<FrameDevice> device, const FramePortOptions& options);
  std::string wait_for_link(Time deadline);
  std::string wait_for_switch(Time deadline);
  void look_after(Time now);
  void ask_for_switch();
  void answer(Bytes frame);
  void send_bytes(Bytes frame);
  std::uint16_t write(const Outgoing& datagram, std::uint16_t user, std::uint8_t* out) const;
  bool unpack(const FrameDevice::Frame& frame, Received& received);

  std::unique_ptr<FrameDevice> device_;
  FramePortOptions options_;
  pipeline::Local local_;  // ARP and ping for our address
  wire::FrameRules rules_;
  wire::Mac switch_mac_;
  std::vector<Received> received_;
  bool link_up_ = false;
  bool drained_ = true;
  bool too_long_ = false;
  unsigned quiet_polls_ = 0;
  std::uint64_t received_before_ = 0;  // datagrams, when last looked
  Time looked_at_ = 0;
  Time reconnected_at_ = 0;
  Time heard_at_ = 0;  // the switch's answer to ARP, or a datagram of it
  Time asked_at_ = 0;
  Transport::Counts counts_;
};

}  // namespace iswitch::agent
