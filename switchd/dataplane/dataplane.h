// Everything that touches packets: EAL, pools, ports, lcores. Owned and called by the control
// thread.
//
// Start and end are in order: EAL, pools, ports, lcores; and back.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "switchd/config.h"
#include "switchd/control/control.h"
#include "switchd/dataplane/eal.h"
#include "switchd/dataplane/lcore.h"
#include "switchd/dataplane/pools.h"
#include "switchd/dataplane/port.h"
#include "switchd/memory_plan.h"

namespace iswitch::switchd {

class Dataplane {
 public:
  /// Null and one line in `error` when the machine does not allow it; then nothing is left behind.
  static std::unique_ptr<Dataplane> start(const Config& config, std::string& error);
  ~Dataplane();
  Dataplane(const Dataplane&) = delete;
  Dataplane& operator=(const Dataplane&) = delete;

  /// Ports are polled from now on; before that the orders submitted so far are executed, so that
  /// the first frame finds its job. Empty, or one line.
  std::string open_to_traffic();

  /// Hands orders to every lcore and frames to send to the first one, in order; what has no room
  /// waits.
  void submit(control::Effects& effects);
  /// submit() has left nothing waiting, here or in an lcore's rings.
  bool is_drained() const;

  std::vector<std::unique_ptr<Lcore>>& lcores() { return lcores_; }
  const std::vector<std::unique_ptr<Lcore>>& lcores() const { return lcores_; }
  const std::vector<std::uint16_t>& lcore_cpus() const { return lcore_cpus_; }

  const std::vector<std::unique_ptr<Port>>& ports() const { return ports_; }
  Link link(std::size_t port) const { return links_[port]; }
  /// Looks at every link; takes a port whose interface was made again back into service.
  void check_links();

  const Pools& pools() const { return pools_; }
  const MemoryPlan& memory() const { return memory_; }
  bool huge_pages() const { return huge_pages_; }

  /// Not sent for want of a buffer or of room (control frames; their senders repeat them).
  std::uint64_t frames_lost() const { return frames_lost_; }

  /// Stops the lcores, closes the ports. Empty when every buffer came back, else one line.
  std::string stop();

 private:
  Dataplane() = default;
  std::string open_all(const Config& config);
  std::string plan(const Config& config);
  std::string complete_devices(const Config& config);
  std::string open_ports();
  std::string launch(const Config& config, const CpuPlan& cpus);
  bool introduce();
  void prepare(std::size_t port);
  Handover* handover(std::size_t from, std::size_t to) {
    return handovers_[from * lcores_.size() + to].get();
  }
  bool has_done(std::uint64_t orders) const;
  void reopen(std::size_t port);
  bool set_ports();
  /// On ports that have come up: whoever had another switch at this address learns of this one.
  void say_address();
  datapath::PortMask open_mask() const;
  datapath::PortMask up_mask() const;

  std::unique_ptr<Eal> eal_;
  MemoryPlan memory_;
  bool huge_pages_ = false;
  Pools pools_;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Link> links_;
  std::vector<std::string> complaints_;  ///< why a port could not be taken back, said once
  wire::FrameRules rules_;               ///< with as many ports as there are lcores
  datapath::SwitchAddress address_;      ///< of the switch
  datapath::PortMask told_ = 0;          ///< ports that its address was said on since they came up
  std::vector<std::unique_ptr<Handover>> handovers_;  ///< by giver, then taker; null to itself
  std::vector<std::unique_ptr<Lcore>> lcores_;
  std::vector<std::uint16_t> lcore_cpus_;
  std::vector<std::deque<datapath::Order>> waiting_orders_;  ///< by lcore
  std::uint64_t orders_ = 0;                                 ///< submitted so far, to each lcore
  struct WaitingFrame {
    control::OutFrame frame;
    std::uint64_t after;  ///< orders
  };
  std::deque<WaitingFrame> waiting_frames_;
  std::uint64_t frames_lost_ = 0;
};

}  // namespace iswitch::switchd
