// A shared-memory interface to the switch on this host, without DPDK: frames are written into and
// read from the memory that both share, no copy between.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <variant>

#include "agent/transport/frame_device.h"
#include "agent/transport/memif_channel.h"
#include "switchd/device.h"

namespace iswitch::agent {

class Memif final : public FrameDevice {
 public:
  /// Connects to the server that "net_memif0,socket=PATH,id=N" names. Further arguments as of
  /// DPDK's driver: socket-abstract=yes|no, secret, rsize (log2 of a ring's slots), bsize (bytes of
  /// a buffer), mac.
  static std::variant<std::unique_ptr<FrameDevice>, Error> open(const switchd::Device& device,
                                                                Time patience);

  const std::string& name() const override { return name_; }
  wire::Mac mac() const override { return mac_; }
  std::uint32_t mtu() const override { return mtu_; }
  std::uint32_t receive_depth() const override;
  bool link_is_up() override;
  void reconnect() override;
  std::string link_advice() const override;
  int fd() const override { return channel_.fd(); }
  bool arm() override;
  std::span<const Frame> receive() override;
  bool has_room() const override;
  std::span<std::uint8_t* const> reserve(unsigned count) override;
  void commit(std::span<const std::uint16_t> sizes) override;

 private:
  Memif(std::string name, const memif::ChannelOptions& options);
  std::string connect(Time patience);
  std::uint32_t room() const;
  void lend_buffers();
  bool read_frame(std::uint16_t filled, Frame& frame);

  std::string name_;
  memif::ChannelOptions options_;
  memif::Channel channel_;
  wire::Mac mac_;
  std::uint32_t mtu_ = 0;
  std::uint16_t mask_ = 0;
  std::uint16_t written_ = 0;  // head of the ring to the server
  std::uint16_t read_ = 0;     // slots of the other one whose frames have been given out
  bool armed_ = false;
  std::array<Frame, burst> frames_;
  std::array<std::uint8_t*, burst> reserved_{};
};

}  // namespace iswitch::agent
