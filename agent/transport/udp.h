// Kernel UDP: one socket connected to the switch's control port.
//
// The switch sends everything from its base port, so the kernel's own filter of a connected socket
// keeps third parties out; contributions for shard s go to port base + s by an explicit address.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "agent/transport/transport.h"

namespace iswitch::agent {

struct UdpOptions {
  wire::Ipv4 switch_ip;
  std::uint16_t base_port = wire::default_udp_port;
  wire::Ipv4 local_ip;                            ///< 0.0.0.0: what the route gives
  std::uint16_t local_port = 0;                   ///< 0: any
  std::uint32_t receive_buffer_bytes = 4u << 20;  ///< asked for; what the kernel grants counts
  std::uint32_t send_buffer_bytes = 1u << 20;
  bool segmentation_offload = true;  ///< UDP_SEGMENT, until the kernel refuses it
  bool receive_offload = true;       ///< UDP_GRO, where the kernel has it
};

/// What the kernel charges against SO_RCVBUF for one received frame (its "truesize"): the frame,
/// head room and shared info in an allocation of the kernel's size classes, and the sk_buff itself.
std::uint32_t receive_cost(std::uint32_t frame_bytes);

class UdpTransport final : public Transport {
 public:
  /// Binds and connects. The error's text names the addresses and what to do.
  static std::variant<std::unique_ptr<UdpTransport>, Error> open(const UdpOptions& options);
  ~UdpTransport() override;

  int fd() const override { return fd_; }
  wire::Ipv4 local_ip() const override { return local_ip_; }
  std::uint16_t local_port() const override { return local_port_; }
  wire::Ipv4 switch_ip() const override { return {ntohl(switch_.sin_addr.s_addr)}; }
  std::uint16_t switch_port() const override { return ntohs(switch_.sin_port); }
  std::uint32_t path_mtu() const override;
  /// What the granted receive buffer holds.
  std::uint32_t receive_datagrams(std::uint32_t segment_bytes) const override;
  std::uint32_t granted_receive_buffer() const { return granted_receive_buffer_; }

  void send(std::span<const Outgoing> datagrams) override;
  bool blocked() const override { return backlog_next_ < backlog_.size(); }
  void flush() override;
  std::span<const Received> receive() override;
  bool drained() const override { return drained_; }

  bool too_long() const override;
  std::string trouble_text() const override;
  /// errno of the last datagram that was refused or bounced (ICMP), 0 when one has come in since.
  int trouble() const { return trouble_; }
  const Counts& counts() const override { return counts_; }
  bool segmentation_offload() const { return segmentation_offload_; }

 private:
  struct Batch;
  /// A datagram kept because the send buffer was full; owns its payload.
  struct Kept {
    Outgoing datagram;
    std::vector<std::uint8_t> payload;
  };

  explicit UdpTransport(int fd);
  std::size_t fill_batch(std::span<const Outgoing> datagrams);
  /// Gives how many of `datagrams` are done with (sent or lost); fewer: the send buffer is full.
  std::size_t send_some(std::span<const Outgoing> datagrams);
  void keep(std::span<const Outgoing> datagrams);

  int fd_;
  sockaddr_in switch_{};
  wire::Ipv4 local_ip_;
  std::uint16_t local_port_ = 0;
  std::uint32_t granted_receive_buffer_ = 0;
  bool segmentation_offload_ = false;
  bool receive_offload_ = false;
  bool drained_ = true;
  int trouble_ = 0;
  std::vector<Kept> backlog_;
  std::size_t backlog_next_ = 0;
  std::unique_ptr<Batch> batch_;  // message headers, buffers and control blocks of one system call
  std::vector<Received> received_;
  Counts counts_;
};

}  // namespace iswitch::agent
