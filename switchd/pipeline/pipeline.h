// The aggregation pipeline of one shard: parse > classify > aggregate > deliver, the layer-2 switch
// and the switch's own ARP and ICMP beside it. Pure: no DPDK, clock, thread or log. One lcore owns
// a Pipeline; counters and last-heard times may be read from elsewhere (relaxed atomics).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <variant>

#include "switchd/datapath/datapath.h"
#include "switchd/pipeline/aggregate.h"
#include "switchd/pipeline/buffers.h"
#include "switchd/pipeline/classify.h"
#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/deliver.h"
#include "switchd/pipeline/frame.h"
#include "switchd/pipeline/job_table.h"
#include "switchd/pipeline/kernels.h"
#include "switchd/pipeline/l2.h"
#include "switchd/pipeline/local.h"
#include "switchd/pipeline/notices.h"
#include "switchd/pipeline/parse.h"

namespace iswitch::pipeline {

struct PipelineConfig {
  datapath::SwitchAddress address;  ///< rules.ports is the number of shards
  std::uint16_t shard = 0;
  PortMask ports = 0;           ///< that exist and are up
  wire::Ipv4 parent;            ///< whose ARP replies make a notice; 0: nobody's
  Time mac_age = 300 * second;  ///< a learned address not seen for so long is forgotten
};

template <BufferPool Buffers>
class Pipeline {
 public:
  using Handle = typename Buffers::Handle;

  Pipeline(const PipelineConfig& config, Buffers& buffers);
  ~Pipeline();  ///< gives every buffer back
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Ports that may be forwarded to from now on.
  void set_ports(PortMask up);

  /// One burst, at most max_burst frames. Afterwards each frame stands in exactly one terminal
  /// counter.
  template <class Sink>
  void run(std::span<const Frame> burst, Time now, Sink& sink);

  template <class Sink>
  datapath::Answer execute(const datapath::Order& order, Time now, Sink& sink);

  /// Bounded work between bursts: forces old sums (JobSpec::force_after).
  template <class Sink>
  void housekeep(Time now, Sink& sink);

  // ---- for readers anywhere

  const Counters& counters() const { return counters_; }
  const JobStatsList& job_stats() const { return jobs_.stats(); }
  /// Frames that the layer-2 switch has sent out of a port.
  std::uint64_t forwarded(PortId port) const { return forwarded_[port].get(); }

 private:
  using JobType = Job<Handle>;
  template <class Item>
  static JobType& job_of(const Item& item) {
    return static_cast<JobType&>(*item.job);
  }

  template <class Sink>
  void pass_control(std::span<const Frame> burst, Time now, Sink& sink);
  template <class Sink>
  void pass_ordinary(std::span<const Frame> burst, Time now, Sink& sink);
  template <class Sink>
  void switch_frame(const Frame& frame, unsigned index, Time now, Sink& sink);
  void look_for_parent(const Frame& frame, Time now);
  [[gnu::noinline]] void take_results(std::span<const Frame> burst, Time now);
  void take_back(const ReceivedResult& result, JobType& job, PortId ingress, Time now);
  void aggregate(std::span<const Frame> burst, Time now);
  void refused(Row row, JobType& job, const Contribution& c, PortId ingress, Time now);
  template <class Sink>
  static void ended(Stage stage, Sink& sink) {
    if constexpr (requires { sink.stage(stage); }) sink.stage(stage);
  }
  template <class Sink>
  static void tell_refused(const RefusedList& refused, Sink& sink);

  // One for each order; `job` exists.
  template <class Sink>
  void carry_out(const datapath::Remove& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::Stop& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::Start& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::SetHalted& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::PutMember& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::DropMember& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::SetThreshold& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::Force& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::Replay& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::SendUp& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::GiveUp& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void carry_out(const datapath::ListSlots& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);
  template <class Sink>
  void complete_what_is_met(JobType& job, Sink& sink);
  template <class Sink>
  void carry_out(const datapath::Install&, JobType&, Time, Sink&, datapath::Answer&) {}
  template <class Sink>
  void carry_out(const datapath::PutParent& order, JobType& job, Time now, Sink& sink,
                 datapath::Answer& answer);

  /// The slot of a segment that is this shard's and the job's; else the answer says why not.
  std::optional<std::uint32_t> slot_of(const JobType& job, std::uint32_t segment,
                                       datapath::Answer& answer) const;
  std::optional<std::uint32_t> look_up(JobType& job, std::uint32_t segment, std::uint32_t round,
                                       datapath::Answer& answer) const;

  const PipelineConfig config_;
  const FrameParser parser_;
  const ShardPlace place_;
  PortMask up_;
  Buffers& buffers_;
  wire::PartialSum (*const partial_sum_)(Bytes) = wire::checksum_variants().back().sum;
  Counters counters_;
  std::array<Tally, datapath::max_ports> forwarded_{};
  JobTable<Handle> jobs_;
  Notices notices_;
  Aggregator<Buffers> aggregator_;
  L2Switch l2_;
  Local local_;
  std::size_t housekept_ = 0;  // job that housekeep comes to next
  // Between the stages of a burst.
  Parsed parsed_;
  Classified classified_;
};

template <BufferPool Buffers>
Pipeline<Buffers>::Pipeline(const PipelineConfig& config, Buffers& buffers)
    : config_(config),
      parser_{.rules = config.address.rules},
      place_{config.shard, std::max<std::uint16_t>(config.address.rules.ports, 1),
             config.address.rules.udp_port},
      up_(config.ports),
      buffers_(buffers),
      notices_(counters_),
      aggregator_(buffers, best_kernels(), place_, counters_),
      l2_(config.address.mac, config.mac_age),
      local_(config.address.mac, config.address.rules.ip) {}

template <BufferPool Buffers>
Pipeline<Buffers>::~Pipeline() {
  for (std::size_t i = 0; i < jobs_.size(); ++i) aggregator_.clear(jobs_.at(i), 0);
}

template <BufferPool Buffers>
void Pipeline<Buffers>::set_ports(PortMask up) {
  for (PortId port = 0; port < datapath::max_ports; ++port) {
    if ((up_ & ~up) >> port & 1) l2_.table().forget(port);
  }
  up_ = up;
}

// ---- a burst

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::run(std::span<const Frame> burst, Time now, Sink& sink) {
  parse(parser_, burst, parsed_, counters_);
  ended(Stage::parse, sink);
  classify(place_, jobs_.index(), burst, parsed_, now, classified_, notices_, counters_);
  for (const Contribution& c : classified_.contributions()) job_of(c).slots.prefetch(c.slot);
  ended(Stage::classify, sink);
  pass_control(burst, now, sink);
  pass_ordinary(burst, now, sink);
  if (!classified_.results().empty()) take_results(burst, now);
  aggregate(burst, now);
  ended(Stage::aggregate, sink);
  deliver(aggregator_.outbox(), buffers_, counters_, sink);
  tell_refused(parsed_.refused, sink);
  tell_refused(classified_.refused, sink);
  for (const datapath::Notice& notice : notices_.pending()) sink.notice(notice);
  notices_.clear();
  ended(Stage::deliver, sink);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::tell_refused(const RefusedList& refused, Sink& sink) {
  if constexpr (requires { sink.refused(0u, Counter::count_); }) {
    for (unsigned i = 0; i < refused.count; ++i) sink.refused(refused.index[i], refused.reason[i]);
  }
}

/// Before the burst's contributions, since results make room for them.
template <BufferPool Buffers>
void Pipeline<Buffers>::take_results(std::span<const Frame> burst, Time now) {
  for (const ReceivedResult& result : classified_.results()) {
    JobType& job = job_of(result);
    if (result.member != wire::no_member) {
      take_back(result, job, burst[result.frame].port, now);
      continue;
    }
    const Taken taken = aggregator_.take(job, result);
    counters_.add(counter_of(taken));
    if (taken != Taken::taken && taken != Taken::answered)
      job.stats->add(JobCounter::parent_refused);
  }
}

/// A result that a member has from before a restart.
template <BufferPool Buffers>
void Pipeline<Buffers>::take_back(const ReceivedResult& result, JobType& job, PortId ingress,
                                  Time now) {
  job.stats->heard(result.member, now);
  const Row row = aggregator_.take_back(job, result);
  counters_.add(account_of(row).counter);
  job.stats->add(account_of(row).job_counter);
  if (row == Row::unexpected) classified_.refused.push(result.frame, account_of(row).counter);
  if (row != Row::gone) return;
  datapath::Notice notice = make_notice(datapath::Notice::Kind::gone, *result.packet, ingress);
  notice.member = result.member;
  notices_.tell(job, notice, now);
}

template <BufferPool Buffers>
void Pipeline<Buffers>::aggregate(std::span<const Frame> burst, Time now) {
  std::uint64_t added = 0;  // most contributions are; counted once a burst
  for (const Contribution& c : classified_.contributions()) {
    JobType& job = job_of(c);
    // The payload comes into the innermost cache here, and the addition finds it there.
    if (!wire::payload_is_right(*c.packet, partial_sum_)) {
      counters_.add(Counter::parse_drop_udp_checksum);
      classified_.refused.push(c.frame, Counter::parse_drop_udp_checksum);
      continue;
    }
    job.stats->heard(c.header().member, now);
    const Row row = aggregator_.contribute(job, c, now);
    if (row == Row::added) {
      ++added;
      continue;
    }
    counters_.add(account_of(row).counter);
    job.stats->add(account_of(row).job_counter);
    if (row == Row::mismatch) classified_.refused.push(c.frame, account_of(row).counter);
    if (row == Row::mismatch || row == Row::gone) refused(row, job, c, burst[c.frame].port, now);
  }
  counters_.add(Counter::aggregate_added, added);
}

/// Somebody should be told: a mismatch to all concerned, and a result that is gone.
template <BufferPool Buffers>
void Pipeline<Buffers>::refused(Row row, JobType& job, const Contribution& c, PortId ingress,
                                Time now) {
  const auto kind =
      row == Row::mismatch ? datapath::Notice::Kind::mismatch : datapath::Notice::Kind::gone;
  datapath::Notice notice = make_notice(kind, *c.packet, ingress);
  if (row == Row::mismatch)
    notice.others = aggregator_.members_of_round(job, c) & ~(MemberMask{1} << c.header().member);
  if (row == Row::gone) notice.round = aggregator_.gone_round(job, c);
  notices_.tell(job, notice, now);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::pass_control(std::span<const Frame> burst, Time now, Sink& sink) {
  for (const std::uint8_t i : classified_.control) {
    const wire::Packet& packet = parsed_.packets[i];
    // A member may send nothing else: ordinary traffic to it should find its port.
    l2_.learn(burst[i].view(), burst[i].port, now);
    datapath::ControlFrame frame;
    frame.ingress = burst[i].port;
    const std::size_t size = wire::payload_offset + packet.message.payload.size();
    frame.size = static_cast<std::uint16_t>(std::min(size, frame.bytes.size()));
    std::memcpy(frame.bytes.data(), burst[i].bytes, frame.size);
    counters_.add(sink.control(frame) ? Counter::control_passed : Counter::control_drop_full);
  }
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::pass_ordinary(std::span<const Frame> burst, Time now, Sink& sink) {
  for (const std::uint8_t i : parsed_.ordinary) {
    const Frame& frame = burst[i];
    const Local::Outcome outcome = local_.handle(frame.view());
    if (!outcome.handled) {
      if (config_.parent.value != 0) look_for_parent(frame, now);
      switch_frame(frame, i, now, sink);
      continue;
    }
    l2_.learn(frame.view(), frame.port, now);
    if (!outcome.reply.empty()) sink.transmit(frame.port, outcome.reply);
    counters_.add(outcome.terminal);
  }
}

template <BufferPool Buffers>
void Pipeline<Buffers>::look_for_parent(const Frame& frame, Time now) {
  const std::optional<wire::Mac> mac = local_.arp_reply_from(config_.parent, frame.view());
  if (!mac.has_value()) return;
  datapath::Notice notice;
  notice.kind = datapath::Notice::Kind::parent_address;
  notice.ingress = frame.port;
  notice.source.mac = *mac;
  notice.source.ip = config_.parent;
  notices_.tell_parent(notice, now);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::switch_frame(const Frame& frame, unsigned index, Time now, Sink& sink) {
  Counter terminal = Counter::l2_drop_no_port;
  const PortMask ports = l2_.forward(frame.view(), frame.port, up_, now, terminal);
  counters_.add(terminal);
  if (ports == 0) return;
  for (PortMask left = ports; left != 0; left &= left - 1)
    forwarded_[static_cast<std::size_t>(std::countr_zero(left))].add(1);
  sink.forward(index, ports);
}

// ---- orders

template <BufferPool Buffers>
template <class Sink>
datapath::Answer Pipeline<Buffers>::execute(const datapath::Order& order, Time now, Sink& sink) {
  datapath::Answer answer;
  answer.number = order.number;
  answer.shard = config_.shard;
  if (const auto* install = std::get_if<datapath::Install>(&order.what)) {
    answer.ok = install->job.id == order.job && jobs_.install(install->job, place_);
    return answer;
  }
  JobType* job = jobs_.find(order.job);
  if (job == nullptr) {
    answer.ok = false;
    return answer;
  }
  std::visit([&](const auto& what) { carry_out(what, *job, now, sink, answer); }, order.what);
  deliver(aggregator_.outbox(), buffers_, counters_, sink);
  return answer;
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::Remove&, JobType& job, Time, Sink&,
                                  datapath::Answer&) {
  aggregator_.clear(job, 0);
  jobs_.remove(job);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::Stop&, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  job.running = false;
  job.resumed = false;
  aggregator_.clear(job, 0);
  answer.highest_round = job.highest_round;
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::Start& order, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  answer.ok = !job.spec.child || job.parent.present;
  if (!answer.ok) return;
  job.base_round = order.base_round;
  job.highest_round = order.base_round - 1;
  job.joined_since = 0;
  job.resumed = order.resumed.has_value();
  job.resumption = order.resumed.value_or(datapath::Resumption{});
  if (job.resumed) {
    aggregator_.resume(job, order.base_round);
  } else {
    aggregator_.clear(job, order.base_round);
  }
  job.running = true;
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::SetHalted& order, JobType& job, Time now, Sink&,
                                  datapath::Answer&) {
  // The time of a halt does not count towards force_after: nobody could contribute.
  if (job.halted && !order.halted && job.spec.force_after > 0) {
    for (std::uint32_t i = 0; i < job.slots.size(); ++i) job.slots.slot(i).opened_at = now;
  }
  job.halted = order.halted;
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::PutMember& order, JobType& job, Time now,
                                  Sink& sink, datapath::Answer& answer) {
  const datapath::MemberSpec& member = order.member;
  answer.ok = member.id < wire::max_members && member.ingress < datapath::max_ports;
  if (!answer.ok) return;
  const MemberRow& row = job.rows[member.id];
  if (!row.present || row.incarnation != member.incarnation) {
    try {
      aggregator_.refill(job, member.id);
    } catch (const std::bad_alloc&) {
      answer.ok = false;
      return;
    }
  }
  job.put(member, config_.address);
  job.stats->heard(member.id, now);
  if (job.resumed) complete_what_is_met(job, sink);  // a newcomer has nothing to hand back
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::PutParent& order, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  const datapath::ParentSpec& parent = order.parent;
  answer.ok =
      job.link != nullptr && parent.member < wire::max_members && parent.port < datapath::max_ports;
  if (!answer.ok) return;
  // What is on its way carries the old place's id and numbers.
  const datapath::ParentSpec& old = job.link->spec;
  const bool same_place = parent.member == old.member && parent.incarnation == old.incarnation;
  if (job.running && !same_place) {
    answer.ok = false;
    return;
  }
  job.link->spec = parent;
  job.link->way_up = job.destination(config_.address, parent.endpoint, parent.port, parent.shards);
  job.parent = {.ip = parent.endpoint.ip.value,
                .udp_port = parent.endpoint.udp_port,
                .ingress = parent.port,
                .present = true,
                .kind = wire::MemberKind::child_switch,
                .incarnation = parent.incarnation};
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::DropMember& order, JobType& job, Time, Sink& sink,
                                  datapath::Answer& answer) {
  answer.ok = order.member < wire::max_members;
  if (!answer.ok) return;
  job.drop(order.member);
  aggregator_.forget(job, order.member);
  complete_what_is_met(job, sink);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::complete_what_is_met(JobType& job, Sink& sink) {
  for (std::uint32_t i = 0; i < job.slots.size(); ++i) {
    aggregator_.complete_if_met(job, i);
    deliver(aggregator_.outbox(), buffers_, counters_, sink);
  }
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::SetThreshold& order, JobType& job, Time, Sink&,
                                  datapath::Answer&) {
  job.threshold = order.threshold;
}

template <BufferPool Buffers>
std::optional<std::uint32_t> Pipeline<Buffers>::slot_of(const JobType& job, std::uint32_t segment,
                                                        datapath::Answer& answer) const {
  const ShardPlace::Where where = place_.where(segment);
  if (where.owner != place_.shard) return std::nullopt;
  answer.slot = datapath::SlotState::none;
  if (segment >= job.spec.slots) return std::nullopt;
  return where.slot;
}

/// The same, and the state of that round or update there.
template <BufferPool Buffers>
std::optional<std::uint32_t> Pipeline<Buffers>::look_up(JobType& job, std::uint32_t segment,
                                                        std::uint32_t round,
                                                        datapath::Answer& answer) const {
  const auto slot = slot_of(job, segment, answer);
  if (!slot.has_value()) return slot;
  answer.slot = aggregator_.state_of(job, *slot, round);
  if (answer.slot == datapath::SlotState::open)
    answer.missing = job.members & ~job.slots.slot(*slot).members;
  return slot;
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::Force& order, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  const auto slot = slot_of(job, order.segment, answer);
  if (!slot.has_value()) return;
  const MemberMask missing = job.members & ~job.slots.slot(*slot).members;
  answer.slot = aggregator_.force(job, *slot, order.round);
  if (answer.slot == datapath::SlotState::open) answer.missing = missing;
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::Replay& order, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  const auto slot = look_up(job, order.segment, order.round, answer);
  const bool is_member = order.member < wire::max_members && (job.members >> order.member & 1) != 0;
  if (answer.slot == datapath::SlotState::kept && is_member)
    aggregator_.replay(job, *slot, order.round, order.member);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::SendUp& order, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  const auto slot = look_up(job, order.segment, order.round, answer);
  if (answer.slot == datapath::SlotState::waiting) aggregator_.send_up_again(job, *slot);
  if (answer.slot == datapath::SlotState::kept && job.resumed && job.link != nullptr)
    aggregator_.hand_up(job, *slot, order.round);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::GiveUp& order, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  if (const auto slot = slot_of(job, order.segment, answer); slot.has_value())
    aggregator_.give_up_waiting(job, *slot, order.push);
}

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::carry_out(const datapath::ListSlots& order, JobType& job, Time, Sink&,
                                  datapath::Answer& answer) {
  for (std::uint32_t i = 0; i < job.slots.size() && answer.open.size() < order.limit; ++i)
    aggregator_.list(job, i, answer.open);
  if (answer.open.size() > order.limit) answer.open.resize(order.limit);
}

// ---- between bursts

template <BufferPool Buffers>
template <class Sink>
void Pipeline<Buffers>::housekeep(Time now, Sink& sink) {
  constexpr std::uint32_t slots_a_call = 64;
  if (jobs_.size() == 0) return;
  housekept_ = (housekept_ + 1) % jobs_.size();
  JobType& job = jobs_.at(housekept_);
  if (job.spec.force_after <= 0 || !job.running || job.halted) return;
  const std::uint32_t steps = std::min(slots_a_call, job.slots.size());
  for (std::uint32_t i = 0; i < steps; ++i) {
    if (job.scanned >= job.slots.size()) job.scanned = 0;
    aggregator_.force_if_older(job, job.scanned++, now - job.spec.force_after);
  }
  deliver(aggregator_.outbox(), buffers_, counters_, sink);
}

}  // namespace iswitch::pipeline
