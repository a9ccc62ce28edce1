// A child job: what follows from its parent for its slots and members, and what of theirs is the
// parent's to do.
#include <algorithm>
#include <utility>

#include "switchd/control/fit.h"
#include "switchd/control/state.h"
#include "wire/serial.h"

namespace iswitch::control {
namespace {

/// Helps of the parent that may be under way at once; it repeats none, members repeat theirs.
constexpr unsigned max_parent_helps = 256;

bool same_tables(const datapath::JobSpec& a, const datapath::JobSpec& b) {
  return a.mode == b.mode && a.data_type == b.data_type && a.slots == b.slots &&
         a.segment_bytes == b.segment_bytes && a.history == b.history;
}

bool is_order(wire::Action action) {
  return action == wire::Action::reset || action == wire::Action::halt ||
         action == wire::Action::resume || action == wire::Action::help ||
         action == wire::Action::leave;
}

/// What whoever asked is answered with.
wire::Status passed_back(std::optional<wire::Status> status) {
  return status.value_or(wire::Status::parent_not_ready);
}

}  // namespace

std::unique_ptr<Uplink> Control::State::make_uplink(const JobConfig& job_config, const Turn& turn) {
  if (!config.parent) return nullptr;
  return std::make_unique<Uplink>(
      UplinkParts{config, frames, *parent_address, counters, incarnations}, job_config, turn.now);
}

bool Control::State::is_from_parent(const wire::Packet& packet, datapath::PortId ingress) const {
  return config.parent && packet.source.ip == config.parent->ip &&
         packet.source.udp_port == config.parent->udp_port && ingress == config.parent->port;
}

// ---- what comes from above

void Control::State::on_parent_address(const datapath::Notice& notice, const Turn& turn) {
  if (!parent_address || !parent_address->heard(notice, turn.now)) {
    if (!parent_address) ++counters.ignored;
    return;
  }
  for (const auto& entry : jobs) {
    Job& job = *entry.second;
    job.uplink->address_known(turn);
    const bool placed = job.run && job.uplink->run() == *job.run;
    if (placed) order(job, datapath::PutParent{job.uplink->place()}, turn);
    link_changed(job, turn);
  }
}

void Control::State::on_parent_reply(const wire::Packet& packet, const Turn& turn) {
  const wire::Header& header = packet.message.header;
  Job* const job = find_job(header.job);
  if (job == nullptr) {
    ++counters.ignored;
    return;
  }
  const bool unasked =
      header.round == 0 && static_cast<wire::Action>(header.flags) == wire::Action::ping;
  if (unasked) {
    on_parent_unasked(*job, packet, turn);
  } else if (!job->uplink->on_reply(packet, turn)) {
    ++counters.ignored;
  }
  link_changed(*job, turn);
}

void Control::State::on_parent_unasked(Job& job, const wire::Packet& packet, const Turn& turn) {
  const Uplink::Unasked told = job.uplink->on_unasked(packet, turn);
  if (!told.believed) {
    ++counters.ignored;
    return;
  }
  if (told.body.status == wire::Status::mismatch)
    return tell_all(job, wire::Status::mismatch, told.body.missing, turn);
  if (told.body.status != wire::Status::gone) return;
  const wire::SlotBody about{static_cast<std::uint32_t>(told.body.missing >> 32),
                             static_cast<std::uint32_t>(told.body.missing)};
  if (about.segment >= job.spec.slots) return;
  if (!job.is_sync()) return order(job, datapath::GiveUp{about.segment, about.round}, turn);
  // About a late copy of a sum whose result is here, it means nothing.
  order(job, datapath::Replay{about.segment, about.round, wire::no_member}, turn,
        [this, missing = told.body.missing](Job& same, const Outcome& outcome, const Turn& later) {
          if (outcome.slot != datapath::SlotState::kept)
            tell_all(same, wire::Status::gone, missing, later);
        });
}

bool Control::State::on_parent_order(const wire::Packet& packet, const Turn& turn) {
  const wire::Header& header = packet.message.header;
  const auto action = static_cast<wire::Action>(header.flags);
  Job* const job = find_job(header.job);
  if (!is_order(action) || job == nullptr) return false;
  const wire::ControlHeader order{action, header.job, header.member, header.round, header.set};
  if (!tag_is_right(job->config.key, packet, packet.source.ip, packet.source.udp_port)) {
    ++counters.ignored;
    return true;
  }
  ++counters.requests;
  switch (job->uplink->on_order(order, turn)) {
    case Uplink::Order::unwanted:
      ++counters.ignored;
      return true;
    case Uplink::Order::in_progress:
      return true;
    case Uplink::Order::answered:
      job->uplink->answer_order(order, wire::Status::ok, turn);
      return true;
    case Uplink::Order::replayed:
      job->uplink->answer_order(order, wire::Status::replayed_nonce, turn);
      return true;
    case Uplink::Order::fresh:
      break;
  }
  const Bytes payload = packet.message.payload;
  obey(*job, order, payload.first(payload.size() - wire::tag_bytes), turn);
  return true;
}

void Control::State::obey(Job& job, const wire::ControlHeader& header, Bytes body,
                          const Turn& turn) {
  const auto answer_it = [this, header, id = job.config.id,
                          instance = job.instance](const Turn& later) {
    if (Job* const same = find_instance(id, instance))
      same->uplink->answer_order(header, wire::Status::ok, later);
  };
  switch (header.action) {
    case wire::Action::reset:
      job.uplink->told_base(wire::read_reset(body), turn.now);
      link_changed(job, turn);
      return when_settled(job, answer_it, turn);
    case wire::Action::halt:
    case wire::Action::resume: {
      const bool halted = header.action == wire::Action::halt;
      job.uplink->told_halted(halted);
      return set_halted(job, halted, turn,
                        [answer_it](Job&, const Turn& later) { answer_it(later); });
    }
    case wire::Action::help:
      return help_parent(job, header, wire::read_slot(body), turn);
    case wire::Action::leave:
      job.uplink->answer_order(header, wire::Status::ok, turn);
      job.uplink->told_leave(turn);
      return link_changed(job, turn);
    default:
      return;
  }
}

void Control::State::help_parent(Job& job, const wire::ControlHeader& header,
                                 const wire::SlotBody& slot, const Turn& turn) {
  if (slot.segment >= job.spec.slots || job.parent_helps >= max_parent_helps) {
    ++counters.ignored;
    return;
  }
  job.uplink->answer_order(header, wire::Status::ok, turn);
  ++job.parent_helps;
  order(job, datapath::SendUp{slot.segment, slot.round}, turn,
        [this, slot](Job& same, const Outcome& outcome, const Turn& later) {
          --same.parent_helps;
          const bool nobody_yet = outcome.slot == datapath::SlotState::none;
          if (outcome.slot == datapath::SlotState::elsewhere ||
              outcome.slot == datapath::SlotState::with_members)
            return ask_who_has(same, slot, wire::no_member, later);
          if (!same.is_sync() || (outcome.slot != datapath::SlotState::open && !nobody_yet)) return;
          same.members.for_each([&](const Member& member) {
            if (nobody_yet || (outcome.missing >> member.spec.id & 1) != 0)
              ask_for_contribution(same, member, slot, later);
          });
        });
}

// ---- what follows for the slots

void Control::State::link_changed(Job& job, const Turn& turn) {
  if (job.uplink->take_lost()) parent_lost(job, turn);
  const Uplink& link = *job.uplink;
  const bool asked = link.asks(wire::Action::halt) || link.asks(wire::Action::resume);
  if (link.ready() && !asked && link.halted() != job.halt_wanted)
    set_halted(job, link.halted(), turn, [](Job&, const Turn&) {});
  advance(job, turn);
}

bool Control::State::has_new_run(const Job& job) {
  return job.uplink && job.uplink->ready() && job.run != job.uplink->run();
}

void Control::State::follow_link(Job& job, const Turn& turn) {
  if (!job.parent_ready()) job.up = false;
  if (job.datapath_halted != job.refuses()) {
    job.datapath_halted = job.refuses();
    ++job.refusals_out;
    order(job, datapath::SetHalted{job.datapath_halted}, turn,
          [this](Job& same, const Outcome&, const Turn& later) {
            --same.refusals_out;
            advance(same, later);
          });
  }
  if (!job.reset_due || !job.parent_ready() || job.uplink->asks(wire::Action::reset)) return;
  ask_parent(job, wire::Action::reset, {}, turn, [](Job& same, wire::Status status, const Turn&) {
    // Asked again when the parent is back. Done without a newer base_round it would be for ever.
    if (status != wire::Status::parent_not_ready && !has_new_run(same)) same.reset_due = false;
  });
}

bool Control::State::adapt(Job& job, const Turn& turn) {
  if (!job.formed || !job.parent_ready()) return false;
  if (job.base_told && !wire::serial_newer(job.uplink->run().base_round, job.base_round)) {
    form_again(job, turn);  // no Reset could tell them
    return false;
  }
  const datapath::JobSpec spec = fitted(job.config, job.uplink->terms());
  if (same_tables(spec, job.spec)) return false;
  reinstall(job, spec, turn);
  return true;
}

void Control::State::reinstall(Job& job, const datapath::JobSpec& spec, const Turn& turn) {
  job.spec = spec;
  job.phase = SlotPhase::installing;
  job.datapath_halted = false;
  order(job, datapath::Remove{}, turn);
  install(job, turn);
  job.members.for_each(
      [&](const Member& member) { order(job, datapath::PutMember{member.spec}, turn); });
}

// ---- what the parent is asked

void Control::State::request_reset(Job& job, const Turn& turn) {
  // Slots that nothing is in, or that are being cleared for a base_round that nobody has been told
  // of, need no Reset.
  const bool first_start = job.phase == SlotPhase::starting &&
                           (job.next_base_round == job.base_round || job.first_start);
  if (job.phase != SlotPhase::running && !first_start) return;
  job.reset_due = true;
  advance(job, turn);
}

void Control::State::ask_parent(Job& job, wire::Action action, const wire::SlotBody& slot,
                                const Turn& turn,
                                std::function<void(Job&, wire::Status, const Turn&)> then) {
  job.uplink->ask(
      action, slot,
      [this, id = job.config.id, instance = job.instance, then = std::move(then)](
          std::optional<wire::Status> status, const Turn& later) {
        if (Job* const same = find_instance(id, instance)) then(*same, passed_back(status), later);
      },
      turn);
}

void Control::State::help_from_parent(Job& job, const wire::SlotBody& slot, const Turn& turn,
                                      std::function<void(Job&, wire::Status, const Turn&)> then) {
  job.uplink->help(
      slot,
      [this, id = job.config.id, instance = job.instance, then = std::move(then)](
          std::optional<wire::Status> status, const Turn& later) {
        if (Job* const same = find_instance(id, instance)) then(*same, passed_back(status), later);
      },
      turn);
}

void Control::State::pass_halt(Job& job, bool halted, const Turn& turn,
                               std::function<void(Job&, wire::Status, const Turn&)> then) {
  const auto here = [this, halted, then = std::move(then)](Job& same, wire::Status status,
                                                           const Turn& later) {
    if (status != wire::Status::ok) return then(same, status, later);
    set_halted(same, halted, later,
               [then](Job& one, const Turn& last) { then(one, wire::Status::ok, last); });
  };
  if (!job.uplink) return here(job, wire::Status::ok, turn);
  ask_parent(job, halted ? wire::Action::halt : wire::Action::resume, {}, turn, here);
}

void Control::State::forced_here(Job& job, const wire::SlotBody& slot, const Outcome& outcome,
                                 const Turn& turn,
                                 std::function<void(Job&, wire::Status, const Turn&)> then) {
  if (job.uplink && outcome.slot == datapath::SlotState::waiting)
    return ask_parent(job, wire::Action::force_broadcast, slot, turn, std::move(then));
  then(job, forced(outcome) ? wire::Status::ok : wire::Status::bad_value, turn);
}

void Control::State::gone_here(Job& job, const datapath::Notice& notice, const Turn& turn) {
  help_from_parent(job, {notice.segment, notice.round}, turn,
                   [this, member = notice.member,
                    operation = std::uint64_t{notice.segment} << 32 | notice.round](
                       Job& same, wire::Status status, const Turn& later) {
                     if (status == wire::Status::gone)
                       tell_member(same, member, status, operation, later);
                   });
}

void Control::State::tell_workers(Job& job, wire::Status status, std::uint64_t missing,
                                  const Turn& turn) {
  for (MemberId id = 0; id < wire::max_members; ++id) {
    const Member* const member = job.members.find(id);
    if (member != nullptr && member->spec.kind == wire::MemberKind::worker)
      tell_member(job, id, status, missing, turn);
  }
}

void Control::State::tell_all(Job& job, wire::Status status, std::uint64_t missing,
                              const Turn& turn) {
  for (MemberId id = 0; id < wire::max_members; ++id)
    if (job.members.find(id) != nullptr) tell_member(job, id, status, missing, turn);
}

}  // namespace iswitch::control
