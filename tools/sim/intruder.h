// A host that is nobody's member and sends what it should not: contributions in other members'
// names, control packets without the key, malformed frames, and ordinary traffic. Nothing of it may
// change a sum, end a membership or stop anything.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "switchd/datapath/datapath.h"
#include "tools/sim/host_node.h"
#include "tools/sim/link.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

/// What it knows of a job; more than a stranger could.
struct Target {
  std::uint16_t job = 0;
  bool has_key = false;
  std::uint32_t slots = 0;
  std::uint32_t segment_bytes = 0;
  std::vector<HostNode*> members;
};

class Intruder final : public EventHandler {
 public:
  Intruder(World& world, const wire::Endpoint& own, const datapath::SwitchAddress& node,
           std::uint16_t number, Random random);

  /// At least one, each with a member.
  void set_targets(std::vector<Target> targets) { targets_ = std::move(targets); }
  void connect(Link& out) { out_ = &out; }
  /// Sends a frame every `interval` on average.
  void start(Time interval, Time until);
  void handle(const Event& event) override;

  std::uint64_t arrived() const { return arrived_; }
  std::uint64_t sent() const { return sent_; }

 private:
  enum Kind : std::uint32_t { send_kind = first_own_event };
  void schedule_next();
  FrameRef make();
  FrameRef contribution();
  FrameRef control();
  FrameRef ordinary();
  FrameRef noise();
  void damage(FrameRef& frame);
  FrameRef enclose(const wire::Endpoint& from, std::uint8_t tos, Bytes message);
  HostNode* victim(const Target& target);

  World& world_;
  wire::Endpoint own_;
  datapath::SwitchAddress node_;
  std::vector<Target> targets_;
  std::uint16_t number_;
  Random random_;
  Link* out_ = nullptr;
  Time interval_ = 0, until_ = 0;
  std::uint64_t arrived_ = 0, sent_ = 0;
};

}  // namespace iswitch::sim
