// What the dataplane counts at its ports. One lcore writes, anybody reads (pipeline::Tally).
#pragma once

#include "switchd/pipeline/counters.h"

namespace iswitch::switchd {

struct PortCounters {
  pipeline::Tally rx_frames;  ///< received, whatever became of them
  pipeline::Tally rx_bytes;
  pipeline::Tally
      rx_unusable;  ///< of rx_frames: in several buffers or longer than the MTU; dropped
  pipeline::Tally rx_handover_full;  ///< of rx_frames: the way to their shard's lcore full; dropped
  pipeline::Tally tx_frames;         ///< taken by the port
  pipeline::Tally tx_bytes;
  pipeline::Tally tx_full;       ///< dropped: transmit queue full
  pipeline::Tally tx_link_down;  ///< dropped: link down or device missing
  pipeline::Tally tx_oversized;  ///< dropped: longer than the port's MTU
  pipeline::Tally tx_no_buffer;  ///< dropped: no frame or header buffer was free
};

}  // namespace iswitch::switchd
