#include "tools/sim/mark_watch.h"

#include "tools/sim/checks.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/header.h"

namespace iswitch::sim {

namespace {
constexpr std::uint8_t ecn_echo_bit = 0x10;
constexpr std::size_t tos_offset = wire::ethernet_bytes + 1;
}  // namespace

void MarkWatch::received(Bytes frame, bool from_parent) {
  if (frame.size() < wire::payload_offset || frame[12] != 0x08 || frame[13] != 0x00) return;
  const std::uint8_t* header = frame.data() + wire::encapsulation_bytes;
  const unsigned type = header[0] & 15U;
  if (header[0] >> 4 != wire::protocol_version || type > 1) return;
  const auto job = jobs_.find(wire::load_be16(header + 2));
  const std::uint32_t segment = wire::load_be32(header + 10);
  if (job == jobs_.end() || segment >= job->second.size()) return;
  Slot& slot = job->second[segment];
  const std::uint32_t round = wire::load_be32(header + 6);
  if (!slot.used || round != slot.round) {
    if (slot.used && static_cast<std::int32_t>(round - slot.round) < 0) return;  // late
    slot = Slot{};
    slot.used = true;
    slot.round = round;
  }
  const bool experienced = (frame[tos_offset] & 3U) == static_cast<unsigned>(wire::Ecn::ce);
  if (type == 1) {
    slot.judged = slot.judged || !from_parent;
    (experienced ? slot.from_parent_marked : slot.from_parent_unmarked) = true;
    return;
  }
  const unsigned member = wire::load_be16(header + 4);
  if (member >= wire::max_members) return;
  const bool marked = experienced || (header[1] & ecn_echo_bit) != 0;
  marks_ += marked ? 1 : 0;
  (marked ? slot.marked : slot.unmarked) |= wire::MemberMask{1} << member;
}

void MarkWatch::sent(const wire::ResultFields& result, const std::string& node) {
  const auto job = jobs_.find(result.job);
  if (job == jobs_.end() || result.segment >= job->second.size()) return;
  Slot& slot = job->second[result.segment];
  if (!slot.used || slot.round != result.round || slot.judged) return;
  slot.judged = true;
  const bool due = (slot.marked & ~slot.unmarked & result.members) != 0 ||
                   (slot.from_parent_marked && !slot.from_parent_unmarked);
  if (due && (result.flags & ecn_echo_bit) == 0) {
    world_.violation(property::marks,
                     format("%s: the result of job %u segment %u round %u lacks ECN-ECHO, though "
                            "what it is made of was marked",
                            node.c_str(), result.job, result.segment, result.round));
  }
}

void MarkWatch::forget() {
  for (auto& [job, slots] : jobs_) slots.assign(slots.size(), {});
}

}  // namespace iswitch::sim
