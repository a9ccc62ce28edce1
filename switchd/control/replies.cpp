// What members are answered.
#include "switchd/control/state.h"

namespace iswitch::control {

void Control::State::answer(Job& job, const Requester& who, wire::Status status, const Turn& turn,
                            std::uint64_t missing) {
  if (ReplayGuard::covers(who.header.action) && !job.guard.finish(who.place(), who.header, status))
    return;
  Member* const member = job.members.find(who.place());
  const bool first = member != nullptr && !member->told.answered;
  if (first) {
    member->told.answered = true;
    member->told.base_round = job.base_round;
    member->told.halted = job.state() == wire::JobState::halted;
  }
  reply(job, who, status, missing, turn);
  if (first) announce_to(job, *member, turn);
}

void Control::State::reply(Job& job, const Requester& who, wire::Status status,
                           std::uint64_t missing, const Turn& turn) {
  Member* const member = job.members.find(who.place());
  wire::ReplyBody body = job.describe(config.shards);
  body.status = status;
  body.missing = missing;
  wire::ControlHeader header = who.header;
  if (member != nullptr) {
    body.member = member->spec.id;
    header.member = member->spec.id;
    member->told.hears(body.state);
    const bool joins = header.action == wire::Action::join || header.action == wire::Action::rejoin;
    if (joins && status == wire::Status::ok && missing == 0)
      body.missing = said_of_stream(job, *member, header.action);
  }
  if (status != wire::Status::ok) ++counters.refused[static_cast<std::size_t>(status)];
  ++counters.replies_sent;
  const wire::Client client{job.config.key, who.endpoint.ip, who.endpoint.udp_port};
  frames.send(wire::write_reply(header, body, client), {who.endpoint, who.ingress}, turn);
}

void Control::State::reply_no_such_job(const Requester& who, const Turn& turn) {
  wire::ReplyBody body;
  body.status = wire::Status::no_such_job;
  body.member = 0;
  ++counters.refused[static_cast<std::size_t>(wire::Status::no_such_job)];
  ++counters.replies_sent;
  const wire::Client client{{}, who.endpoint.ip, who.endpoint.udp_port};
  frames.send(wire::write_reply(who.header, body, client), {who.endpoint, who.ingress}, turn);
}

}  // namespace iswitch::control
