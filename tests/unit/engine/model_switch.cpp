#include "tests/unit/engine/model_switch.h"

#include <cmath>
#include <cstring>

namespace iswitch::model {
namespace {

bool newer(std::uint32_t a, std::uint32_t b) { return a != b && a - b < 0x8000'0000U; }

float add(float a, float b) {
  const float sum = a + b;
  if (!std::isnan(sum)) return sum;
  const std::uint32_t canonical = 0x7FC0'0000;
  float value;
  std::memcpy(&value, &canonical, sizeof value);
  return value;
}

unsigned members_in(const Open& open) {
  unsigned in = open.former;
  for (unsigned i = 0; i < 64; ++i) in += open.members >> i & 1;
  return in;
}

}  // namespace

std::uint16_t Switch::threshold() const {
  const auto members = static_cast<std::uint16_t>(members_.size());
  return config_.threshold == 0 ? members : std::min(config_.threshold, members);
}

std::optional<std::uint16_t> Switch::member_at(std::size_t endpoint) const {
  for (const auto& [id, member] : members_)
    if (member.endpoint == endpoint) return id;
  return std::nullopt;
}

wire::ReplyBody Switch::describe(wire::Status status, std::uint16_t member) const {
  wire::ReplyBody body;
  body.status = status;
  body.state = halted_ ? wire::JobState::halted
                       : (running() ? wire::JobState::running : wire::JobState::forming);
  body.member = member;
  body.members_now = static_cast<std::uint16_t>(members_.size());
  body.members_expected = config_.members;
  body.mode = config_.mode;
  body.threshold = threshold();
  body.shards = config_.shards;
  body.segment_bytes = config_.segment_bytes;
  body.slots = config_.slots;
  body.base_round = base_round_;
  body.history = config_.history;
  return body;
}

void Switch::reply(std::size_t to, const wire::Header& request, const wire::ReplyBody& body,
                   std::vector<Datagram>& out) {
  const auto datagram = wire::write_reply({.action = static_cast<wire::Action>(request.flags),
                                           .job = config_.job,
                                           .member = body.member,
                                           .request_id = request.round,
                                           .nonce = request.set},
                                          body, {{}, ip_of(to), port});
  out.push_back({to, {datagram.view().begin(), datagram.view().end()}, false, false});
}

void Switch::unasked(std::size_t to, const wire::ReplyBody& body, std::vector<Datagram>& out) {
  wire::Header header;
  header.flags = static_cast<std::uint8_t>(wire::Action::ping);
  header.set = ++nonce_;
  reply(to, header, body, out);
}

void Switch::receive(std::size_t from, const std::vector<std::uint8_t>& bytes, std::uint16_t shard,
                     bool congested, std::vector<Datagram>& out) {
  wire::Message message;
  if (wire::parse_message(bytes, message) != wire::Fault::none || message.header.job != config_.job)
    return;
  if (message.header.type == wire::Type::contribution)
    contribution(from, message, shard, congested, out);
  else if (message.header.type == wire::Type::request)
    control(from, message, out);
}

void Switch::contribution(std::size_t from, const wire::Message& message, std::uint16_t shard,
                          bool congested, std::vector<Datagram>& out) {
  ++contributions;
  const wire::Header& header = message.header;
  const auto member = member_at(from);
  if (!member || *member != header.member) {
    wire::ReplyBody body;
    body.status = wire::Status::not_a_member;
    return unasked(from, body, out);
  }
  if (!running() || halted_)
    return unasked(from, describe(halted_ ? wire::Status::halted : wire::Status::ok, *member), out);
  if (header.segment >= config_.slots) return;
  if (header.segment % config_.shards != shard) {
    ++wrong_shard;
    return;
  }
  if (!highest_known_ || newer(header.round, highest_)) highest_ = header.round;
  highest_known_ = true;
  if (config_.mode == wire::Mode::async) return push(from, *member, message, congested, out);
  Slot& slot = slots_[header.segment];
  const std::uint32_t last = slot.used ? slot.last : base_round_ - 1;
  const auto tell = [&](std::size_t to, std::uint16_t id, wire::Status status) {
    wire::ReplyBody body = describe(status, id);
    body.missing = std::uint64_t{header.segment} << 32 | header.round;
    unasked(to, body, out);
  };
  for (const Result& kept : slot.kept) {
    if (kept.round != header.round) continue;
    if (kept.tag == header.operation_tag())
      out.push_back({from, kept.bytes, true, congested});
    else {
      ++mismatches;
      tell(from, *member, wire::Status::mismatch);
    }
    return;
  }
  const bool same = slot.open && slot.open->round == header.round;
  if (same && (slot.open->members >> *member & 1) != 0) return;
  const std::size_t floats = message.payload.size() / sizeof(float);
  if (same) {
    const bool other_length =
        floats != 0 && !slot.open->sum.empty() && floats != slot.open->sum.size();
    if (other_length || slot.open->tag != header.operation_tag()) {
      ++mismatches;
      tell(from, *member, wire::Status::mismatch);
      for (const auto& [id, other] : members_)
        if ((slot.open->members >> id & 1) != 0) tell(other.endpoint, id, wire::Status::mismatch);
      return;
    }
  } else if (!slot.open && header.round == last + 1) {
    slot.open.emplace();
    slot.open->round = header.round;
    slot.open->tag = header.operation_tag();
  } else if (newer(header.round, slot.open ? slot.open->round : last)) {
    ++ahead;
    return;
  } else {
    return tell(from, *member, wire::Status::gone);
  }
  add_payload(*slot.open, *member, message, congested);
  if (members_in(*slot.open) >= threshold()) complete(header.segment, slot, false, out);
}

void Switch::add_payload(Open& open, std::uint16_t member, const wire::Message& message,
                         bool congested) {
  const std::size_t floats = message.payload.size() / sizeof(float);
  if (open.sum.empty()) open.sum.assign(floats, 0.0F);
  for (std::size_t i = 0; i < floats; ++i) {
    float value;
    std::memcpy(&value, message.payload.data() + i * sizeof(float), sizeof value);
    open.sum[i] = add(open.sum[i], value);
  }
  open.members |= std::uint64_t{1} << member;
  open.workers = static_cast<std::uint16_t>(open.workers + 1);
  open.congested =
      open.congested || congested || (message.header.flags & wire::flag::ecn_echo) != 0;
  ++accepted;
}

/// Section 5.
void Switch::push(std::size_t from, std::uint16_t member, const wire::Message& message,
                  bool congested, std::vector<Datagram>& out) {
  const wire::Header& header = message.header;
  if (header.operation_tag() != members_[member].incarnation || !newer(header.round, base_round_)) {
    ++stale;
    return;
  }
  Slot& slot = slots_[header.segment];
  const auto known = slot.accepted.find(member);
  if (known != slot.accepted.end() && !newer(header.round, known->second)) {
    ++duplicates;
    if (header.round != known->second) return;
    if (slot.open && (slot.open->members >> member & 1) != 0) return;
    for (auto kept = slot.kept.rbegin(); kept != slot.kept.rend(); ++kept) {
      wire::Message result;
      if (wire::parse_message(kept->bytes, result) != wire::Fault::none ||
          (result.header.set >> member & 1) == 0)
        continue;
      out.push_back({from, kept->bytes, true, congested});
      return;
    }
    wire::ReplyBody body = describe(wire::Status::gone, member);
    body.missing = std::uint64_t{header.segment} << 32 | (slot.last - config_.history);
    return unasked(from, body, out);
  }
  const std::size_t floats = message.payload.size() / sizeof(float);
  if (slot.open && floats != 0 && !slot.open->sum.empty() && floats != slot.open->sum.size()) {
    ++mismatches;
    wire::ReplyBody body = describe(wire::Status::mismatch, member);
    body.missing = std::uint64_t{header.segment} << 32 | header.round;
    return unasked(from, body, out);
  }
  slot.accepted[member] = header.round;
  if (!slot.open) {
    slot.open.emplace();
    slot.open->round = (slot.used ? slot.last : base_round_) + 1;
  }
  add_payload(*slot.open, member, message, congested);
  if (members_in(*slot.open) >= threshold()) complete(header.segment, slot, false, out);
}

void Switch::forget(std::uint16_t member) {
  members_.erase(member);
  if (config_.mode == wire::Mode::sync) return;
  const std::uint64_t bit = std::uint64_t{1} << member;
  for (auto& [segment, slot] : slots_) {
    slot.accepted.erase(member);
    if (slot.open && (slot.open->members & bit) != 0) {
      slot.open->members &= ~bit;
      ++slot.open->former;
    }
    for (Result& kept : slot.kept) {
      wire::Message message;
      if (wire::parse_message(kept.bytes, message) != wire::Fault::none) continue;
      message.header.set &= ~bit;
      wire::write_header(message.header, kept.bytes.data());
    }
  }
}

void Switch::evict(std::uint16_t member) { forget(member); }

void Switch::complete(std::uint32_t segment, Slot& slot, bool partial, std::vector<Datagram>& out) {
  const Open& open = *slot.open;
  wire::Header header;
  header.type = wire::Type::result;
  header.flags = static_cast<std::uint8_t>((partial ? wire::flag::partial : 0) |
                                           (open.congested ? wire::flag::ecn_echo : 0));
  header.job = config_.job;
  header.member = open.workers;
  header.round = open.round;
  header.segment = segment;
  header.set = open.members;
  Result result{open.round, open.tag, {}};
  result.bytes.resize(wire::header_bytes + open.sum.size() * sizeof(float));
  wire::write_header(header, result.bytes.data());
  if (!open.sum.empty())
    std::memcpy(result.bytes.data() + wire::header_bytes, open.sum.data(),
                open.sum.size() * sizeof(float));
  for (const auto& [id, member] : members_)
    out.push_back({member.endpoint, result.bytes, true, false});
  slot.last = open.round;
  if (newer(open.round, highest_)) highest_ = open.round;
  slot.used = true;
  slot.kept.push_back(std::move(result));
  if (slot.kept.size() > config_.history) slot.kept.erase(slot.kept.begin());
  slot.open.reset();
}

void Switch::force_everything(std::vector<Datagram>& out) {
  for (auto& [segment, slot] : slots_)
    if (slot.open) complete(segment, slot, true, out);
}

void Switch::reset(std::vector<Datagram>& out) {
  base_round_ = (highest_known_ && newer(highest_, base_round_) ? highest_ : base_round_) + 2;
  slots_.clear();
  for (const auto& [id, member] : members_) {
    const auto datagram = wire::write_reset({.action = wire::Action::reset,
                                             .job = config_.job,
                                             .member = id,
                                             .request_id = 1,
                                             .nonce = ++nonce_},
                                            base_round_, {{}, ip_of(member.endpoint), port});
    out.push_back(
        {member.endpoint, {datagram.view().begin(), datagram.view().end()}, false, false});
  }
}

void Switch::halt(bool halted, std::vector<Datagram>& out) {
  halted_ = halted;
  for (const auto& [id, member] : members_) {
    const auto datagram =
        wire::write_plain_request({.action = halted ? wire::Action::halt : wire::Action::resume,
                                   .job = config_.job,
                                   .member = id,
                                   .request_id = 1,
                                   .nonce = ++nonce_},
                                  {{}, ip_of(member.endpoint), port});
    out.push_back(
        {member.endpoint, {datagram.view().begin(), datagram.view().end()}, false, false});
  }
}

void Switch::join(std::size_t from, const wire::Message& message, std::vector<Datagram>& out) {
  const auto body = wire::read_join(message.payload);
  if (!body) return;
  if (const auto id = member_at(from); id && members_[*id].incarnation == body->incarnation)
    return reply(from, message.header, describe(wire::Status::ok, *id), out);
  std::optional<std::uint16_t> place = member_at(from);  // the process restarted
  for (std::uint16_t id = 0; !place && id < config_.members; ++id)
    if (members_.count(id) == 0 &&
        (body->wanted_member == wire::no_member || body->wanted_member == id))
      place = id;
  if (!place)
    return reply(from, message.header, describe(wire::Status::job_full, wire::no_member), out);
  forget(*place);
  members_[*place] = {from, body->incarnation};
  if (was_running_ && config_.mode == wire::Mode::sync) reset(out);
  was_running_ = running();
  reply(from, message.header, describe(wire::Status::ok, *place), out);
}

void Switch::control(std::size_t from, const wire::Message& message, std::vector<Datagram>& out) {
  const wire::Header& header = message.header;
  const auto action = static_cast<wire::Action>(header.flags);
  if (action == wire::Action::rejoin) return;  // an older switch: malformed
  const bool exempt = action == wire::Action::ping || action == wire::Action::help;
  const bool repeated = !exempt && last_nonce_[from] == header.set;
  if (!exempt && header.set < last_nonce_[from]) {
    return reply(from, header, describe(wire::Status::replayed_nonce, header.member), out);
  }
  if (!exempt) last_nonce_[from] = header.set;
  if (action == wire::Action::join) return join(from, message, out);
  const auto member = member_at(from);
  if (!member || *member != header.member) {
    wire::ReplyBody body;
    body.status = wire::Status::not_a_member;
    return reply(from, header, body, out);
  }
  wire::ReplyBody body;
  if (action == wire::Action::reset && !repeated) reset(out);
  if ((action == wire::Action::halt || action == wire::Action::resume) && !repeated)
    halt(action == wire::Action::halt, out);
  if (action == wire::Action::set_threshold)
    config_.threshold = wire::read_set_threshold(message.payload);
  if (action == wire::Action::force_broadcast && !repeated) {
    const auto at = wire::read_slot(message.payload);
    Slot& slot = slots_[at.segment];
    if (slot.open && slot.open->round == at.round) complete(at.segment, slot, true, out);
  }
  body = describe(wire::Status::ok, *member);
  if (action == wire::Action::help) {
    const auto at = wire::read_slot(message.payload);
    Slot& slot = slots_[at.segment];
    bool found = false;
    for (const Result& kept : slot.kept) {
      if (kept.round != at.round) continue;
      found = true;
      out.push_back({from, kept.bytes, true, false});
    }
    const bool past = slot.used ? !newer(at.round, slot.last) : !newer(at.round, base_round_);
    if (config_.mode == wire::Mode::async && !found && past) {
      body.status = wire::Status::gone;
      body.missing = std::uint64_t{at.segment} << 32 | at.round;
    }
    if (config_.mode == wire::Mode::sync && slot.open && slot.open->round == at.round) {
      for (const auto& [id, other] : members_) {
        if ((slot.open->members >> id & 1) != 0) continue;
        body.missing |= std::uint64_t{1} << id;
        const auto help = wire::write_slot_request({.action = wire::Action::help,
                                                    .job = config_.job,
                                                    .member = id,
                                                    .request_id = 1,
                                                    .nonce = ++nonce_},
                                                   at, {{}, ip_of(other.endpoint), port});
        out.push_back({other.endpoint, {help.view().begin(), help.view().end()}, false, false});
      }
    }
  }
  if (action == wire::Action::leave) forget(*member);
  reply(from, header, body, out);
}

}  // namespace iswitch::model
