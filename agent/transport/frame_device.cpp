#include "agent/transport/frame_device.h"

#include "agent/transport/dpdk_library.h"
#include "agent/transport/memif.h"
#include "switchd/device.h"

namespace iswitch::agent {

Error device_error(std::string text) {
  Error error;
  error.code = ErrorCode::system;
  error.text = std::move(text);
  return error;
}

std::variant<std::unique_ptr<FrameDevice>, Error> open_frame_device(
    const FrameDeviceOptions& options) {
  const auto device = switchd::Device::parse(options.device);
  if (!device) {
    Error error = device_error(
        "'" + options.device +
        "' is no DPDK device: neither a PCI address, such as 0000:3b:02.1, nor a device string, "
        "such as net_memif0,socket=/run/iswitch/memif.sock,id=2");
    error.code = ErrorCode::bad_argument;
    return error;
  }
  if (device->is("net_memif")) return Memif::open(*device, options.patience);
  return open_dpdk_device(options);
}

}  // namespace iswitch::agent
