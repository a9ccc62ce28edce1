// What members ask, from the first check to the reply.
#include <algorithm>
#include <utility>

#include "switchd/control/state.h"
#include "wire/serial.h"

namespace iswitch::control {
namespace {

/// Helps of one member that may be under way at once; its agent repeats those above.
constexpr std::ptrdiff_t max_helps_of_a_member = 64;

Requester requester_of(const wire::Packet& packet, datapath::PortId ingress) {
  const wire::Header& header = packet.message.header;
  return {{static_cast<wire::Action>(header.flags), header.job, header.member, header.round,
           header.set},
          packet.source,
          ingress};
}

}  // namespace

void Control::State::on_request(const wire::Packet& packet, datapath::PortId ingress,
                                const Turn& turn) {
  ++counters.requests;
  const Requester who = requester_of(packet, ingress);
  Job* const job = find_job(who.header.job);
  if (job == nullptr) return reply_no_such_job(who, turn);
  if (!tag_is_right(job->config.key, packet, packet.source.ip, packet.source.udp_port))
    return reply(*job, who, wire::Status::bad_tag, 0, turn);
  const bool guarded = ReplayGuard::covers(who.header.action);
  if (guarded && repeated_or_replayed(*job, who, turn)) return;
  const Bytes body = packet.message.payload.first(packet.message.payload.size() - wire::tag_bytes);
  if (who.header.action == wire::Action::rejoin) {
    // Not remembered: it does nothing yet, and is asked again under another nonce.
    if (!knows_life(*job, who, body))
      return reply(*job, who, wire::Status::ok, wire::encode_life(job->life), turn);
  } else if (who.header.action != wire::Action::join) {
    Member* const member = job->members.find(who.place(), who.header.member);
    if (member == nullptr) return reply(*job, who, wire::Status::not_a_member, 0, turn);
    member->last_heard = turn.now;
  }
  if (guarded) job->guard.begin(who.place(), who.header);
  perform(*job, who, body, turn);
}

bool Control::State::repeated_or_replayed(Job& job, const Requester& who, const Turn& turn) {
  const auto [verdict, status] = job.guard.check(who.place(), who.header);
  if (verdict == ReplayGuard::Verdict::fresh) return false;
  if (verdict == ReplayGuard::Verdict::refused) {
    reply(job, who, wire::Status::replayed_nonce, 0, turn);
    return true;
  }
  Member* const member = job.members.find(who.place());
  if (member != nullptr) member->last_heard = turn.now;
  if (verdict == ReplayGuard::Verdict::answered) {
    // The state in a reply is that of now: whoever was let in and then evicted must learn it.
    const bool evicted =
        member == nullptr && status == wire::Status::ok && who.header.action != wire::Action::leave;
    reply(job, who, evicted ? wire::Status::not_a_member : status, 0, turn);
  }
  return true;
}

void Control::State::perform(Job& job, const Requester& who, Bytes body, const Turn& turn) {
  switch (who.header.action) {
    case wire::Action::join:
      return on_join(job, who, body, turn);
    case wire::Action::rejoin:
      return on_rejoin(job, who, body, turn);
    case wire::Action::leave:
      return on_leave(job, who, turn);
    case wire::Action::reset:
      return on_reset(job, who, wire::read_reset(body), turn);
    case wire::Action::set_threshold:
      return on_set_threshold(job, who, wire::read_set_threshold(body), turn);
    case wire::Action::force_broadcast:
      return on_force(job, who, wire::read_slot(body), turn);
    case wire::Action::help:
      return on_help(job, who, wire::read_slot(body), turn);
    case wire::Action::halt:
    case wire::Action::resume:
      return pass_halt(job, who.header.action == wire::Action::halt, turn,
                       [this, who](Job& same, wire::Status status, const Turn& later) {
                         answer(same, who, status, later);
                       });
    case wire::Action::ping:
      return answer(job, who,
                    job.waits_for_parent() ? wire::Status::parent_not_ready : wire::Status::ok,
                    turn);
  }
}

void Control::State::on_leave(Job& job, const Requester& who, const Turn& turn) {
  ++counters.leaves;
  drop_member(job, who.header.member, turn, [this, who](Job& same, const Turn& later) {
    answer(same, who, wire::Status::ok, later);
  });
}

void Control::State::on_reset(Job& job, const Requester& who, std::uint32_t wanted_base,
                              const Turn& turn) {
  // Only the root chooses the new base_round: a newer one from a member is merely a wish for one.
  const bool done_already = wanted_base != 0 && !wire::serial_newer(wanted_base, job.base_round);
  if (!done_already) request_clear(job, turn);
  when_settled(
      job,
      [this, who, id = job.config.id, instance = job.instance](const Turn& later) {
        Job* const same = find_instance(id, instance);
        if (same == nullptr) return;
        // It will be done when the parent is back; its base_round says so then.
        answer(*same, who, same->reset_due ? wire::Status::parent_not_ready : wire::Status::ok,
               later);
      },
      turn);
}

void Control::State::on_set_threshold(Job& job, const Requester& who, std::uint16_t wanted,
                                      const Turn& turn) {
  if (wanted > wire::max_members) return answer(job, who, wire::Status::bad_value, turn);
  set_threshold(job, wanted, turn, [this, who](Job& same, const Outcome&, const Turn& later) {
    answer(same, who, wire::Status::ok, later);
  });
}

void Control::State::set_threshold(Job& job, std::uint16_t wanted, const Turn& turn,
                                   std::function<void(Job&, const Outcome&, const Turn&)> then) {
  job.threshold_wanted = wanted;
  order(job, datapath::SetThreshold{wanted}, turn, std::move(then));
}

bool Control::State::forced(const Outcome& outcome) {
  return outcome.slot == datapath::SlotState::open || outcome.slot == datapath::SlotState::kept;
}

void Control::State::on_force(Job& job, const Requester& who, const wire::SlotBody& slot,
                              const Turn& turn) {
  if (slot.segment >= job.spec.slots) return answer(job, who, wire::Status::bad_value, turn);
  order(job, datapath::Force{slot.segment, slot.round}, turn,
        [this, who, slot](Job& same, const Outcome& outcome, const Turn& later) {
          forced_here(same, slot, outcome, later,
                      [this, who](Job& one, wire::Status status, const Turn& then) {
                        answer(one, who, status, then);
                      });
        });
}

void Control::State::on_help(Job& job, const Requester& who, const wire::SlotBody& slot,
                             const Turn& turn) {
  if (slot.segment >= job.spec.slots) return answer(job, who, wire::Status::bad_value, turn);
  const Job::HelpInProgress help{who.place(), who.header.request_id, who.header.nonce};
  if (std::find(job.helps.begin(), job.helps.end(), help) != job.helps.end()) return;
  const auto own = std::count_if(job.helps.begin(), job.helps.end(),
                                 [&](const auto& other) { return other.source == help.source; });
  if (own >= max_helps_of_a_member) {
    ++counters.ignored;
    return;
  }
  job.helps.push_back(help);
  order(job, datapath::Replay{slot.segment, slot.round, who.header.member}, turn,
        [this, who, slot, help](Job& same, const Outcome& outcome, const Turn& later) {
          helped(same, who, slot, help, outcome, later);
        });
}

/// A root has nobody to ask: a sum that may still come is answered with "nobody is missing yet",
/// one that came and is not kept with "gone".
void Control::State::helped(Job& job, const Requester& who, const wire::SlotBody& slot,
                            const Job::HelpInProgress& help, const Outcome& outcome,
                            const Turn& turn) {
  const std::uint64_t operation = std::uint64_t{slot.segment} << 32 | slot.round;
  // In an asynchronous job any members may make up the next update: nobody in particular is
  // missing.
  const bool open = outcome.slot == datapath::SlotState::open && job.is_sync();
  const bool with_members = outcome.slot == datapath::SlotState::with_members;
  if (with_members || outcome.slot == datapath::SlotState::elsewhere) {
    std::erase(job.helps, help);
    ask_who_has(job, slot, who.header.member, turn);
    if (job.uplink && !with_members)
      help_from_parent(job, slot, turn, [](Job&, wire::Status, const Turn&) {});
    return answer(job, who, wire::Status::ok, turn);
  }
  if (job.uplink && !open && outcome.slot != datapath::SlotState::kept)
    return help_from_parent(
        job, slot, turn,
        [this, who, help, operation](Job& same, wire::Status status, const Turn& later) {
          std::erase(same.helps, help);
          const bool gone = status == wire::Status::gone;
          answer(same, who, status, later, gone ? operation : 0);
          if (gone && !same.is_sync()) tell_workers(same, status, operation, later);
        });
  std::erase(job.helps, help);
  switch (outcome.slot) {
    case datapath::SlotState::gone:
      // Of slots that have just been cleared nothing is known: the Reset that follows says it all.
      if (!job.settled()) {
        ++counters.ignored;
        return;
      }
      return answer(job, who, wire::Status::gone, turn, operation);
    case datapath::SlotState::open:
      if (!open) return answer(job, who, wire::Status::ok, turn);
      job.members.for_each([&](const Member& member) {
        if ((outcome.missing >> member.spec.id & 1) != 0)
          ask_for_contribution(job, member, slot, turn);
      });
      return answer(job, who, wire::Status::ok, turn, outcome.missing);
    case datapath::SlotState::kept:
    case datapath::SlotState::none:
    case datapath::SlotState::waiting:
    case datapath::SlotState::not_mine:
    case datapath::SlotState::elsewhere:
    case datapath::SlotState::with_members:
      return answer(job, who, wire::Status::ok, turn);
  }
}

}  // namespace iswitch::control
