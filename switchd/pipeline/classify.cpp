#include "switchd/pipeline/classify.h"

namespace iswitch::pipeline {
namespace {

using Kind = datapath::Notice::Kind;

/// A count the result's 16-bit field can hold, and 1 from a worker.
bool workers_are_right(const MemberRow& row, std::uint32_t workers) {
  return row.kind == wire::MemberKind::worker ? workers == 1 : workers >= 1 && workers <= 0xFFFF;
}

bool is_own_port(const ShardPlace& place, const wire::Packet& packet, ShardPlace::Where where) {
  return where.owner == place.shard && packet.destination_port == place.udp_port + place.shard;
}

/// Counter::count_ when the job takes it.
Counter fault_of(const ShardPlace& place, const Admission& job, const MemberRow& row,
                 const wire::Packet& packet, ShardPlace::Where where) {
  const wire::Header& header = packet.message.header;
  if (!is_own_port(place, packet, where)) return Counter::classify_drop_wrong_port;
  if (header.segment >= job.spec.slots) return Counter::classify_drop_segment;
  if (header.data_type() != job.spec.data_type) return Counter::classify_drop_data_type;
  if (packet.message.payload.size() > job.spec.segment_bytes) return Counter::classify_drop_length;
  if (!workers_are_right(row, header.workers())) return Counter::classify_drop_workers;
  return Counter::count_;
}

/// Counter::count_ when the job takes this result.
Counter fault_of_result(const ShardPlace& place, const Admission* job, const wire::Packet& packet,
                        PortId ingress) {
  if (job == nullptr || !job->spec.child) return Counter::classify_drop_result;
  if (!job->parent.matches(packet.source, ingress)) return Counter::classify_drop_result_source;
  // Those of a halted job are taken: nothing is lost by a Halt.
  if (!job->running) return Counter::classify_drop_result_stopped;
  const wire::Header& header = packet.message.header;
  if (!is_own_port(place, packet, place.where(header.segment)) ||
      header.segment >= job->spec.slots || header.data_type() != job->spec.data_type ||
      packet.message.payload.size() > job->spec.segment_bytes || header.member == 0)
    return Counter::classify_drop_result_malformed;
  return Counter::count_;
}

std::uint8_t result_flags(const wire::Packet& packet) {
  const std::uint8_t flags = packet.message.header.flags;
  const auto handed_on = static_cast<std::uint8_t>(
      flags & (wire::flag::data_type_mask | wire::flag::ecn_echo | wire::flag::partial));
  return packet.ecn == wire::Ecn::ce ? handed_on | wire::flag::ecn_echo : handed_on;
}

/// What of a contribution the result must say too. A worker has no partial sums.
std::uint8_t carried_flags(const MemberRow& row, const wire::Packet& packet) {
  const std::uint8_t flags = packet.message.header.flags;
  std::uint8_t carried = flags & wire::flag::ecn_echo;
  if (packet.ecn == wire::Ecn::ce) carried |= wire::flag::ecn_echo;
  if (row.kind == wire::MemberKind::child_switch) carried |= flags & wire::flag::partial;
  return carried;
}

/// Apart from the loop below, which is to stay small: roots see none.
[[gnu::noinline]] void classify_result(const ShardPlace& place, Admission* job,
                                       const wire::Packet& packet, std::uint8_t frame,
                                       PortId ingress, Classified& classified, Counters& counters) {
  const Counter fault = fault_of_result(place, job, packet, ingress);
  if (fault == Counter::count_) {
    classified.result_list[classified.result_count++] = {
        .job = job,
        .packet = &packet,
        .slot = place.where(packet.message.header.segment).slot,
        .flags = result_flags(packet)};
    return;
  }
  counters.add(fault);
  if (fault != Counter::classify_drop_result_stopped) classified.refused.push(frame, fault);
  if (job != nullptr && job->spec.child) job->stats->add(JobCounter::parent_refused);
}

}  // namespace

datapath::Notice make_notice(Kind kind, const wire::Packet& packet, PortId ingress) {
  const wire::Header& header = packet.message.header;
  return {.kind = kind,
          .job = header.job,
          .member = header.member,
          .ingress = ingress,
          .source = packet.source,
          .segment = header.segment,
          .round = header.round,
          .others = 0};
}

void classify(const ShardPlace& place, const JobIndex& jobs, std::span<const Frame> burst,
              const Parsed& parsed, Time now, Classified& classified, Notices& notices,
              Counters& counters) {
  classified.count = 0;
  classified.result_count = 0;
  classified.control.clear();
  classified.refused.clear();
  const auto refuse = [&](std::uint8_t i, Counter reason) {
    counters.add(reason);
    classified.refused.push(i, reason);
  };
  for (const std::uint8_t i : parsed.ours) {
    const wire::Packet& packet = parsed.packets[i];
    const wire::Header& header = packet.message.header;
    if (!header.is_data()) {
      classified.control.push(i);
      continue;
    }
    const PortId ingress = burst[i].port;
    Admission* job = jobs[header.job];
    if (header.type == wire::Type::result) {
      classify_result(place, job, packet, i, ingress, classified, counters);
      continue;
    }
    if (job == nullptr) {
      refuse(i, Counter::classify_drop_unknown_job);
      notices.tell_stranger(make_notice(Kind::not_a_member, packet, ingress), now);
      continue;
    }
    if (header.member >= wire::max_members ||
        !job->rows[header.member].matches(packet.source, ingress)) {
      refuse(i, Counter::classify_drop_not_a_member);
      notices.tell_stranger(make_notice(Kind::not_a_member, packet, ingress), now);
      continue;
    }
    job->stats->heard(header.member, now);
    if (!job->running || job->halted) {
      counters.add(job->running ? Counter::classify_drop_halted : Counter::classify_drop_forming);
      job->stats->add(JobCounter::refused);
      notices.tell(*job, make_notice(Kind::not_running, packet, ingress), now);
      continue;
    }
    const MemberRow& row = job->rows[header.member];
    const ShardPlace::Where where = place.where(header.segment);
    if (const Counter fault = fault_of(place, *job, row, packet, where); fault != Counter::count_) {
      refuse(i, fault);
      job->stats->add(JobCounter::invalid);
      continue;
    }
    classified.list[classified.count++] = {.job = job,
                                           .packet = &packet,
                                           .slot = where.slot,
                                           .carried = carried_flags(row, packet),
                                           .frame = i};
  }
}

}  // namespace iswitch::pipeline
