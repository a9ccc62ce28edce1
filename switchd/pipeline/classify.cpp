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

/// Why the job does not take it; Counter::count_ when it does. `job` may be null.
Counter fault_of(const ShardPlace& place, const Admission* job, const wire::Packet& packet,
                 ShardPlace::Where where, PortId ingress) {
  if (job == nullptr) return Counter::classify_drop_unknown_job;
  const wire::Header& header = packet.message.header;
  if (header.member >= wire::max_members) return Counter::classify_drop_not_a_member;
  const MemberRow& row = job->rows[header.member];
  if (!row.matches(packet.source, ingress)) return Counter::classify_drop_not_a_member;
  if (!job->running) return Counter::classify_drop_forming;
  if (job->halted) return Counter::classify_drop_halted;
  if (!is_own_port(place, packet, where)) return Counter::classify_drop_wrong_port;
  if (header.segment >= job->spec.slots) return Counter::classify_drop_segment;
  if (header.data_type() != job->spec.data_type) return Counter::classify_drop_data_type;
  if (packet.message.payload.size() > job->spec.segment_bytes) return Counter::classify_drop_length;
  if (!workers_are_right(row, header.workers())) return Counter::classify_drop_workers;
  return Counter::count_;
}

/// Counter::count_ when the job takes this result that a member hands back (section 9): it is sent
/// like a contribution. No workers at all: an asynchronous member that has none.
Counter fault_of_handed_back(const ShardPlace& place, const Admission& job,
                             const wire::Packet& packet) {
  const wire::Header& header = packet.message.header;
  if (job.halted) return Counter::classify_drop_halted;
  if (!is_own_port(place, packet, place.where(header.segment)))
    return Counter::classify_drop_wrong_port;
  if (header.segment >= job.spec.slots) return Counter::classify_drop_segment;
  if (header.data_type() != job.spec.data_type) return Counter::classify_drop_data_type;
  if (packet.message.payload.size() > job.spec.segment_bytes) return Counter::classify_drop_length;
  const bool may_have_none = job.spec.mode == wire::Mode::async && packet.message.payload.empty();
  if (header.member == 0 && !may_have_none) return Counter::classify_drop_workers;
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
  // After a restart: no member of the whole job has a result of that slot.
  const bool is_none = job->resumed && job->spec.mode == wire::Mode::async && header.set == 0 &&
                       packet.message.payload.empty();
  if (!is_own_port(place, packet, place.where(header.segment)) ||
      header.segment >= job->spec.slots || header.data_type() != job->spec.data_type ||
      packet.message.payload.size() > job->spec.segment_bytes || (header.member == 0 && !is_none))
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

struct Refused {
  Admission* job;
  const wire::Packet& packet;
  std::uint8_t frame;
  PortId ingress;
  wire::MemberId member;
};

/// Counts a contribution that its job does not take, and has somebody told.
[[gnu::noinline]] void refuse(const Refused& what, Counter reason, Time now, Classified& classified,
                              Notices& notices, Counters& counters) {
  counters.add(reason);
  const bool stopped =
      reason == Counter::classify_drop_forming || reason == Counter::classify_drop_halted;
  if (!stopped) classified.refused.push(what.frame, reason);
  if (reason == Counter::classify_drop_unknown_job ||
      reason == Counter::classify_drop_not_a_member) {
    notices.tell_stranger(make_notice(Kind::not_a_member, what.packet, what.ingress), now);
    return;
  }
  what.job->stats->heard(what.member, now);
  what.job->stats->add(stopped ? JobCounter::refused : JobCounter::invalid);
  if (!stopped) return;
  datapath::Notice notice = make_notice(Kind::not_running, what.packet, what.ingress);
  notice.member = what.member;
  notices.tell(*what.job, notice, now);
}

/// From one of the job's members, and not from its parent.
void classify_handed_back(const ShardPlace& place, Admission& job, const Refused& what, Time now,
                          Classified& classified, Notices& notices, Counters& counters) {
  const wire::Packet& packet = what.packet;
  const Counter fault = fault_of_handed_back(place, job, packet);
  if (fault != Counter::count_) return refuse(what, fault, now, classified, notices, counters);
  classified.result_list[classified.result_count++] = {
      .job = &job,
      .packet = &packet,
      .slot = place.where(packet.message.header.segment).slot,
      .flags = result_flags(packet),
      .frame = what.frame,
      .member = what.member};
}

/// Apart from the loop below, which is to stay small: roots see none, but for some after a restart.
[[gnu::noinline]] void classify_result(const ShardPlace& place, Admission* job,
                                       const wire::Packet& packet, std::uint8_t frame,
                                       PortId ingress, Time now, Classified& classified,
                                       Notices& notices, Counters& counters) {
  const bool parents = job != nullptr && job->parent.matches(packet.source, ingress);
  if (job != nullptr && !parents) {
    const wire::MemberId member = job->member_at(packet.source, ingress);
    if (job->resumed && member != wire::no_member)
      return classify_handed_back(place, *job, {job, packet, frame, ingress, member}, now,
                                  classified, notices, counters);
    // It hands back to a switch that does not know it (any more).
    if (member == wire::no_member) {
      datapath::Notice notice = make_notice(Kind::not_a_member, packet, ingress);
      notice.member = wire::no_member;
      notices.tell_stranger(notice, now);
    }
  }
  const Counter fault = fault_of_result(place, job, packet, ingress);
  if (fault == Counter::count_) {
    classified.result_list[classified.result_count++] = {
        .job = job,
        .packet = &packet,
        .slot = place.where(packet.message.header.segment).slot,
        .flags = result_flags(packet),
        .frame = frame};
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
      classify_result(place, job, packet, i, ingress, now, classified, notices, counters);
      continue;
    }
    const ShardPlace::Where where = place.where(header.segment);
    const Counter fault = fault_of(place, job, packet, where, ingress);
    if (fault == Counter::count_) {
      classified.list[classified.count++] = {
          .job = job,
          .packet = &packet,
          .slot = where.slot,
          .carried = carried_flags(job->rows[header.member], packet),
          .frame = i};
      continue;
    }
    if (wire::payload_is_right(packet, &wire::partial_sum)) {
      refuse({job, packet, i, ingress, header.member}, fault, now, classified, notices, counters);
    } else {
      classified.refused.push(i, Counter::parse_drop_udp_checksum);
      counters.add(Counter::parse_drop_udp_checksum);
    }
  }
}

}  // namespace iswitch::pipeline
