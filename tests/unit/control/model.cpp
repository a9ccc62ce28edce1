#include "tests/unit/control/model.h"

namespace control_test {

std::optional<MemberId> Model::id_at(const PlaceKey& place) const {
  for (const auto& [id, row] : rows)
    if (row.place == place) return id;
  return std::nullopt;
}

void Model::remove(MemberId id) {
  rows.erase(id);
  if (!rows.empty()) return;
  if (formed) ++clearings;
  formed = false;
}

void Model::evict(MemberId id) { remove(id); }

void Model::tick(Time now) {
  if (!config_.evict_silent) return;
  std::vector<MemberId> silent;
  for (const auto& [id, row] : rows)
    if (now - row.last_heard > config_.member_timeout) silent.push_back(id);
  for (const MemberId id : silent) remove(id);
}

void Model::heard(const PlaceKey& from, Time now) {
  if (const auto id = id_at(from)) rows[*id].last_heard = now;
}

void Model::replied(const PlaceKey& from, const wire::ControlHeader& header, Status status) {
  const auto last = last_.find(from);
  if (last == last_.end()) return;
  const auto& known = last->second.header;
  if (known.nonce == header.nonce && known.request_id == header.request_id &&
      known.action == header.action && !last->second.answered)
    last->second.answered = status;
}

Model::Verdict Model::receive(const PlaceKey& from, const Request& request, Time now) {
  const auto& header = request.header;
  const bool exempt = header.action == Action::ping || header.action == Action::help;
  const auto last = last_.find(from);
  if (!exempt && last != last_.end()) {
    const auto& known = last->second.header;
    const bool same = known.nonce == header.nonce && known.request_id == header.request_id &&
                      known.action == header.action;
    if (same) {
      heard(from, now);
      if (!last->second.answered) return {false, true, Status::ok, false};
      Status status = *last->second.answered;
      if (status == Status::ok && !id_at(from) && header.action != Action::leave)
        status = Status::not_a_member;
      return {false, false, status, false};
    }
    if (header.nonce <= known.nonce) return {false, false, Status::replayed_nonce, false};
  }
  const auto id = id_at(from);
  if (header.action != Action::join && (!id || *id != header.member))
    return {false, false, Status::not_a_member, false};
  if (!exempt) last_[from] = {header, std::nullopt};
  if (header.action == Action::join) return join(from, request.join, now);
  heard(from, now);
  Verdict done{true, false, Status::ok, false};
  switch (header.action) {
    case Action::leave:
      remove(*id);
      break;
    case Action::reset:
      done.resets = true;
      ++clearings;
      break;
    case Action::set_threshold:
      if (request.threshold > 64) {
        done.status = Status::bad_value;
      } else {
        threshold = request.threshold;
      }
      break;
    case Action::force_broadcast:
      if (!request.slot_complete) done.status = Status::bad_value;
      break;
    case Action::halt:
      halted = true;
      break;
    case Action::resume:
      halted = false;
      break;
    default:
      break;
  }
  return done;
}

std::optional<MemberId> Model::free_or_silent(MemberId wanted, Time now) const {
  const auto silence = [&](MemberId id) { return now - rows.at(id).last_heard; };
  if (wanted != wire::no_member) {
    if (rows.count(wanted) == 0 || silence(wanted) > config_.member_timeout) return wanted;
    return std::nullopt;
  }
  std::optional<MemberId> best;
  for (MemberId id = 0; id < config_.members; ++id)
    if (rows.count(id) == 0) return id;
  for (MemberId id = 0; id < config_.members; ++id)
    if (silence(id) > config_.member_timeout && (!best || silence(id) > silence(*best))) best = id;
  return best;
}

Model::Verdict Model::join(const PlaceKey& from, const wire::JoinBody& body, Time now) {
  Verdict verdict{true, false, Status::ok, false};
  if (body.wanted_member != wire::no_member && body.wanted_member >= config_.members) {
    verdict.status = Status::bad_value;
    return verdict;
  }
  const auto own = id_at(from);
  if (own && rows[*own].incarnation == body.incarnation) {
    rows[*own].last_heard = now;
    return verdict;
  }
  const bool keeps = own && (body.wanted_member == wire::no_member || body.wanted_member == *own);
  const auto id = keeps ? own : free_or_silent(body.wanted_member, now);
  if (!id) {
    verdict.status = Status::job_full;
    return verdict;
  }
  if (own) rows.erase(*own);
  rows[*id] = {from, body.incarnation, now};
  verdict.resets = formed && config_.mode == wire::Mode::sync;
  if (verdict.resets) ++clearings;
  if (rows.size() == config_.members) formed = true;
  return verdict;
}

}  // namespace control_test
