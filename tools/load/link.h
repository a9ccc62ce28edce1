// What carries the datagrams of the emulated workers: a UDP socket each, or frame devices that
// several of them share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/transport/frame_port.h"
#include "agent/transport/udp.h"

namespace iswitch::load {

struct LinkOptions {
  std::uint16_t workers = 2;
  wire::Ipv4 switch_ip;
  std::uint16_t switch_port = wire::default_udp_port;
  wire::Ipv4 local_ip;  ///< of kernel UDP: to bind; of devices: the first one's, the others follow
  std::vector<std::string> devices;  ///< empty: kernel UDP
  Time patience = second;
};

class Link {
 public:
  virtual ~Link() = default;
  /// Null, and one line in `problem`.
  static std::unique_ptr<Link> open(const LinkOptions& options, std::string& problem);

  struct Address {
    wire::Ipv4 ip;
    std::uint16_t port = 0;
  };
  virtual Address address(std::uint16_t worker) const = 0;
  virtual std::uint32_t mtu() const = 0;
  /// Datagrams with a full segment that wait for one worker without loss.
  virtual std::uint32_t receive_datagrams(std::uint32_t segment_bytes) const = 0;

  virtual bool has_room(std::uint16_t worker) = 0;
  virtual void send(std::uint16_t worker, std::span<const agent::Outgoing> datagrams) = 0;
  /// Gives `take(worker, received)` one batch of what has come, from everywhere; false when nothing
  /// has.
  template <class Take>
  bool receive(Take&& take) {
    bool any = false;
    for (std::size_t source = 0; source < sources(); ++source) {
      if (!is_ready(source)) continue;
      for (const agent::Received& received : receive_from(source)) {
        any = true;
        take(worker_of(source, received), received);
      }
    }
    return any;
  }
  /// Before the next turn: waits for something to come, for at most `time`; `quiet`: for so long
  /// nothing has come.
  virtual void wait(Time time, Time quiet) = 0;
  virtual std::string trouble_text() const = 0;

 protected:
  virtual std::size_t sources() const = 0;
  virtual bool is_ready(std::size_t source) const = 0;
  virtual std::span<const agent::Received> receive_from(std::size_t source) = 0;
  virtual std::uint16_t worker_of(std::size_t source, const agent::Received& received) const = 0;
};

}  // namespace iswitch::load
