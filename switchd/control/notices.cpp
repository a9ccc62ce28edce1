// What sources of refused contributions are told unasked: Ping replies with request id 0 and a
// nonce that only grows, at most ten a second to one of them.
#include "switchd/control/state.h"

namespace iswitch::control {
namespace {

std::uint64_t operation_of(const datapath::Notice& notice) {
  return std::uint64_t{notice.segment} << 32 | notice.round;
}

}  // namespace

void Control::State::on_notice(const datapath::Notice& notice, const Turn& turn) {
  if (notice.kind == datapath::Notice::Kind::parent_address) return on_parent_address(notice, turn);
  Job* const job = find_job(notice.job);
  if (notice.kind == datapath::Notice::Kind::not_a_member) return tell_stranger(job, notice, turn);
  if (job == nullptr) {
    ++counters.ignored;
    return;
  }
  // While the slots are being cleared nobody is told anything: the Reset that follows says it all,
  // and what the datapath says now may be about a base_round that has not been announced.
  if (!job->settled()) {
    ++counters.ignored;
    return;
  }
  switch (notice.kind) {
    case datapath::Notice::Kind::not_a_member:
    case datapath::Notice::Kind::parent_address:
      return;
    case datapath::Notice::Kind::not_running:
      return tell_member(*job, notice.member,
                         job->waits_for_parent()                  ? wire::Status::parent_not_ready
                         : job->state() == wire::JobState::halted ? wire::Status::halted
                                                                  : wire::Status::ok,
                         0, turn);
    case datapath::Notice::Kind::gone:
      if (job->uplink && job->is_sync()) return gone_here(*job, notice, turn);
      return tell_member(*job, notice.member, wire::Status::gone, operation_of(notice), turn);
    case datapath::Notice::Kind::mismatch:
      tell_member(*job, notice.member, wire::Status::mismatch, operation_of(notice), turn);
      for (MemberId id = 0; id < wire::max_members; ++id)
        if ((notice.others >> id & 1) != 0 && id != notice.member)
          tell_member(*job, id, wire::Status::mismatch, operation_of(notice), turn);
      return;
  }
}

void Control::State::tell_member(Job& job, datapath::MemberId id, wire::Status status,
                                 std::uint64_t missing, const Turn& turn) {
  Member* const member = job.members.find(id);
  if (member == nullptr) {  // gone since the datapath said so
    ++counters.ignored;
    return;
  }
  wire::ReplyBody body = job.describe(config.shards);
  body.status = status;
  body.member = id;
  body.missing = missing;
  member->told.hears(body.state);
  tell(job.notices, job.config.id, body, job.config.key,
       {member->spec.endpoint, member->spec.ingress}, turn);
}

void Control::State::tell_stranger(Job* job, const datapath::Notice& notice, const Turn& turn) {
  const Place place = place_of(notice.source, notice.ingress);
  if (job != nullptr && job->members.find(place, notice.member) != nullptr) {
    ++counters.ignored;  // it has become one since: telling it would make it join again
    return;
  }
  wire::ReplyBody body = job != nullptr ? job->describe(config.shards) : wire::ReplyBody{};
  body.status = wire::Status::not_a_member;
  body.member = notice.member;
  tell(job != nullptr ? job->notices : strangers, notice.job, body,
       job != nullptr ? wire::Key{job->config.key} : wire::Key{}, {notice.source, notice.ingress},
       turn);
}

void Control::State::tell(RateLimiter& limiter, JobId job, const wire::ReplyBody& body,
                          wire::Key key, const Destination& to, const Turn& turn) {
  if (!limiter.allow(place_of(to.endpoint, to.port), body.status, turn.now)) {
    ++counters.notices_limited;
    return;
  }
  ++counters.notices_sent;
  const wire::ControlHeader header{wire::Action::ping, job, body.member, 0,
                                   frames.next_nonce(turn.now)};
  frames.send(wire::write_reply(header, body, {key, to.endpoint.ip, to.endpoint.udp_port}), to,
              turn);
}

}  // namespace iswitch::control
