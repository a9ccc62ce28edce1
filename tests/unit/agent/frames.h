// Frames for tests of frame devices.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "agent/transport/frame_device.h"

namespace iswitch::agent {

using TestFrame = std::vector<std::uint8_t>;

inline TestFrame random_frame(std::mt19937_64& random, std::size_t size) {
  TestFrame frame(size);
  for (auto& byte : frame) byte = static_cast<std::uint8_t>(random());
  return frame;
}

/// All of them, at once.
inline void send(FrameDevice& device, const std::vector<TestFrame>& frames) {
  const auto buffers = device.reserve(static_cast<unsigned>(frames.size()));
  REQUIRE(buffers.size() == frames.size());
  std::vector<std::uint16_t> sizes;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    std::memcpy(buffers[i], frames[i].data(), frames[i].size());
    sizes.push_back(static_cast<std::uint16_t>(frames[i].size()));
  }
  device.commit(sizes);
}

}  // namespace iswitch::agent
