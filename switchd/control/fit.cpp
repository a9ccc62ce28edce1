#include "switchd/control/fit.h"

#include <algorithm>

namespace iswitch::control {
namespace {

const char* mode_name(wire::Mode mode) { return mode == wire::Mode::sync ? "sync" : "async"; }

std::string parent_has(const JobConfig& own, wire::Ipv4 parent) {
  return "job " + std::to_string(own.id) + ": the parent " + wire::to_string(parent) + " has ";
}

std::string too_much(const JobConfig& own, wire::Ipv4 parent, const char* field,
                     std::uint64_t theirs, std::uint64_t ours) {
  return parent_has(own, parent) + field + " " + std::to_string(theirs) +
         ", memory here is planned for " + std::to_string(ours) + "; raise " + field +
         " of this job here or lower it there";
}

std::string nonsense(const JobConfig& own, wire::Ipv4 parent, const char* field,
                     std::uint64_t theirs) {
  return parent_has(own, parent) + field + " " + std::to_string(theirs) +
         ", which no job can have; look at what runs at that address";
}

}  // namespace

std::string misfit(const JobConfig& own, const wire::ReplyBody& parents, wire::Ipv4 parent) {
  if (parents.mode != own.mode)
    return parent_has(own, parent) + "it in mode " + mode_name(parents.mode) +
           ", this switch in mode " + mode_name(own.mode) + "; set the same mode in both configs";
  if (parents.data_type != wire::DataType::float32)
    return parent_has(own, parent) + "data type " +
           std::to_string(static_cast<unsigned>(parents.data_type)) +
           ", this switch adds float32 (0) alone; change the job there";
  if (parents.slots == 0) return nonsense(own, parent, "slots", 0);
  if (parents.shards == 0) return nonsense(own, parent, "shards", 0);
  if (parents.history == 0) return nonsense(own, parent, "history", 0);
  if (parents.segment_bytes < wire::min_segment_bytes ||
      parents.segment_bytes > wire::max_segment_bytes ||
      parents.segment_bytes % wire::min_segment_bytes != 0)
    return nonsense(own, parent, "segment_bytes", parents.segment_bytes);
  if (parents.segment_bytes > own.segment_bytes)
    return too_much(own, parent, "segment_bytes", parents.segment_bytes, own.segment_bytes);
  if (parents.slots > own.slots) return too_much(own, parent, "slots", parents.slots, own.slots);
  const std::uint64_t planned = std::uint64_t{own.slots} * history_in_force(own);
  if (std::uint64_t{parents.slots} * parents.history > planned)
    return too_much(own, parent, "history", parents.history, planned / parents.slots);
  return {};
}

datapath::JobSpec fitted(const JobConfig& own, const wire::ReplyBody& parents) {
  datapath::JobSpec spec;
  spec.id = own.id;
  spec.mode = parents.mode;
  spec.data_type = parents.data_type;
  spec.slots = parents.slots;
  spec.segment_bytes = parents.segment_bytes;
  spec.history = std::max(parents.history, history_in_force(own));
  spec.udp_checksum = own.udp_checksum;
  spec.force_after = own.force_after;
  spec.child = true;
  return spec;
}

std::string refusal_text(const JobConfig& own, const wire::ReplyBody& parents, wire::Ipv4 parent) {
  const std::string id = std::to_string(own.id);
  const std::string who = "the parent " + wire::to_string(parent);
  switch (parents.status) {
    case wire::Status::no_such_job:
      return "job " + id + ": " + who + " has no such job; add it there or remove it here";
    case wire::Status::job_full:
      return "job " + id + ": " + who + " has all " + std::to_string(parents.members_expected) +
             " members of it; raise members of the job there, or remove one of them";
    case wire::Status::bad_tag:
      return "job " + id + ": bad tag: " + who + " has another key for job " + id +
             "; give both switches the same key file";
    case wire::Status::unsupported: {
      if (std::string why = misfit(own, parents, parent); !why.empty()) return why;
      return "job " + id + ": " + who +
             " does not support it as it is here, or cannot run it; compare the job in both "
             "configs";
    }
    default:
      return "job " + id + ": " + who + " refuses the Join: " + wire::status_name(parents.status) +
             "; look at its log";
  }
}

}  // namespace iswitch::control
