// Second stage: whose a packet is and whether its job takes it.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "switchd/pipeline/admission.h"
#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/notices.h"
#include "switchd/pipeline/parse.h"

namespace iswitch::pipeline {

/// Which segments a shard owns: those with segment mod shards = shard, on UDP port base + shard.
struct ShardPlace {
  std::uint16_t shard = 0;
  std::uint16_t shards = 1;
  std::uint16_t udp_port = 0;  ///< base

  struct Where {
    std::uint32_t slot = 0;  ///< within the shard
    std::uint32_t owner = 0;
  };
  Where where(std::uint32_t segment) const {
    if (shards == 1) return {segment, 0};
    return {segment / shards, segment % shards};
  }
  std::uint32_t segment(std::uint32_t slot) const { return slot * shards + shard; }
  /// Slots of this shard in a job of `slots`.
  std::uint32_t share_of(std::uint32_t slots) const {
    return slots > shard ? (slots - shard - 1) / shards + 1 : 0;
  }
};

/// A contribution that its job takes, from one of its members, if its checksum is right: that is
/// not known before payload_is_right.
struct Contribution {
  Admission* job = nullptr;
  const wire::Packet* packet = nullptr;
  std::uint32_t slot = 0;    ///< within the shard
  std::uint8_t carried = 0;  ///< flags it hands on to its result: ECN-ECHO, PARTIAL
  std::uint8_t frame = 0;    ///< place in the burst

  const wire::Header& header() const { return packet->message.header; }
  Bytes payload() const { return packet->message.payload; }
};

/// A result that its job takes: from its parent, or handed back by a member (section 9).
struct ReceivedResult {
  Admission* job = nullptr;
  const wire::Packet* packet = nullptr;
  std::uint32_t slot = 0;                   ///< within the shard
  std::uint8_t flags = 0;                   ///< of the result for the members
  std::uint8_t frame = 0;                   ///< place in the burst
  wire::MemberId member = wire::no_member;  ///< who hands it back; no_member: the parent's

  const wire::Header& header() const { return packet->message.header; }
  Bytes payload() const { return packet->message.payload; }
};

struct Classified {
  std::array<Contribution, max_burst> list{};
  std::size_t count = 0;
  std::array<ReceivedResult, max_burst> result_list{};
  std::size_t result_count = 0;
  FrameList control;
  RefusedList refused;
  std::span<const Contribution> contributions() const { return {list.data(), count}; }
  std::span<const ReceivedResult> results() const { return {result_list.data(), result_count}; }
};

/// Admissions by job id; null where there is no such job.
using JobIndex = std::vector<Admission*>;

void classify(const ShardPlace& place, const JobIndex& jobs, std::span<const Frame> burst,
              const Parsed& parsed, Time now, Classified& classified, Notices& notices,
              Counters& counters);

/// A notice about a contribution in the burst.
datapath::Notice make_notice(datapath::Notice::Kind kind, const wire::Packet& packet,
                             PortId ingress);

}  // namespace iswitch::pipeline
