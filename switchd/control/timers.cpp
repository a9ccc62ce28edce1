// What time brings: requests that were not answered are sent again, silent members are evicted.
#include <algorithm>

#include "switchd/control/state.h"

namespace iswitch::control {

void Control::State::tick(const Turn& turn) {
  if (parent_address) parent_address->tick(turn);
  for (const auto& entry : jobs) {
    Job& job = *entry.second;
    if (job.config.evict_silent) evict_silent(job, turn);
    if (job.uplink && job.uplink->next_deadline() <= turn.now) {
      job.uplink->tick(turn);
      link_changed(job, turn);
    }
    job.members.for_each([&](Member& member) {
      if (member.told.outstanding && member.told.outstanding->next_send <= turn.now)
        send_outstanding(job, member, turn);
    });
  }
}

void Control::State::evict_silent(Job& job, const Turn& turn) {
  MemberMask silent = 0;
  job.members.for_each([&](const Member& member) {
    if (turn.now - member.last_heard > job.config.member_timeout)
      silent |= MemberMask{1} << member.spec.id;
  });
  for (MemberId id = 0; id < wire::max_members; ++id) {
    if ((silent >> id & 1) == 0) continue;
    ++counters.evictions;
    drop_member(job, id, turn, {});
  }
}

Time Control::State::next_deadline() const {
  Time next = never;
  if (closing) return next;
  if (parent_address) next = parent_address->next_deadline();
  for (const auto& entry : jobs) {
    const Job& job = *entry.second;
    if (job.uplink) next = std::min(next, job.uplink->next_deadline());
    job.members.for_each([&](const Member& member) {
      if (member.told.outstanding) next = std::min(next, member.told.outstanding->next_send);
      if (job.config.evict_silent)
        next = std::min(next, member.last_heard + job.config.member_timeout + 1);
    });
  }
  return next;
}

}  // namespace iswitch::control
