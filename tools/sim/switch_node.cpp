#include "tools/sim/switch_node.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/job_stats.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace iswitch::sim {

namespace {

std::size_t longest_segment(const SwitchSpec& spec) {
  std::size_t longest = wire::min_segment_bytes;
  for (const auto& job : spec.jobs) {
    longest = std::max<std::size_t>(longest, job.segment_bytes);
  }
  return longest;
}

constexpr std::size_t protocol_offset = wire::ethernet_bytes + 9;
constexpr std::size_t udp_port_offset = wire::ethernet_bytes + wire::ipv4_bytes + 2;

}  // namespace

// Where the pipeline's output goes; lives for one call.
struct SwitchNode::Sink {
  SwitchNode& node;
  std::span<const Received> burst;

  void forward(unsigned index, datapath::PortMask ports) {
    for (std::size_t port = 0; port < node.ports_.size(); ++port) {
      if (((ports >> port) & 1U) != 0)
        transmit(static_cast<datapath::PortId>(port), burst[index].frame);
    }
  }
  void transmit(datapath::PortId port, const FrameRef& frame) {
    if (port < node.ports_.size() && node.ports_[port] != nullptr) node.ports_[port]->send(frame);
  }
  void transmit(datapath::PortId port, Bytes bytes) {
    transmit(port, node.world_.frames.copy(bytes));
  }
  bool control(const datapath::ControlFrame& frame) {
    if (node.control_ring_.size() >= node.spec_.control_ring) return false;
    node.control_ring_.push_back(frame);
    node.world_.queue.schedule(node.ring_time(node.control_until_), node, control_kind,
                               node.stamped(0));
    return true;
  }
  void notice(const datapath::Notice& notice) {
    if (node.notices_.size() >= node.spec_.notice_ring) {
      ++node.totals_.notices_dropped;
      return;
    }
    node.notices_.push_back(notice);
    node.world_.queue.schedule(node.ring_time(node.notices_until_), node, notice_kind,
                               node.stamped(0));
  }
  void result(const pipeline::Delivery<CheckingPool::Handle>& delivery) {
    const bool for_members = !delivery.up;
    if (node.marks_ && for_members) {
      wire::ResultFields said = delivery.fields;
      if (node.spec_.bug == SwitchBug::lose_mark)
        said.flags &= static_cast<std::uint8_t>(~wire::flag::ecn_echo);
      node.marks_->sent(said, node.spec_.name);
    }
    const std::uint32_t bytes = delivery.fields.payload_bytes;
    Time last_sent = node.world_.now();
    unsigned copies = 0;
    for (unsigned member = 0; member < wire::max_members; ++member) {
      if (((delivery.to >> member) & 1U) == 0) continue;
      const auto& destination = delivery.destinations[member];
      FrameRef frame = node.world_.frames.make(wire::payload_offset + bytes);
      const auto out = frame.own();
      destination.header.write(delivery.fields, out.data());
      if (bytes > 0) {
        std::memcpy(&out[wire::payload_offset], node.pool_.data(delivery.payload), bytes);
      }
      if (node.spec_.bug != SwitchBug::none && for_members && !node.bugs_.send(member, out)) {
        continue;
      }
      if (destination.port >= node.ports_.size()) continue;
      last_sent = std::max(last_sent, node.ports_[destination.port]->send(std::move(frame)));
      ++copies;
    }
    // The transmit queue keeps a share for each copy until the last has left.
    if (bytes == 0 || copies == 0) return;
    node.pool_.share(delivery.payload, copies);
    if (node.spec_.bug == SwitchBug::keep_buffer) return;
    node.world_.queue.schedule(last_sent, node, sent_kind, copies, delivery.payload.block());
  }
};

SwitchNode::SwitchNode(World& world, SwitchSpec spec, std::uint16_t number, Random random)
    : world_(world),
      spec_(std::move(spec)),
      number_(number),
      random_(random),
      bugs_(spec_.bug, random.fork(1)),
      pool_(world, longest_segment(spec_), spec_.buffers) {
  if (spec_.bug == SwitchBug::shared_buffer) pool_.plant_shared(50);
}

SwitchNode::~SwitchNode() = default;

datapath::PortId SwitchNode::add_port() {
  ports_.push_back(nullptr);
  return static_cast<datapath::PortId>(ports_.size() - 1);
}

void SwitchNode::connect(datapath::PortId port, Link& out) { ports_[port] = &out; }

void SwitchNode::start() {
  if (up()) return;
  ++life_;
  const Time now = world_.now();
  world_.switch_started = now;
  world_.trace.add(now, What::start, number_, life_);
  shards_.clear();
  for (unsigned shard = 0; shard < spec_.shards; ++shard) {
    pipeline::PipelineConfig config;
    config.address = spec_.address;
    config.address.rules.ports = spec_.shards;
    config.shard = static_cast<std::uint16_t>(shard);
    if (spec_.parent) config.parent = spec_.parent->ip;
    config.ports =
        ports_.size() >= 64 ? ~datapath::PortMask{0} : (datapath::PortMask{1} << ports_.size()) - 1;
    Shard state;
    state.pipeline = std::make_unique<Pipeline>(config, pool_);
    shards_.push_back(std::move(state));
  }
  control::SwitchConfig config;
  if (spec_.parent) {
    config.parent.emplace();
    config.parent->ip = spec_.parent->ip;
    config.parent->udp_port = spec_.parent->udp_port;
    config.parent->port = 0;
    if (!spec_.parent_by_arp) config.parent->mac = spec_.parent->mac;
    config.incarnation = static_cast<std::uint32_t>(random_.next());
  }
  config.address = spec_.address;
  config.address.rules.ports = spec_.shards;
  config.shards = spec_.shards;
  config.start_time = now;
  config.start_unix_microseconds =
      spec_.unix_microseconds + static_cast<std::uint64_t>(now / microsecond);
  auto jobs = spec_.jobs;
  // A fixed base round is for the first life: a second one that used the same rounds again could
  // not tell a late contribution to the first from its own.
  if (life_ > 1) {
    for (auto& job : jobs) job.base_round.reset();
  }
  control::Effects effects;
  control_.emplace(config, jobs, now, effects);
  carry_out(effects);
  world_.queue.schedule(now + spec_.housekeep_every, *this, housekeep_kind, stamped(0));
}

void SwitchNode::crash() {
  if (!up()) return;
  world_.trace.add(world_.now(), What::crash, number_, life_);
  collect_counters(totals_);
  for (const auto& shard : shards_) totals_.in_ring_at_crash += shard.ring.size();
  shards_.clear();
  answers_.clear();
  control_ring_.clear();
  notices_.clear();
  bugs_.forget();
  if (marks_) marks_->forget();
  paused_until_ = 0;
  answers_until_ = control_until_ = notices_until_ = 0;
  tick_at_ = never;
  control_.reset();
}

void SwitchNode::stop() {
  operate([](control::Control& control, Time now, control::Effects& effects) {
    control.leave_all(now, effects);
  });
  crash();
}

void SwitchNode::handle(const Event& event) {
  if (event.kind == arrival_event) {
    receive(static_cast<datapath::PortId>(event.value), FrameRef::attach(event.object));
    return;
  }
  if (event.kind == sent_kind) {
    const CheckingPool::Handle buffer(static_cast<CheckingPool::Block*>(event.object));
    for (unsigned i = 0; i < event.value; ++i) pool_.release(buffer);
    return;
  }
  if (!up() || !current(event)) return;
  const Time now = world_.now();
  if (now < paused_until_) {
    world_.queue.schedule(paused_until_, *this, event.kind, event.value, event.object);
    if (event.kind == tick_kind) tick_at_ = paused_until_;
    return;
  }
  control::Effects effects;
  switch (event.kind) {
    case poll_kind:
      poll(event.value & 0xFFFFU);
      return;
    case order_kind:
      execute(event.value & 0xFFFFU);
      return;
    case housekeep_kind:
      housekeep();
      return;
    case answer_kind: {
      const datapath::Answer answer = std::move(answers_.front());
      answers_.pop_front();
      control_->on_answer(answer, now, effects);
      break;
    }
    case control_kind: {
      const datapath::ControlFrame frame = control_ring_.front();
      control_ring_.pop_front();
      control_->on_frame(frame, now, effects);
      break;
    }
    case notice_kind: {
      const datapath::Notice notice = notices_.front();
      notices_.pop_front();
      control_->on_notice(notice, now, effects);
      break;
    }
    case tick_kind:
      if (tick_at_ > now) return;  // superseded by an earlier one that ran already
      tick_at_ = never;
      control_->tick(now, effects);
      break;
    default:
      return;
  }
  carry_out(effects);
}

// NICs steer by UDP destination port; all else goes to shard 0.
unsigned SwitchNode::shard_of(Bytes frame) const {
  if (spec_.shards == 1 || frame.size() < wire::payload_offset || frame[12] != 0x08 ||
      frame[13] != 0x00 || frame[wire::ethernet_bytes] != 0x45 || frame[protocol_offset] != 17) {
    return 0;
  }
  const unsigned port = wire::load_be16(&frame[udp_port_offset]);
  const unsigned base = spec_.address.rules.udp_port;
  return port >= base && port < base + spec_.shards ? port - base : 0;
}

void SwitchNode::receive(datapath::PortId port, FrameRef frame) {
  ++totals_.arrived;
  world_.trace.arrival(world_.now(), number_, port, frame.view());
  if (!up()) {
    ++totals_.while_down;
    return;
  }
  const bool from_parent = spec_.parent && port == 0;
  if (marks_) marks_->received(frame.view(), from_parent);
  std::vector<SwitchBugs::Fed> more;
  if (spec_.bug != SwitchBug::none && !bugs_.receive(world_.frames, port, from_parent, frame, more))
    return;
  const unsigned shard = shard_of(frame.view());
  push(shard, port, std::move(frame));
  for (auto& fed : more) {
    const unsigned other = shard_of(fed.frame.view());
    push(other, fed.port, std::move(fed.frame));
  }
}

void SwitchNode::push(unsigned index, datapath::PortId port, FrameRef frame) {
  Shard& shard = shards_[index];
  if (shard.ring.size() >= spec_.receive_ring) {
    ++totals_.ring_full;
    return;
  }
  shard.ring.push_back({std::move(frame), port});
  if (shard.polling) return;
  shard.polling = true;
  world_.queue.schedule(world_.now() + spec_.poll_delay, *this, poll_kind, stamped(index));
}

void SwitchNode::poll(unsigned index) {
  Shard& shard = shards_[index];
  std::array<Received, pipeline::max_burst> received;
  std::array<pipeline::Frame, pipeline::max_burst> burst;
  const std::size_t count = std::min<std::size_t>(shard.ring.size(), pipeline::max_burst);
  for (std::size_t i = 0; i < count; ++i) {
    received[i] = std::move(shard.ring.front());
    shard.ring.pop_front();
    burst[i].bytes = received[i].frame.view().data();
    burst[i].size = received[i].frame.size();
    burst[i].port = received[i].port;
  }
  totals_.run += count;
  Sink sink{*this, {received.data(), count}};
  shard.pipeline->run({burst.data(), count}, world_.now(), sink);
  shard.polling = !shard.ring.empty();
  if (shard.polling) {
    world_.queue.schedule(world_.now() + spec_.frame_cost * static_cast<Time>(count), *this,
                          poll_kind, stamped(index));
  }
}

void SwitchNode::execute(unsigned index) {
  Shard& shard = shards_[index];
  const datapath::Order order = shard.orders.front();
  shard.orders.pop_front();
  world_.trace.add(world_.now(), What::order, number_,
                   static_cast<std::uint32_t>(order.what.index()), order.job);
  Sink sink{*this, {}};
  answers_.push_back(shard.pipeline->execute(order, world_.now(), sink));
  world_.queue.schedule(ring_time(answers_until_), *this, answer_kind, stamped(0));
}

void SwitchNode::housekeep() {
  Sink sink{*this, {}};
  for (auto& shard : shards_) {
    shard.pipeline->housekeep(world_.now(), sink);
    shard.pipeline->job_stats().for_each([&](wire::JobId job, const pipeline::JobStats& stats) {
      for (wire::MemberId member = 0; member < wire::max_members; ++member) {
        if (const Time heard = stats.last_heard(member); heard > 0) {
          control_->heard(job, member, heard);
        }
      }
    });
  }
  world_.queue.schedule(world_.now() + spec_.housekeep_every, *this, housekeep_kind, stamped(0));
}

void SwitchNode::carry_out(control::Effects& effects) {
  for (const auto& order : effects.orders) {
    for (unsigned index = 0; index < shards_.size(); ++index) {
      shards_[index].orders.push_back(order);
      world_.queue.schedule(ring_time(shards_[index].orders_until), *this, order_kind,
                            stamped(index));
    }
  }
  for (const auto& frame : effects.frames) {
    if (frame.port >= ports_.size()) continue;
    FrameRef copy = world_.frames.copy(frame.bytes);
    if (spec_.bug != SwitchBug::none) bugs_.answer(copy.own());
    ports_[frame.port]->send(std::move(copy));
  }
  effects.orders.clear();
  effects.frames.clear();
  arm_tick();
}

void SwitchNode::arm_tick() {
  const Time next = control_->next_deadline();
  if (next == never || next >= tick_at_) return;
  tick_at_ = std::max(next, world_.now());
  world_.queue.schedule(tick_at_, *this, tick_kind, stamped(0));
}

// When what is put into a ring now is picked up, never before what went in earlier.
Time SwitchNode::ring_time(Time& until) {
  until = std::max(until, world_.now() + random_.around(spec_.ring_delay, 0.9));
  return until;
}

void SwitchNode::collect_counters(SwitchTotals& totals) const {
  for (const auto& shard : shards_) {
    pipeline::for_each_counter(shard.pipeline->counters(),
                               [&](const char* name, std::uint64_t value, bool /*terminal*/) {
                                 totals.counters[name] += value;
                               });
  }
}

SwitchTotals SwitchNode::totals() const {
  SwitchTotals totals = totals_;
  collect_counters(totals);
  totals.exhausted = pool_.exhausted();
  return totals;
}

void SwitchNode::watch_marks() {
  marks_.emplace(world_);
  for (const auto& job : spec_.jobs) {
    if (job.mode == wire::Mode::sync) marks_->add_job(job.id, job.slots);
  }
}

}  // namespace iswitch::sim
