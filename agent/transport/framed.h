// A transport over a frame device: one worker, one port.
#pragma once

#include "agent/transport/frame_port.h"

namespace iswitch::agent {

class FramedTransport final : public Transport {
 public:
  explicit FramedTransport(std::unique_ptr<FramePort> port) : port_(std::move(port)) {}

  int fd() const override { return port_->device().fd(); }
  bool polls() const override { return true; }
  bool arm() override { return port_->arm(); }
  wire::Ipv4 local_ip() const override { return port_->local_ip(); }
  std::uint16_t local_port() const override { return port_->local_port(0); }
  wire::Ipv4 switch_ip() const override { return port_->switch_ip(); }
  std::uint16_t switch_port() const override { return port_->switch_port(); }
  std::uint32_t path_mtu() const override { return port_->device().mtu(); }
  /// Three quarters: beside results come answers to control, and what is meant for everybody.
  std::uint32_t receive_datagrams(std::uint32_t /*segment_bytes*/) const override {
    return port_->device().receive_depth() / 4 * 3;
  }
  void send(std::span<const Outgoing> datagrams) override { port_->send(datagrams, 0); }
  bool blocked() const override { return !port_->has_room(); }
  void flush() override { port_->flush(); }
  std::span<const Received> receive() override { return port_->receive(); }
  bool drained() const override { return port_->drained(); }
  bool too_long() const override { return port_->too_long(); }
  std::string trouble_text() const override { return port_->trouble_text(); }
  const Counts& counts() const override { return port_->counts(); }

 private:
  std::unique_ptr<FramePort> port_;
};

}  // namespace iswitch::agent
