#include "agent/engine/requests.h"

#include <algorithm>

namespace iswitch::agent {
namespace {

bool is_reset(const ControlRequest& request) { return request.action == wire::Action::reset; }

}  // namespace

Requests::Requests(const EngineOptions& options, Statistics& statistics)
    : options_(options), statistics_(statistics) {}

SentRequest Requests::next(wire::Action action, Time now) {
  const Time elapsed = std::max<Time>(now - options_.start_time, 0) / microsecond;
  const std::uint64_t clock =
      options_.start_unix_microseconds + static_cast<std::uint64_t>(elapsed) + nonce_lead_;
  last_nonce_ = std::max(clock, last_nonce_ + 1);
  const std::uint32_t id = next_id_;
  next_id_ = next_id_ == UINT32_MAX ? 1 : next_id_ + 1;  // 0 is that of unasked-for replies
  return {action, id, last_nonce_, now};
}

void Requests::jump_nonces() {
  constexpr std::uint64_t most_lead = std::uint64_t{1} << 56;
  nonce_lead_ = std::clamp<std::uint64_t>(nonce_lead_ * 4, 1'000'000, most_lead);
}

wire::ControlDatagram Requests::compose(const ControlRequest& request, const SentRequest& sent,
                                        wire::MemberId sender) const {
  const wire::ControlHeader header{.action = sent.action,
                                   .job = options_.job,
                                   .member = sender,
                                   .request_id = sent.id,
                                   .nonce = sent.nonce};
  if (const auto* join = std::get_if<wire::JoinBody>(&request.body))
    return wire::write_join(header, *join, client());
  if (const auto* rejoin = std::get_if<wire::RejoinBody>(&request.body))
    return wire::write_rejoin(header, *rejoin, client());
  if (const auto* reset = std::get_if<ResetBody>(&request.body))
    return wire::write_reset(header, reset->base_round, client());
  if (const auto* threshold = std::get_if<ThresholdBody>(&request.body))
    return wire::write_set_threshold(header, threshold->threshold, client());
  if (const auto* slot = std::get_if<wire::SlotBody>(&request.body))
    return wire::write_slot_request(header, *slot, client());
  return wire::write_plain_request(header, client());
}

void Requests::start(const ControlRequest& request, wire::MemberId sender, Pace pace, Time at,
                     Time now) {
  RepeatedRequest& main = main_.emplace();
  main.sent = next(request.action, now);
  main.datagram = compose(request, main.sent, sender);
  main.request = request;
  main.sender = sender;
  main.renewed = pace.renewed;
  main.send_at = at;
  main.interval = std::max(pace.first, microsecond);
  main.most = std::max(pace.most, main.interval);
  if (at <= now) tick(sender, false, now);
}

std::optional<wire::Action> Requests::main() const {
  return main_ ? std::optional(main_->sent.action) : std::nullopt;
}

void Requests::want(const ControlRequest& request) {
  const auto end = wanted_.begin() + static_cast<std::ptrdiff_t>(wanted_count_);
  if (request.action == wire::Action::reset &&
      (main() == wire::Action::reset || std::any_of(wanted_.begin(), end, is_reset)))
    return;
  if (wanted_count_ < wanted_.size()) wanted_[wanted_count_++] = request;
}

void Requests::was_reset() {
  if (main() == wire::Action::reset) stop();
  const auto end = wanted_.begin() + static_cast<std::ptrdiff_t>(wanted_count_);
  wanted_count_ =
      static_cast<std::size_t>(std::remove_if(wanted_.begin(), end, is_reset) - wanted_.begin());
}

void Requests::asked(Time now) {
  if (unanswered_++ == 0) unanswered_since_ = now;
}

void Requests::ping(wire::MemberId sender, Time now) {
  const ControlRequest request{wire::Action::ping, {}};
  ping_ = next(request.action, now);
  queue(compose(request, *ping_, sender));
  asked(now);
}

void Requests::help(wire::MemberId sender, wire::SlotBody slot, Time now) {
  const ControlRequest request{wire::Action::help, slot};
  SentHelp& help = helps_[next_help_++ % helps_.size()];
  help = {next(request.action, now), slot};
  queue(compose(request, help.sent, sender));
  asked(now);
}

void Requests::farewell(wire::MemberId sender, Time now) {
  const ControlRequest request{wire::Action::leave, {}};
  queue(compose(request, next(request.action, now), sender));
}

void Requests::answer(const wire::Header& request, wire::MemberId self,
                      const wire::ReplyBody& body) {
  queue(wire::write_reply({.action = static_cast<wire::Action>(request.flags),
                           .job = options_.job,
                           .member = self,
                           .request_id = request.round,
                           .nonce = request.set},
                          body, asking_switch()));
}

bool Requests::authentic_request(Bytes datagram) const {
  return wire::tag_is_right(options_.key, datagram, options_.switch_ip, options_.switch_port);
}

Reply Requests::match(const wire::Message& message, Bytes datagram) {
  Reply reply;
  const auto body = wire::read_reply(message.payload);
  if (!body) return reply;
  reply.body = *body;
  reply.action = static_cast<wire::Action>(message.header.flags);
  reply.authentic = wire::tag_is_right(options_.key, datagram, options_.own_ip, options_.own_port);
  const auto fits = [&](const SentRequest& sent) {
    return sent.action == reply.action && sent.id == message.header.round &&
           sent.nonce == message.header.set;
  };
  // A switch with another key cannot prove that it refused a Join; who joins decides what to make
  // of it.
  const bool joining = reply.action == wire::Action::join || reply.action == wire::Action::rejoin;
  if (main_ && fits(main_->sent) && (reply.authentic || joining)) {
    reply.answers = Answers::main;
    reply.asked_at = main_->sent.at;
    if (reply.authentic) main_.reset();
    return reply;
  }
  const bool pong = ping_ && fits(*ping_);
  const auto help = std::find_if(helps_.begin(), helps_.end(), [&](const SentHelp& one) {
    return one.sent.id != 0 && fits(one.sent);
  });
  if (!reply.authentic) {
    if (reply.body.status == wire::Status::bad_tag && (pong || help != helps_.end())) ++bad_tags_;
    return reply;
  }
  if (pong) {
    reply.answers = Answers::ping;
    reply.asked_at = ping_->at;
    ping_.reset();
  } else if (help != helps_.end()) {
    reply.answers = Answers::help;
    reply.asked_at = help->sent.at;
    reply.about = help->about;
    help->sent.id = 0;  // that of no request
  } else if (message.header.round == 0 && reply.action == wire::Action::ping &&
             message.header.set > peer_unasked_nonce_) {
    peer_unasked_nonce_ = message.header.set;
    reply.answers = Answers::unasked;
  }
  return reply;
}

Requests::Freshness Requests::freshness(const wire::Header& request) {
  const SentRequest sent{static_cast<wire::Action>(request.flags), request.round, request.set, 0};
  if (peer_request_ && sent.nonce <= peer_request_->nonce) {
    const bool same = sent.nonce == peer_request_->nonce && sent.id == peer_request_->id &&
                      sent.action == peer_request_->action;
    return same ? Freshness::repeated : Freshness::replayed;
  }
  peer_request_ = sent;
  return Freshness::fresh;
}

void Requests::forget_peer() {
  peer_request_.reset();
  peer_unasked_nonce_ = 0;
  ping_.reset();
  for (SentHelp& help : helps_) help.sent.id = 0;
}

void Requests::tick(wire::MemberId sender, bool member, Time now) {
  if (!main_ && member && wanted_count_ != 0) {
    const ControlRequest request = wanted_[0];
    std::copy(wanted_.begin() + 1, wanted_.begin() + static_cast<std::ptrdiff_t>(wanted_count_),
              wanted_.begin());
    --wanted_count_;
    start(request, sender, {options_.join_retry, options_.ping_interval}, now, now);
    return;
  }
  if (!main_ || now < main_->send_at) return;
  if (main_->renewed && main_->times != 0) {
    main_->sent = next(main_->sent.action, now);
    main_->datagram = compose(main_->request, main_->sent, main_->sender);
  }
  queue(main_->datagram);
  asked(now);
  ++main_->times;
  main_->send_at = now + main_->interval;
  main_->interval = std::min(2 * main_->interval, main_->most);
}

void Requests::queue(const wire::ControlDatagram& datagram) {
  if (queued_ == queue_.size()) return;  // as if lost: whoever needs it repeats it
  queue_[(queue_head_ + queued_++) % queue_.size()] = datagram;
}

bool Requests::transmit(Outgoing& out) {
  if (queued_ == 0) return false;
  const wire::ControlDatagram& datagram = queue_[queue_head_];
  std::copy_n(datagram.bytes.begin(), datagram.size, out.head.begin());
  out.head_size = static_cast<std::uint16_t>(datagram.size);
  out.shard = 0;
  out.tos = options_.control_tos;
  out.payload = {};
  queue_head_ = (queue_head_ + 1) % queue_.size();
  --queued_;
  ++statistics_.control_sent;
  return true;
}

}  // namespace iswitch::agent
