#include "switchd/control/job.h"

#include <algorithm>

namespace iswitch::control {

Job::Job(const JobConfig& job_config, std::uint64_t instance_number, std::uint32_t first_base_round)
    : config(job_config),
      instance(instance_number),
      history(history_in_force(job_config)),
      threshold_wanted(job_config.threshold),
      members(job_config.members),
      next_base_round(first_base_round),
      base_round(first_base_round) {}

wire::JobState Job::state() const {
  if (!up) return wire::JobState::forming;
  return halted ? wire::JobState::halted : wire::JobState::running;
}

std::uint16_t Job::threshold_in_force() const {
  const std::uint16_t now = members.size();
  return threshold_wanted == 0 ? now : std::min(threshold_wanted, now);
}

wire::ReplyBody Job::describe(std::uint16_t shards) const {
  wire::ReplyBody reply;
  reply.state = state();
  reply.mode = config.mode;
  reply.data_type = wire::DataType::float32;
  reply.members_now = members.size();
  reply.members_expected = members.expected();
  reply.threshold = threshold_in_force();
  reply.shards = shards;
  reply.segment_bytes = config.segment_bytes;
  reply.slots = config.slots;
  reply.base_round = base_round;
  reply.history = history;
  return reply;
}

JobView Job::view() const {
  JobView view;
  view.config = config;
  view.config.key.clear();
  view.state = state();
  view.base_round = base_round;
  view.threshold = threshold_in_force();
  view.threshold_wanted = threshold_wanted;
  view.history = history;
  members.for_each([&](const Member& member) {
    view.members.push_back({member.spec, member.incarnation, member.joined_at, member.last_heard});
  });
  view.fault = fault;
  return view;
}

}  // namespace iswitch::control
