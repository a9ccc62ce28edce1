// The aggregation pipeline of one shard: parse > classify > aggregate > deliver, the layer-2 switch
// and the switch's own ARP and ICMP beside it. Pure: no DPDK, clock, thread or log. One lcore owns a
// Pipeline; counters and last-heard times may be read from elsewhere (relaxed atomics).
#pragma once

#include <span>

#include "switchd/datapath/datapath.h"
#include "switchd/pipeline/buffers.h"
#include "switchd/pipeline/frame.h"

namespace iswitch::pipeline {

struct PipelineConfig {
  datapath::SwitchAddress address;  ///< rules.ports is the number of shards
  std::uint16_t shard = 0;
  PortMask ports = 0;          ///< that exist and are up
  Time mac_age = 300 * second;  ///< a learned address not seen for so long is forgotten
};

template <BufferPool Buffers>
class Pipeline {
 public:
  using Handle = typename Buffers::Handle;

  Pipeline(const PipelineConfig& config, Buffers& buffers);
  ~Pipeline();  ///< gives every buffer back

  /// Ports that may be forwarded to from now on.
  void set_ports(PortMask up);

  /// One burst, at most max_burst frames. Afterwards each frame stands in exactly one terminal counter.
  template <class Sink>
  void run(std::span<const Frame> burst, Time now, Sink& sink);

  template <class Sink>
  datapath::Answer execute(const datapath::Order& order, Time now, Sink& sink);

  /// Bounded work between bursts: forces old sums (JobSpec::force_after), ages layer-2 addresses.
  template <class Sink>
  void housekeep(Time now, Sink& sink);
};

}  // namespace iswitch::pipeline
