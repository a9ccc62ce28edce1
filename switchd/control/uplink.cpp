#include "switchd/control/uplink.h"

#include <algorithm>
#include <utility>

namespace iswitch::control {
namespace {

constexpr Time slowest_repeat = second;
constexpr unsigned sends_until_doubt = 4;  ///< then the parent may have another MAC
constexpr unsigned most_leaves = 10;       ///< a Leave is not repeated for ever
constexpr Time unfit_ping_interval = 2 * second;
constexpr Time silent_after = 3 * second;
constexpr Time help_expires_after = second;
constexpr std::size_t max_helps = 256;

bool waits_for_all(const wire::ReplyBody& terms) {
  return terms.threshold >= terms.members_expected;
}

bool of_the_link(wire::Action action) {
  return action == wire::Action::join || action == wire::Action::rejoin ||
         action == wire::Action::leave;
}

}  // namespace

Uplink::Uplink(UplinkParts parts, const JobConfig& job, Time now)
    : parts_(parts), parent_(*parts.config.parent), job_(job), since_(now) {}

wire::Client Uplink::client() const {
  const datapath::SwitchAddress& own = parts_.config.address;
  return {job_.key, own.rules.ip, own.rules.udp_port};
}

// ---- coming and going

void Uplink::open(const Stream& stream, const Turn& turn) {
  if (stage_ == Stage::closed) stream_ = stream;
  open(turn);
}

void Uplink::open(wire::Resumed::Fresh fresh, const Turn& turn) {
  if (stage_ == Stage::closed) {
    stream_.reset();
    fresh_ = fresh;
  }
  open(turn);
}

void Uplink::open(const Turn& turn) {
  lost_ = false;
  if (stage_ != Stage::closed) return;
  join(std::max(turn.now, not_before_), turn);
  note_state(turn.now);
}

void Uplink::join(Time at, const Turn& turn) {
  stage_ = Stage::joining;
  if (ran_) waited_for_all_ = waits_for_all(terms_);
  ran_ = false;
  parent_state_ = wire::JobState::forming;
  next_ping_ = never;
  check_place_ = false;
  pings_.fill({});  // what was asked before is of another life
  run_ = {
      wire::no_member,
      parts_.config.incarnation + static_cast<std::uint32_t>(++parts_.incarnations * 0x9E3779B9U),
      0};
  life_ = 0;
  resumed_.reset();
  start_request(joins_by(), {}, at, turn);
}

void Uplink::lose_place(const Turn& turn) {
  not_before_ = std::max(turn.now, joined_at_ + least_between_joins);
  abandon(turn);
  lost_ = true;
}

void Uplink::abandon(const Turn& turn) {
  lost_ = false;
  if (stage_ == Stage::closed) return;
  request_.reset();
  shut();
  fail_wishes(turn);
  fail_helps(turn);
  note_state(turn.now);
}

void Uplink::close(const Turn& turn) {
  if (stage_ == Stage::closed) return;
  if (stage_ == Stage::unfit) {
    if (request_ && request_->action == joins_by()) request_.reset();
  } else {
    leave(turn);
  }
  shut();
  fail_wishes(turn);
  fail_helps(turn);
  note_state(turn.now);
}

void Uplink::shut() {
  stage_ = Stage::closed;
  silent_ = false;
  next_ping_ = never;
  fault_.clear();
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
  deaf_ = deaf_sends_ = 0;
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
  const bool joins = request.action == joins_by();
  if (joins && request.sends == 0) joined_at_ = turn.now;
  if (++request.sends > sends_until_doubt) parts_.address.doubt(turn.now);
  request.sent_at = turn.now;
  request.next_send = turn.now + request.interval;
  request.interval = std::min(request.interval * 2, slowest_repeat);
  const wire::ControlHeader header{request.action, job_.id, run_.member, request.id, request.nonce};
  switch (request.action) {
    case wire::Action::join:
      return send(wire::write_join(header, join_body(), client()), turn);
    case wire::Action::rejoin:
      // A parent that knows no Rejoin says by a Ping that it is there.
      if (stage_ == Stage::joining) send_ping(turn);
      return send(wire::write_rejoin(header, rejoin_body(), client()), turn);
    case wire::Action::reset:
      return send(wire::write_reset(header, 0, client()), turn);
    case wire::Action::force_broadcast:
      return send(wire::write_slot_request(header, request.slot, client()), turn);
    default:
      return send(wire::write_plain_request(header, client()), turn);
  }
}

wire::JoinBody Uplink::join_body() const {
  wire::JoinBody body;
  body.kind = wire::MemberKind::child_switch;
  body.mode = job_.mode;
  body.shards = parts_.config.shards;
  body.max_segment_bytes = job_.segment_bytes;
  body.incarnation = run_.incarnation;
  return body;
}

wire::RejoinBody Uplink::rejoin_body() const {
  wire::RejoinBody body;
  body.join = join_body();
  body.join.wanted_member = former_;
  body.origin = stream_->origin;
  body.newest = stream_->newest;
  body.slots = stream_->slots;
  body.segment_bytes = stream_->segment_bytes;
  body.position = stream_->position;
  body.end = stream_->end;
  body.life = life_;
  return body;
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
  if (check_place_) return start_request(joins_by(), {}, turn.now, turn);
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

wire::Resumed Uplink::resumed() const {
  if (resumed_ && resumed_base_ == run_.base_round) return *resumed_;
  return {wire::Resumed::Fresh::reset, 0, 0, {}};
}

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
  // Who has just been started goes by what it is told now.
  place.waited_for_all = waited_for_all_.value_or(waits_for_all(terms_));
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
