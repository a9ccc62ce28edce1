// One refused frame as an example of its kind.
#pragma once

#include <array>
#include <cstdint>

#include "switchd/datapath/datapath.h"
#include "switchd/pipeline/counters.h"

namespace iswitch::switchd {

struct Refusal {
  pipeline::Counter reason = pipeline::Counter::count_;
  datapath::PortId port = 0;
  std::uint32_t count = 0;  ///< of this reason at this port since the last one told
  std::uint32_t frame_bytes = 0;
  std::array<std::uint8_t, 64> head{};  ///< the frame's first bytes
};

}  // namespace iswitch::switchd
