#include "switchd/control/job.h"

#include <algorithm>
#include <utility>

namespace iswitch::control {

namespace {

datapath::JobSpec spec_of(const JobConfig& config, bool child) {
  datapath::JobSpec spec;
  spec.id = config.id;
  spec.mode = config.mode;
  spec.slots = config.slots;
  spec.segment_bytes = config.segment_bytes;
  spec.history = history_in_force(config);
  spec.udp_checksum = config.udp_checksum;
  spec.force_after = config.force_after;
  spec.child = child;
  return spec;
}

}  // namespace

Job::Job(const JobConfig& job_config, std::uint64_t instance_number, std::uint32_t life_number,
         std::uint32_t first_base_round, std::unique_ptr<Uplink> link)
    : config(job_config),
      spec(spec_of(job_config, link != nullptr)),
      instance(instance_number),
      life(life_number),
      threshold_wanted(job_config.threshold),
      members(job_config.members),
      next_base_round(first_base_round),
      uplink(std::move(link)),
      base_round(first_base_round) {}

wire::JobState Job::state() const {
  if (!up) return wire::JobState::forming;
  return halted ? wire::JobState::halted : wire::JobState::running;
}

bool Job::any_came_back() const {
  bool any = false;
  members.for_each([&](const Member& member) { any = any || member.stream || member.late; });
  return any;
}

std::uint16_t Job::threshold_in_force() const {
  const std::uint16_t now = members.size();
  return threshold_wanted == 0 ? now : std::min(threshold_wanted, now);
}

wire::ReplyBody Job::describe(std::uint16_t shards) const {
  wire::ReplyBody reply;
  reply.state = state();
  reply.mode = spec.mode;
  reply.data_type = spec.data_type;
  reply.members_now = members.size();
  reply.members_expected = members.expected();
  reply.threshold = threshold_in_force();
  reply.shards = shards;
  reply.segment_bytes = spec.segment_bytes;
  reply.slots = spec.slots;
  reply.base_round = base_round;
  reply.history = spec.history;
  return reply;
}

JobView Job::view() const {
  JobView view;
  view.config = config;
  view.config.key.clear();
  view.spec = spec;
  view.state = state();
  view.base_round = base_round;
  view.threshold = threshold_in_force();
  view.threshold_wanted = threshold_wanted;
  view.history = spec.history;
  members.for_each([&](const Member& member) {
    view.members.push_back({member.spec, member.incarnation, member.joined_at, member.last_heard});
  });
  view.fault = fault;
  if (state() != wire::JobState::forming && any_came_back())
    view.stream = StreamView{resumed, origin, resumption};
  if (!uplink) return view;
  view.parent = uplink->view();
  if (view.fault.empty()) view.fault = view.parent->fault;
  return view;
}

}  // namespace iswitch::control
