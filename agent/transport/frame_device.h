// What carries whole Ethernet frames for this process without the kernel: a shared-memory interface
// to the switch on this host (memif.h), or any DPDK device (dpdk_library.h). Never blocks, but to
// reconnect; one caller at a time. One virtual call moves a burst.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "agent/engine/engine.h"
#include "wire/address.h"
#include "wire/frame.h"

namespace iswitch::agent {

class FrameDevice {
 public:
  static constexpr unsigned burst = 64;

  struct Frame {
    Bytes bytes;
    wire::Offload verified;  ///< by the device
  };

  FrameDevice() = default;
  virtual ~FrameDevice() = default;
  FrameDevice(const FrameDevice&) = delete;
  FrameDevice& operator=(const FrameDevice&) = delete;

  virtual const std::string& name() const = 0;
  virtual wire::Mac mac() const = 0;
  virtual std::uint32_t mtu() const = 0;
  /// Frames that wait for receive() without loss.
  virtual std::uint32_t receive_depth() const = 0;

  virtual bool link_is_up() = 0;
  /// Where the other end may have gone and come again: tries to reach it, for some milliseconds at
  /// most. receive()'s frames are no longer valid.
  virtual void reconnect() {}
  /// What to look at when the link is down: "; ...", or empty.
  virtual std::string link_advice() const { return {}; }

  /// -1, or what becomes readable when something comes after arm(), though not always: whoever
  /// waits for it looks now and then all the same.
  virtual int fd() const { return -1; }
  /// False: something is there already.
  virtual bool arm() { return true; }

  /// A burst of what has come; valid until the next call.
  virtual std::span<const Frame> receive() = 0;

  /// Room for a burst, or no link, to which everything is lost.
  virtual bool has_room() const = 0;
  /// Makes room if it can.
  virtual void flush() {}
  /// Memory for at most `count` frames of mtu() and an Ethernet header, 64-byte aligned where the
  /// device can; fewer when it has no more.
  virtual std::span<std::uint8_t* const> reserve(unsigned count) = 0;
  /// Sends the first of those reserved, so many bytes of each; the others are given back.
  virtual void commit(std::span<const std::uint16_t> sizes) = 0;
};

struct FrameDeviceOptions {
  /// A DPDK device string or PCI address: "net_memif0,socket=/run/iswitch/memif.sock,id=2".
  std::string device;
  Time patience = second;  ///< how long its other end is waited for
};

/// Opens what `device` names.
std::variant<std::unique_ptr<FrameDevice>, Error> open_frame_device(
    const FrameDeviceOptions& options);

Error device_error(std::string text);

}  // namespace iswitch::agent
