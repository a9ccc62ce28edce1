// A switch: the real pipelines (one a shard) and the real control, with what the daemon puts
// between them: receive rings, an order and an answer ring per shard, a bounded control ring, a
// notice ring.
#pragma once

#include <array>
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
#include "tools/sim/world.h"

namespace iswitch::sim {

/// Planted bugs, each of which a checker must catch.
enum class SwitchBug : std::uint8_t {
  none,
  forget_member,  ///< one member's copy of every result is not sent
  add_twice,      ///< a contribution is fed a second time under another member's identity
  swap_job,       ///< a contribution gets the payload of another job's
  wrong_bits,     ///< one member's copy of a result differs in the last float
  lose_frame,     ///< a received frame never reaches the pipeline and no counter
  shared_buffer,  ///< the pool hands out a buffer in use
  keep_buffer,    ///< a transmit queue never gives its share back
};

struct SwitchSpec {
  std::string name = "switch";
  datapath::SwitchAddress address;
  std::uint16_t shards = 1;
  std::vector<control::JobConfig> jobs;
  std::size_t buffers = 4096;       ///< of all shards together
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
  void connect(datapath::PortId port, Link& out);

  void start();
  /// The program vanishes with everything it knows.
  void crash();
  /// In order: members are told, then the program ends.
  void stop();
  bool up() const { return control_.has_value(); }
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
    std::deque<Received> ring;
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
  void plant_twice(datapath::PortId port, const FrameRef& frame);
  void plant_payload(FrameRef& frame);
  /// The event belongs to this life of the program (its generation is in the upper half of value).
  bool current(const Event& event) const { return (event.value >> 16) == (life_ & 0xFFFFU); }
  std::uint32_t stamped(std::uint32_t value) const { return (life_ & 0xFFFFU) << 16 | value; }

  World& world_;
  SwitchSpec spec_;
  std::uint16_t number_;
  Random random_;
  Random plant_random_;
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
  SwitchTotals totals_;

  struct Seen {  // the planted bugs copy identities that were seen
    std::array<std::uint8_t, 42> encapsulation;
    datapath::PortId port;
  };
  std::map<std::uint32_t, Seen> seen_;      // job << 16 | member
  std::map<std::uint32_t, FrameRef> last_;  // by job
};

}  // namespace iswitch::sim
