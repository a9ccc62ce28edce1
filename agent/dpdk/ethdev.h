// A DPDK device with one receive and one transmit queue, and the buffers of both.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <memory>
#include <string>
#include <variant>

#include "agent/transport/frame_device.h"
#include "switchd/dataplane/packet_pool.h"
#include "switchd/device.h"

namespace iswitch::agent {

class Ethdev final : public FrameDevice {
 public:
  static std::variant<std::unique_ptr<FrameDevice>, Error> open(const FrameDeviceOptions& options);
  ~Ethdev() override;

  const std::string& name() const override { return device_.name; }
  wire::Mac mac() const override { return mac_; }
  std::uint32_t mtu() const override { return mtu_; }
  std::uint32_t receive_depth() const override { return receive_depth_; }
  bool link_is_up() override;
  std::span<const Frame> receive() override;
  bool has_room() const override { return unsent_begin_ == unsent_end_; }
  void flush() override;
  std::span<std::uint8_t* const> reserve(unsigned count) override;
  void commit(std::span<const std::uint16_t> sizes) override;

 private:
  explicit Ethdev(const switchd::Device& device) : device_(device) {}
  std::string start();
  std::string look_at_interface();
  std::string attach();
  std::string make_pool();
  std::string set_up_queues();
  std::string failure(const char* step, int error) const;
  void release_received();

  switchd::Device device_;
  std::uint16_t port_ = 0;
  wire::Mac mac_;
  std::uint32_t mtu_ = 1500;
  std::uint32_t receive_depth_ = 0;
  switchd::Pool pool_;
  bool attached_ = false;
  bool started_ = false;
  bool verifies_checksums_ = false;

  std::array<rte_mbuf*, burst> received_{};
  unsigned received_count_ = 0;
  std::array<Frame, burst> frames_;
  // Reserved buffers, and after commit() those of them that the queue has not taken.
  std::array<rte_mbuf*, burst> outgoing_{};
  std::array<std::uint8_t*, burst> outgoing_bytes_{};
  unsigned reserved_ = 0;
  unsigned unsent_begin_ = 0, unsent_end_ = 0;
};

}  // namespace iswitch::agent
