// What the parent says: answers, unasked-for replies, orders.
#include <algorithm>
#include <utility>

#include "switchd/control/fit.h"
#include "switchd/control/replay_guard.h"
#include "switchd/control/uplink.h"
#include "wire/serial.h"

namespace iswitch::control {
namespace {

constexpr Time longest_pause = 2 * second;
/// A start takes a base_round from its clock: half a second of it.
constexpr std::uint32_t rounds_of_a_start = 1u << 15;

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

}  // namespace

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
  if (action == joins_by()) {
    if (body.status == wire::Status::ok) return joined(body, turn);
    return refused(body, turn);
  }
  const Time asked_at = request_->sent_at;
  if (body.status == wire::Status::not_a_member) return lose_place(turn);
  request_.reset();
  const Wish wish = std::move(wishes_.front());
  wishes_.pop_front();
  if (action == wire::Action::reset && body.member == run_.member &&
      wire::serial_newer(body.base_round, run_.base_round)) {
    doubt_place(body.base_round);
    take_base(body.base_round, turn.now);  // as it was to be
  }
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
  if (const auto life = wire::decode_life(body.missing); stream_ && life) {
    // What was said of the stream is true no more once the job has run.
    if (stage_ == Stage::member) return lose_place(turn);
    life_ = *life;
    return start_request(wire::Action::rejoin, {}, turn.now, turn);
  }
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
  if (body.state != wire::JobState::forming) learn_stream(body);
  adopt(body, turn.now, turn);
  next_ping_ = turn.now + within_timeout(ran_ ? ping_interval : forming_ping_interval);
}

void Uplink::learn_stream(const wire::ReplyBody& body) {
  const wire::Resumed said = wire::decode_resumed(body.missing);
  resumed_ = stream_ ? said : wire::Resumed{fresh_, 0, 0, said.origin};
  resumed_base_ = body.base_round;
}

void Uplink::refused(const wire::ReplyBody& body, const Turn& turn) {
  fault_ = refusal_text(job_, body, parent_.ip);
  heard_ = turn.now;
  silent_ = false;
  if (body.status == wire::Status::job_full || body.status == wire::Status::bad_value)
    former_ = wire::no_member;  // any other then
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
  if (stage_ == Stage::joining && body.status == wire::Status::not_a_member) {
    if (!request_ || request_->action != wire::Action::rejoin || request_->sends == deaf_sends_)
      return;
    deaf_sends_ = request_->sends;
    if (++deaf_ < sends_until_old) return;
    stream_.reset();
    fresh_ = wire::Resumed::Fresh::stranger;  // to the parent, who cannot be told
    return join(turn.now, turn);
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
    if (!ran_ && !resumed_) {
      if (stream_) {
        check_place_ = true;  // the answer to a Rejoin alone says what became of the stream
      } else {
        resumed_ = wire::Resumed{fresh_, 0, 0, {}};
        resumed_base_ = run_.base_round;
      }
    }
    ran_ = ran_ || resumed_;
    // Of a stream that goes on: whoever wanted any id may have had another when it began.
    const bool in_doubt = former_ == wire::no_member && resumed_ && resumed_->goes_on();
    if (ran_ && !in_doubt) former_ = run_.member;
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
  if (ran_) doubt_place(base_round);
  take_base(base_round, now);
  return true;
}

/// A newer base_round was to be expected, but not one that is so much newer: the parent may have
/// been started meanwhile, and have taken a late copy of an earlier Join for this switch's.
void Uplink::doubt_place(std::uint32_t base_round) {
  if (base_round - run_.base_round > rounds_of_a_start) check_place_ = true;
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
  heard_ = turn.now;
  lose_place(turn);
  not_before_ = turn.now + least_between_joins;
  silent_ = true;
  note_state(turn.now);
}

}  // namespace iswitch::control
