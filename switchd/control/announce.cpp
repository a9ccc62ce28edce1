// Passing on: each member is told the job's base_round and whether it is halted until it has said
// that it knows. What is sent follows from the difference between what the job is and what the
// member has acknowledged, so a newer request never loses the meaning of an older one.
#include <algorithm>

#include "switchd/control/state.h"

namespace iswitch::control {
namespace {

constexpr Time first_repeat = 50 * millisecond;
constexpr Time slowest_repeat = second;

/// What `told` has to be told next, if anything.
std::optional<wire::Action> next_request(const Job& job, const Told& told) {
  if (told.base_round != job.base_round) return wire::Action::reset;
  if (told.halted == job.halted) return std::nullopt;
  return job.halted ? wire::Action::halt : wire::Action::resume;
}

/// Of the switch's own requests: the requester is the switch.
wire::Client own_client(const Job& job, const datapath::SwitchAddress& own) {
  return {job.config.key, own.rules.ip, own.rules.udp_port};
}

Destination destination_of(const Member& member) {
  return {member.spec.endpoint, member.spec.ingress};
}

/// The member knows now what `outstanding` was to tell it.
void acknowledge(Told& told, const Told::Outstanding& outstanding) {
  if (outstanding.action == wire::Action::reset) {
    told.base_round = outstanding.base_round;
  } else {
    told.halted = outstanding.action == wire::Action::halt;
  }
}

}  // namespace

void Control::State::announce(Job& job, const Turn& turn) {
  job.members.for_each([&](Member& member) { announce_to(job, member, turn); });
}

void Control::State::announce_to(Job& job, Member& member, const Turn& turn) {
  Told& told = member.told;
  if (!told.answered) return;  // the reply to its Join will say everything
  const auto action = next_request(job, told);
  if (!action) {
    told.outstanding.reset();
    return;
  }
  if (told.outstanding && told.outstanding->action == *action &&
      (*action != wire::Action::reset || told.outstanding->base_round == job.base_round))
    return;
  if (*action != wire::Action::reset) told.halted.reset();
  told.outstanding = Told::Outstanding{
      *action, job.base_round, frames.next_request_id(), frames.next_nonce(turn.now),
      0,       first_repeat};
  send_outstanding(job, member, turn);
}

void Control::State::send_outstanding(Job& job, Member& member, const Turn& turn) {
  Told::Outstanding& request = *member.told.outstanding;
  request.next_send = turn.now + request.interval;
  request.interval = std::min(request.interval * 2, slowest_repeat);
  const wire::ControlHeader header{request.action, job.config.id, member.spec.id,
                                   request.request_id, request.nonce};
  const wire::Client client = own_client(job, config.address);
  ++counters.requests_sent;
  frames.send(request.action == wire::Action::reset
                  ? wire::write_reset(header, request.base_round, client)
                  : wire::write_plain_request(header, client),
              destination_of(member), turn);
}

void Control::State::on_member_reply(const wire::Packet& packet, datapath::PortId ingress,
                                     const Turn& turn) {
  const wire::Header& header = packet.message.header;
  Job* const job = find_job(header.job);
  Member* const member =
      job == nullptr ? nullptr : job->members.find(place_of(packet.source, ingress));
  const auto body = wire::read_reply(packet.message.payload);
  if (member == nullptr || !body ||
      !tag_is_right(job->config.key, packet, config.address.rules.ip,
                    config.address.rules.udp_port)) {
    ++counters.ignored;
    return;
  }
  member->last_heard = turn.now;
  const auto action = static_cast<wire::Action>(header.flags);
  Told& told = member->told;
  const bool awaited = told.outstanding && told.outstanding->action == action &&
                       told.outstanding->request_id == header.round &&
                       told.outstanding->nonce == header.set;
  if (!awaited && action != wire::Action::help) {  // nothing waits for the reply to a Help
    ++counters.ignored;
    return;
  }
  ++counters.replies_received;
  if (!awaited) return;
  if (body->status == wire::Status::replayed_nonce) {
    // It remembers a switch whose clock was ahead of ours: say it again under a newer nonce.
    told.outstanding->request_id = frames.next_request_id();
    told.outstanding->nonce = frames.next_nonce(turn.now);
    return;
  }
  acknowledge(told, *told.outstanding);
  told.outstanding.reset();
  announce_to(*job, *member, turn);
}

void Control::State::ask_for_contribution(Job& job, const Member& member,
                                          const wire::SlotBody& slot, const Turn& turn) {
  const wire::ControlHeader header{wire::Action::help, job.config.id, member.spec.id,
                                   frames.next_request_id(), frames.next_nonce(turn.now)};
  ++counters.requests_sent;
  frames.send(wire::write_slot_request(header, slot, own_client(job, config.address)),
              destination_of(member), turn);
}

void Control::State::say_leave(Job& job, const Turn& turn) {
  job.members.for_each([&](const Member& member) {
    const wire::ControlHeader header{wire::Action::leave, job.config.id, member.spec.id,
                                     frames.next_request_id(), frames.next_nonce(turn.now)};
    ++counters.requests_sent;
    frames.send(wire::write_plain_request(header, own_client(job, config.address)),
                destination_of(member), turn);
  });
}

}  // namespace iswitch::control
