// A switch: the real pipelines (one a shard) and the real control, with what the daemon puts
// between them: receive rings, an order and an answer ring per shard, a bounded control ring, a
// notice ring.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "switchd/control/control.h"
#include "switchd/pipeline/frame.h"
#include "switchd/pipeline/pipeline.h"
#include "tools/sim/checking_pool.h"
#include "tools/sim/link.h"
#include "tools/sim/mark_watch.h"
#include "tools/sim/switch_bugs.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

struct SwitchSpec {
  std::string name = "switch";
  datapath::SwitchAddress address;
  std::uint16_t shards = 1;
  std::vector<control::JobConfig> jobs;
  /// A child switch: its parent's addresses. The way there is port 0.
  std::optional<wire::Endpoint> parent;
  bool parent_by_arp = true;        ///< it has to ask for the parent's MAC
  std::size_t buffers = 0;          ///< of all shards together; 0: as many as needed, and 4096
  std::size_t receive_ring = 1024;  ///< frames a shard
  std::size_t control_ring = 64;
  std::size_t notice_ring = 64;
  Time poll_delay = 300;              ///< from an arrival at an idle shard to the burst
  Time frame_cost = 60;               ///< each frame of a burst delays the next burst
  Time ring_delay = 2 * microsecond;  ///< mean of orders, answers, control frames and notices
  Time housekeep_every = millisecond;
  std::uint64_t unix_microseconds = 0;  ///< wall clock at virtual time 0
  SwitchBug bug = SwitchBug::none;
};

/// Frames received, by where they ended; over all lives of the node.
struct SwitchTotals {
  std::uint64_t arrived = 0;     ///< from links
  std::uint64_t while_down = 0;  ///< of these, while no program ran
  std::uint64_t ring_full = 0;   ///< of these, dropped at a full receive ring
  std::uint64_t run = 0;         ///< of these, given to a pipeline
  std::uint64_t in_ring_at_crash = 0;
  std::map<std::string, std::uint64_t> counters;  ///< of the pipelines, by name
  std::uint64_t notices_dropped = 0;
  std::uint64_t exhausted = 0;  ///< acquire() that found no buffer
};

class SwitchNode final : public EventHandler {
 public:
  SwitchNode(World& world, SwitchSpec spec, std::uint16_t number, Random random);
  ~SwitchNode();
  SwitchNode(const SwitchNode&) = delete;
  SwitchNode& operator=(const SwitchNode&) = delete;

  /// Ports are numbered in the order they are added.
  datapath::PortId add_port();
  std::size_t port_count() const { return ports_.size(); }
  void connect(datapath::PortId port, Link& out);

  void start();
  /// The program vanishes with everything it knows.
  void crash();
  /// In order: members are told, then the program ends.
  void stop();
  /// Nothing is taken from any ring for so long; frames go on arriving.
  void pause(Time duration) { paused_until_ = std::max(paused_until_, world_.now() + duration); }
  bool up() const { return control_.has_value(); }
  /// While it is down: another machine has its address from now on.
  void stand_in() { ++spec_.address.mac.bytes[3]; }
  /// Program starts so far; base rounds of different lives differ.
  unsigned life() const { return life_; }

  /// The operator's requests go to this; carry out the effects it leaves.
  template <class Act>
  void operate(Act&& act) {
    if (!control_) return;
    control::Effects effects;
    act(*control_, world_.now(), effects);
    carry_out(effects);
  }
  const control::Control* control() const { return control_ ? &*control_ : nullptr; }

  void handle(const Event& event) override;

  /// Adds the counters of the running pipelines to those of earlier lives.
  SwitchTotals totals() const;
  std::size_t buffers_in_use() const { return pool_.in_use(); }
  const SwitchSpec& spec() const { return spec_; }
  std::uint16_t number() const { return number_; }
  /// From now on the marks of congestion are watched (mark_watch.h).
  void watch_marks();
  const MarkWatch* marks() const { return marks_ ? &*marks_ : nullptr; }

 private:
  using Pipeline = pipeline::Pipeline<CheckingPool>;
  struct Sink;

  enum Kind : std::uint32_t {
    poll_kind = first_own_event,  // value = shard
    order_kind,                   // value = shard
    answer_kind,
    control_kind,
    notice_kind,
    tick_kind,
    housekeep_kind,
    sent_kind,  // object = buffer, value = shares to give back; also in a later life
  };
  struct Received {
    FrameRef frame;
    datapath::PortId port;
  };
  struct Shard {
    std::unique_ptr<Pipeline> pipeline;
    Fifo<Received> ring;
    std::deque<datapath::Order> orders;
    bool polling = false;
    Time orders_until = 0;  // keeps the ring's order
  };

  void receive(datapath::PortId port, FrameRef frame);
  unsigned shard_of(Bytes frame) const;
  void push(unsigned shard, datapath::PortId port, FrameRef frame);
  void poll(unsigned shard);
  void execute(unsigned shard);
  void housekeep();
  void carry_out(control::Effects& effects);
  void arm_tick();
  Time ring_time(Time& until);
  void collect_counters(SwitchTotals& totals) const;
  /// The event belongs to this life of the program (its generation is in the upper half of value).
  bool current(const Event& event) const { return (event.value >> 16) == (life_ & 0xFFFFU); }
  std::uint32_t stamped(std::uint32_t value) const { return (life_ & 0xFFFFU) << 16 | value; }

  World& world_;
  SwitchSpec spec_;
  std::uint16_t number_;
  Random random_;
  SwitchBugs bugs_;
  std::optional<MarkWatch> marks_;
  CheckingPool pool_;
  std::vector<Link*> ports_;
  unsigned life_ = 0;

  std::optional<control::Control> control_;
  std::vector<Shard> shards_;
  std::deque<datapath::Answer> answers_;
  std::deque<datapath::ControlFrame> control_ring_;
  std::deque<datapath::Notice> notices_;
  Time answers_until_ = 0, control_until_ = 0, notices_until_ = 0;
  Time tick_at_ = never;
  Time paused_until_ = 0;
  SwitchTotals totals_;
};

}  // namespace iswitch::sim
