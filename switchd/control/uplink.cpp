#include "switchd/control/uplink.h"

#include <algorithm>
#include <utility>

#include "switchd/control/fit.h"
#include "switchd/control/replay_guard.h"
#include "wire/serial.h"

namespace iswitch::control {
namespace {

constexpr Time first_repeat = 50 * millisecond;
constexpr Time slowest_repeat = second;
constexpr unsigned sends_until_doubt = 4;  ///< then the parent may have another MAC
constexpr unsigned most_leaves = 10;       ///< a Leave is not repeated for ever
constexpr Time ping_interval = second;
constexpr Time forming_ping_interval = 200 * millisecond;
constexpr Time unfit_ping_interval = 2 * second;
constexpr Time silent_after = 3 * second;
constexpr Time least_between_joins = 200 * millisecond;
constexpr Time longest_pause = 2 * second;
constexpr Time help_expires_after = second;
constexpr std::size_t max_helps = 256;

/// Refusals may carry zeros: nothing is learned of the job from those.
bool describes_job(wire::Status status) {
  return status == wire::Status::ok || status == wire::Status::gone ||
         status == wire::Status::halted || status == wire::Status::parent_not_ready ||
         status == wire::Status::mismatch;
}

/// What may be said by somebody who has not our key: that it has another, or no such job.
bool may_be_unproven(wire::Status status) {
  return status == wire::Status::bad_tag || status == wire::Status::no_such_job;
}

bool same_shape(const wire::ReplyBody& a, const wire::ReplyBody& b) {
  return a.mode == b.mode && a.data_type == b.data_type && a.slots == b.slots &&
         a.segment_bytes == b.segment_bytes && a.shards == b.shards && a.history == b.history;
}

bool of_the_link(wire::Action action) {
  return action == wire::Action::join || action == wire::Action::leave;
}

}  // namespace

Uplink::Uplink(UplinkParts parts, const JobConfig& job, Time now)
    : parts_(parts), parent_(*parts.config.parent), job_(job), since_(now) {}

wire::Client Uplink::client() const {
  const datapath::SwitchAddress& own = parts_.config.address;
  return {job_.key, own.rules.ip, own.rules.udp_port};
}

// ---- coming and going

void Uplink::open(const Turn& turn) {
  join(turn.now, turn);
  note_state(turn.now);
}

void Uplink::join(Time at, const Turn& turn) {
  stage_ = Stage::joining;
  ran_ = false;
  parent_state_ = wire::JobState::forming;
  next_ping_ = never;
  check_place_ = false;
  pings_.fill({});  // what was asked before is of another life
  run_ = {
      wire::no_member,
      parts_.config.incarnation + static_cast<std::uint32_t>(++parts_.incarnations * 0x9E3779B9U),
      0};
  start_request(wire::Action::join, {}, at, turn);
}

void Uplink::lose_place(const Turn& turn) {
  join(std::max(turn.now, joined_at_ + least_between_joins), turn);
  fail_wishes(turn);
  fail_helps(turn);
}

void Uplink::close(const Turn& turn) {
  if (stage_ == Stage::closed) return;
  if (stage_ == Stage::unfit) {
    if (request_ && request_->action == wire::Action::join) request_.reset();
  } else {
    leave(turn);
  }
  stage_ = Stage::closed;
  silent_ = false;
  next_ping_ = never;
  fault_.clear();
  fail_wishes(turn);
  fail_helps(turn);
  note_state(turn.now);
}

void Uplink::leave(const Turn& turn) {
  const bool asked = stage_ == Stage::member || (request_ && request_->sends > 0);
  request_.reset();
  if (asked) start_request(wire::Action::leave, {}, turn.now, turn);
}

void Uplink::leave_unfit(std::string why, const Turn& turn) {
  leave(turn);
  stage_ = Stage::unfit;
  fault_ = std::move(why);
  next_ping_ = turn.now + unfit_ping_interval;
  fail_wishes(turn);
  fail_helps(turn);
}

void Uplink::farewell(const Turn& turn) {
  const bool known = stage_ == Stage::member || (request_ && request_->sends > 0);
  if (!known) return;
  stage_ = Stage::closed;
  const wire::ControlHeader header{wire::Action::leave, job_.id, run_.member,
                                   parts_.frames.next_request_id(), next_nonce(turn.now)};
  send(wire::write_plain_request(header, client()), turn);
}

// ---- requests

void Uplink::send(const wire::ControlDatagram& datagram, const Turn& turn) {
  if (!parts_.address.mac()) return;
  ++parts_.counters.requests_sent;
  const wire::Endpoint endpoint{*parts_.address.mac(), parent_.ip, parent_.udp_port};
  parts_.frames.send(datagram, {endpoint, parent_.port}, turn);
}

void Uplink::start_request(wire::Action action, const wire::SlotBody& slot, Time at,
                           const Turn& turn) {
  request_ = Request{
      action, slot, parts_.frames.next_request_id(), next_nonce(turn.now), at, at, first_repeat, 0};
  if (at <= turn.now) send_request(turn);
}

void Uplink::send_request(const Turn& turn) {
  Request& request = *request_;
  if (request.action == wire::Action::leave && request.sends == most_leaves) {
    request_.reset();
    return;
  }
  if (!parts_.address.mac()) {  // address_known() goes on
    request.next_send = never;
    return;
  }
  if (request.action == wire::Action::join && request.sends == 0) joined_at_ = turn.now;
  if (++request.sends > sends_until_doubt) parts_.address.doubt(turn.now);
  request.sent_at = turn.now;
  request.next_send = turn.now + request.interval;
  request.interval = std::min(request.interval * 2, slowest_repeat);
  const wire::ControlHeader header{request.action, job_.id, run_.member, request.id, request.nonce};
  switch (request.action) {
    case wire::Action::join: {
      wire::JoinBody body;
      body.kind = wire::MemberKind::child_switch;
      body.mode = job_.mode;
      body.shards = parts_.config.shards;
      body.max_segment_bytes = job_.segment_bytes;
      body.incarnation = run_.incarnation;
      return send(wire::write_join(header, body, client()), turn);
    }
    case wire::Action::reset:
      return send(wire::write_reset(header, 0, client()), turn);
    case wire::Action::force_broadcast:
      return send(wire::write_slot_request(header, request.slot, client()), turn);
    default:
      return send(wire::write_plain_request(header, client()), turn);
  }
}

/// The parent's member_timeout is not known; a job has the same one here as a rule.
Time Uplink::within_timeout(Time interval) const {
  return std::min(interval, job_.member_timeout / 4);
}

void Uplink::send_ping(const Turn& turn) {
  newest_ping_ = (newest_ping_ + 1) % pings_.size();
  Asked& ping = pings_.at(newest_ping_);
  ping = {parts_.frames.next_request_id(), next_nonce(turn.now), turn.now};
  next_ping_ = turn.now + (stage_ == Stage::unfit ? unfit_ping_interval
                           : parent_state_ == wire::JobState::forming && !silent_
                               ? within_timeout(forming_ping_interval)
                               : within_timeout(ping_interval));
  const wire::ControlHeader header{wire::Action::ping, job_.id, run_.member, ping.id, ping.nonce};
  send(wire::write_plain_request(header, client()), turn);
}

void Uplink::ask(wire::Action action, const wire::SlotBody& slot, Done done, const Turn& turn) {
  if (stage_ != Stage::member || silent_) return done(std::nullopt, turn);
  wishes_.push_back({action, slot, std::move(done)});
  next_wish(turn);
}

bool Uplink::asks(wire::Action action) const {
  return std::any_of(wishes_.begin(), wishes_.end(),
                     [action](const Wish& wish) { return wish.action == action; });
}

void Uplink::withdraw(wire::Action action, const Turn& turn) {
  if (request_ && request_->action == action) request_.reset();
  std::erase_if(wishes_, [action](const Wish& wish) { return wish.action == action; });
  next_wish(turn);
}

void Uplink::next_wish(const Turn& turn) {
  if (request_ || stage_ != Stage::member) return;
  if (check_place_) return start_request(wire::Action::join, {}, turn.now, turn);
  if (wishes_.empty()) return;
  start_request(wishes_.front().action, wishes_.front().slot, turn.now, turn);
}

void Uplink::fail_wishes(const Turn& turn) {
  if (request_ && !of_the_link(request_->action)) request_.reset();
  const auto failed = std::exchange(wishes_, {});
  for (const Wish& wish : failed) wish.done(std::nullopt, turn);
}

void Uplink::fail_helps(const Turn& turn) {
  const auto failed = std::exchange(helps_, {});
  for (const Help& help : failed)
    for (const Done& done : help.done) done(std::nullopt, turn);
}

void Uplink::help(const wire::SlotBody& slot, Done done, const Turn& turn) {
  if (!ready()) return done(std::nullopt, turn);
  const auto same = std::find_if(helps_.begin(), helps_.end(), [&](const Help& help) {
    return help.slot.segment == slot.segment && help.slot.round == slot.round;
  });
  if (same != helps_.end()) {
    same->done.push_back(std::move(done));
    return;
  }
  if (helps_.size() >= max_helps) return done(std::nullopt, turn);
  Help help{slot, parts_.frames.next_request_id(), next_nonce(turn.now), turn.now, {}};
  help.done.push_back(std::move(done));
  const wire::ControlHeader header{wire::Action::help, job_.id, run_.member, help.id, help.nonce};
  helps_.push_back(std::move(help));
  send(wire::write_slot_request(header, slot, client()), turn);
}

// ---- replies

Uplink::Asked* Uplink::ping_of(const wire::Header& header) {
  const auto found = std::find_if(pings_.begin(), pings_.end(), [&](const Asked& ping) {
    return ping.id == header.round && ping.nonce == header.set && ping.id != 0;
  });
  return found == pings_.end() ? nullptr : &*found;
}

bool Uplink::on_reply(const wire::Packet& packet, const Turn& turn) {
  const wire::Header& header = packet.message.header;
  const auto action = static_cast<wire::Action>(header.flags);
  const auto body = wire::read_reply(packet.message.payload);
  if (!body) return false;
  const bool of_request = request_ && request_->action == action && request_->id == header.round &&
                          request_->nonce == header.set;
  Asked* const ping = action == wire::Action::ping ? ping_of(header) : nullptr;
  const auto help = std::find_if(helps_.begin(), helps_.end(), [&](const Help& asked) {
    return action == wire::Action::help && asked.id == header.round && asked.nonce == header.set;
  });
  if (!of_request && ping == nullptr && help == helps_.end()) return false;
  if (!tag_is_right(job_.key, packet, client().ip, client().udp_port)) {
    if (!may_be_unproven(body->status) || stage_ == Stage::closed) return false;
    fault_ = refusal_text(job_, *body, parent_.ip);  // a hint for people, and nothing else
    return true;
  }
  ++parts_.counters.replies_received;
  if (of_request) {
    on_request_reply(*body, turn);
  } else if (ping != nullptr) {
    const Asked asked = std::exchange(*ping, Asked{});
    on_ping_reply(*body, asked.at, turn);
  } else {
    const Help answered = std::move(*help);
    helps_.erase(help);
    if (body->status == wire::Status::not_a_member) {
      lose_place(turn);
    } else if (describes_job(body->status)) {
      adopt(*body, answered.at, turn);
    }
    for (const Done& done : answered.done) done(body->status, turn);
  }
  note_state(turn.now);
  return true;
}

void Uplink::on_request_reply(const wire::ReplyBody& body, const Turn& turn) {
  const wire::Action action = request_->action;
  if (body.status == wire::Status::replayed_nonce) return jump_nonces(turn);
  if (action == wire::Action::leave) return request_.reset();
  if (action == wire::Action::join) {
    if (body.status == wire::Status::ok) return joined(body, turn);
    return refused(body, turn);
  }
  const Time asked_at = request_->sent_at;
  if (body.status == wire::Status::not_a_member) return lose_place(turn);
  request_.reset();
  const Wish wish = std::move(wishes_.front());
  wishes_.pop_front();
  if (action == wire::Action::reset && body.member == run_.member &&
      wire::serial_newer(body.base_round, run_.base_round))
    take_base(body.base_round, turn.now);  // as it was to be
  if (describes_job(body.status)) adopt(body, asked_at, turn);
  wish.done(body.status, turn);
  next_wish(turn);
}

void Uplink::jump_nonces(const Turn& turn) {
  constexpr std::uint64_t least_lead = 1'000'000;  // a second, in microseconds
  constexpr std::uint64_t most_lead = std::uint64_t{1} << 56;
  nonce_lead_ = std::clamp(nonce_lead_ * 4, least_lead, most_lead);
  start_request(request_->action, request_->slot, turn.now + first_repeat, turn);
}

void Uplink::joined(const wire::ReplyBody& body, const Turn& turn) {
  request_.reset();
  run_.member = body.member;
  stage_ = Stage::member;
  check_place_ = false;
  if (std::string why = misfit(job_, body, parent_.ip);
      !why.empty() || body.member >= wire::max_members) {
    if (why.empty())
      why = "job " + std::to_string(job_.id) + ": the parent " + wire::to_string(parent_.ip) +
            " gave member id " + std::to_string(body.member) + "; ids are 0 to 63";
    return leave_unfit(std::move(why), turn);
  }
  terms_ = body;
  pause_ = 0;
  unasked_nonce_ = 0;
  told_at_ = turn.now;
  last_order_.reset();
  take_base(body.base_round, turn.now);
  adopt(body, turn.now, turn);
  next_ping_ = turn.now + within_timeout(ran_ ? ping_interval : forming_ping_interval);
}

void Uplink::refused(const wire::ReplyBody& body, const Turn& turn) {
  fault_ = refusal_text(job_, body, parent_.ip);
  heard_ = turn.now;
  silent_ = false;
  // Let in and evicted before the answer came: at once, as a newcomer.
  pause_ = body.status == wire::Status::not_a_member
               ? least_between_joins
               : std::clamp(2 * pause_, least_between_joins, longest_pause);
  join(turn.now + pause_, turn);
}

void Uplink::on_ping_reply(const wire::ReplyBody& body, Time asked_at, const Turn& turn) {
  if (stage_ == Stage::unfit) {
    const bool described = describes_job(body.status) || body.status == wire::Status::not_a_member;
    if (!described) return;
    fault_ = misfit(job_, body, parent_.ip);
    if (fault_.empty()) join(turn.now, turn);
    return;
  }
  if (stage_ != Stage::member) return;
  if (body.status == wire::Status::not_a_member) return lose_place(turn);
  if (may_be_unproven(body.status)) fault_ = refusal_text(job_, body, parent_.ip);
  if (describes_job(body.status)) adopt(body, asked_at, turn);
}

void Uplink::adopt(const wire::ReplyBody& body, std::optional<Time> asked_at, const Turn& turn) {
  if (stage_ != Stage::member) return;
  heard_ = turn.now;
  silent_ = false;
  fault_.clear();
  if (!same_shape(body, terms_)) {
    // Under a running job only another job under the same number can have another shape.
    if (ran_) return lose_place(turn);
    if (std::string why = misfit(job_, body, parent_.ip); !why.empty())
      return leave_unfit(std::move(why), turn);
  }
  terms_ = body;
  // A restarted parent may have taken a late copy of the last Join for a new one. An older
  // base_round in the answer to something asked since the newer one was known gives that away, and
  // so does another id; in a newer one it may hide, so the place is learned again.
  const bool older = ran_ && wire::serial_newer(run_.base_round, body.base_round);
  if (body.member != run_.member || (older && asked_at && *asked_at > base_known_at_))
    return lose_place(turn);
  if (ran_ && wire::serial_newer(body.base_round, run_.base_round)) check_place_ = true;
  if (!older) take_base(body.base_round, turn.now);
  if (asked_at && *asked_at < told_at_) return;  // of a state that an order has changed since
  parent_state_ = body.state;
  if (parent_state_ != wire::JobState::forming) {
    ran_ = true;
    next_wish(turn);
  } else {  // it is expected to change soon
    next_ping_ = std::min(next_ping_, turn.now + within_timeout(forming_ping_interval));
  }
}

// ---- what it says unasked

Uplink::Unasked Uplink::on_unasked(const wire::Packet& packet, const Turn& turn) {
  const wire::Header& header = packet.message.header;
  const auto body = wire::read_reply(packet.message.payload);
  if (!body || stage_ != Stage::member || header.set <= unasked_nonce_ ||
      !tag_is_right(job_.key, packet, client().ip, client().udp_port))
    return {};
  unasked_nonce_ = header.set;
  if (body->status == wire::Status::not_a_member) {
    // It may be about a contribution from before the last Join: asked, it says how it is now.
    if (turn.now - pings_.at(newest_ping_).at >= forming_ping_interval) send_ping(turn);
  } else if (describes_job(body->status)) {
    adopt(*body, std::nullopt, turn);
  }
  note_state(turn.now);
  return {true, *body};
}

Uplink::Order Uplink::on_order(const wire::ControlHeader& order, const Turn& turn) {
  if (stage_ != Stage::member) return Order::unwanted;
  heard_ = turn.now;
  if (!ReplayGuard::covers(order.action)) return Order::fresh;
  if (last_order_) {
    const wire::ControlHeader& last = last_order_->header;
    if (last.nonce == order.nonce && last.request_id == order.request_id &&
        last.action == order.action)
      return last_order_->answered ? Order::answered : Order::in_progress;
    if (order.nonce <= last.nonce) return Order::replayed;
  }
  last_order_ = LastOrder{order, false};
  told_at_ = turn.now;
  return Order::fresh;
}

void Uplink::answer_order(const wire::ControlHeader& order, wire::Status status, const Turn& turn) {
  if (last_order_ && last_order_->header.nonce == order.nonce) last_order_->answered = true;
  if (!parts_.address.mac()) return;
  wire::ReplyBody body;
  body.status = status;
  body.member = run_.member;
  wire::ControlHeader header = order;
  header.member = run_.member;
  ++parts_.counters.replies_sent;
  const wire::Endpoint endpoint{*parts_.address.mac(), parent_.ip, parent_.udp_port};
  // The requester is the parent.
  parts_.frames.send(wire::write_reply(header, body, {job_.key, parent_.ip, parent_.udp_port}),
                     {endpoint, parent_.port}, turn);
}

bool Uplink::told_base(std::uint32_t base_round, Time now) {
  if (ran_ && !wire::serial_newer(base_round, run_.base_round)) return false;
  take_base(base_round, now);
  return true;
}

void Uplink::take_base(std::uint32_t base_round, Time now) {
  if (run_.base_round != base_round) base_known_at_ = now;
  run_.base_round = base_round;
}

void Uplink::told_halted(bool halted) {
  if (parent_state_ == wire::JobState::forming) return;
  parent_state_ = halted ? wire::JobState::halted : wire::JobState::running;
}

void Uplink::told_leave(const Turn& turn) {
  silent_ = true;
  heard_ = turn.now;
  join(turn.now + least_between_joins, turn);
  fail_wishes(turn);
  fail_helps(turn);
  note_state(turn.now);
}

// ---- time

void Uplink::tick(const Turn& turn) {
  if (stage_ == Stage::member && !silent_ && turn.now - heard_ >= silent_after) {
    silent_ = true;
    fail_wishes(turn);
    fail_helps(turn);
  }
  if (request_ && request_->next_send <= turn.now) send_request(turn);
  if (next_ping_ <= turn.now) {
    if (silent_) parts_.address.doubt(turn.now);
    send_ping(turn);
  }
  while (!helps_.empty() && turn.now - helps_.front().at >= help_expires_after) {
    const Help expired = std::move(helps_.front());
    helps_.erase(helps_.begin());
    for (const Done& done : expired.done) done(std::nullopt, turn);
  }
  note_state(turn.now);
}

Time Uplink::next_deadline() const {
  Time next = next_ping_;
  if (request_) next = std::min(next, request_->next_send);
  if (stage_ == Stage::member && !silent_) next = std::min(next, heard_ + silent_after);
  if (!helps_.empty()) next = std::min(next, helps_.front().at + help_expires_after);
  return next;
}

void Uplink::address_known(const Turn& turn) {
  if (request_ && request_->next_send == never) send_request(turn);
  note_state(turn.now);
}

// ---- how it stands

bool Uplink::ready() const {
  return stage_ == Stage::member && ran_ && !silent_ && parent_state_ != wire::JobState::forming &&
         parts_.address.mac().has_value();
}

datapath::ParentSpec Uplink::place() const {
  datapath::ParentSpec place;
  place.member = run_.member;
  place.endpoint = {parts_.address.mac().value_or(wire::Mac{}), parent_.ip, parent_.udp_port};
  place.port = parent_.port;
  place.shards = terms_.shards;
  place.incarnation = run_.incarnation;
  return place;
}

ParentView::State Uplink::state() const {
  using State = ParentView::State;
  if (stage_ == Stage::closed) return State::idle;
  if (stage_ == Stage::unfit) return State::refused;
  if (silent_) return State::silent;
  if (!parts_.address.mac()) return State::resolving;
  if (stage_ == Stage::joining) return State::joining;
  return parent_state_ == wire::JobState::forming ? State::forming : State::running;
}

void Uplink::note_state(Time now) {
  const ParentView::State state_now = state();
  if (state_now == noted_) return;
  noted_ = state_now;
  since_ = silent_ ? heard_ : now;
}

ParentView Uplink::view() const {
  ParentView view;
  view.config = parent_;
  view.mac = parts_.address.mac();
  view.state = noted_;
  view.since = since_;
  view.member = stage_ == Stage::member ? run_.member : wire::no_member;
  view.fault = fault_;
  return view;
}

}  // namespace iswitch::control
