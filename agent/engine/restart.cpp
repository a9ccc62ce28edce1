// The switch has restarted (protocol.md section 9): asking for the place again, handing back what
// others may lack, and going on, or not.
#include <algorithm>
#include <utility>

#include "agent/engine/state.h"
#include "agent/engine/texts.h"
#include "wire/serial.h"

namespace iswitch::agent {
namespace {

/// Rejoins that a switch leaves unanswered while it answers Pings: it does not know them.
constexpr unsigned enough_rejoins = 5;
/// Helps for an update that nobody answers for so long: nobody has it.
constexpr Time patience = 3 * second;

}  // namespace

void Engine::State::renew_incarnation() {
  const std::uint32_t before = options.incarnation;
  const std::uint64_t salt =
      options.start_unix_microseconds + static_cast<std::uint64_t>(now) + ++incarnations;
  std::uint64_t mixed = (std::uint64_t{before} << 32 | before) ^ (salt * 0x9E37'79B9'7F4A'7C15ULL);
  mixed = (mixed ^ mixed >> 30) * 0xBF58'476D'1CE4'E5B9ULL;
  mixed = (mixed ^ mixed >> 27) * 0x94D0'49BB'1331'11EBULL;
  const auto next = static_cast<std::uint32_t>(mixed ^ mixed >> 31);
  options.incarnation = next == before ? next + 1 : next;
}

// ---- away

bool Engine::State::can_come_back() const {
  return options.resume_within > 0 && kept.there() && begun() && !broken && !leaving;
}

wire::RejoinBody Engine::State::what_is_here() const {
  wire::RejoinBody body;
  if (!async) {
    body.origin = stream.origin();
    body.newest = wire::serial_latest(stream.base_round(), stream.newest_round());
    body.slots = stream.slots();
    body.segment_bytes = stream.segment_bytes();
    body.position = stream.position();
    body.end = stream.end_of_results();
    return body;
  }
  const Asynchronous& a = *async;
  body.origin = a.origin;
  body.newest = wire::serial_latest(a.base_round(), a.pushes.newest_number());
  for (std::uint32_t segment = 0; segment < a.updates.segments(); ++segment)
    body.newest = wire::serial_latest(body.newest, a.updates.newest(segment) + a.shift);
  body.slots = a.slots;
  body.segment_bytes = a.segment_bytes;
  return body;
}

void Engine::State::go_away(Time at) {
  if (!away.yes) away.since = now;
  if (!away.yes && async)
    async->waited_for_all = membership.job().threshold >= membership.job().members_expected;
  away.yes = true;
  away.until = now + options.resume_within;
  away.pinged = 0;
  away.deaf = 0;
  away.unknown = false;
  confirming = parent_missing = false;
  forget_way_back();
  if (async)
    async->pushes.pause();
  else
    stream.pause();
  renew_incarnation();
  membership.come_back(what_is_here(), at, now);
}

void Engine::State::forget_way_back() {
  hand_back.stop();
  if (async) async->settling.left = 0;
}

/// Each Rejoin that goes unanswered is followed by a Ping: whoever answers that, and does not know
/// this member, has not understood.
void Engine::State::ping_while_away() {
  if (!away.yes || membership.joined() || !membership.coming_back()) return;
  const unsigned times = requests.main_times();
  if (times == away.pinged) return;
  away.pinged = times;
  if (times == 0) return;
  requests.ping(membership.member(), now);
}

void Engine::State::on_ping_while_away(const Reply& reply) {
  if (!away.yes || membership.joined() || !membership.coming_back() ||
      reply.answers != Answers::ping || reply.body.status != wire::Status::not_a_member)
    return;
  if (++away.deaf < enough_rejoins) return;
  away.unknown = true;
  renew_incarnation();
  membership.rejoin(now, now);
}

void Engine::State::give_up_coming_back() {
  if (!away.yes || now < away.until) return;
  const std::string what = "job " + std::to_string(options.job) + " did not go on within " +
                           text::duration(options.resume_within) + " after its switch had gone";
  Error error = standstill(what).value_or(Error{ErrorCode::switch_gone, wire::Status::ok, 0, what});
  away.yes = false;
  forget_way_back();
  if (async) return take_new_place(error, now);
  end_epoch(error);
  renew_incarnation();
  membership.rejoin(now, now);
}

// ---- back

void Engine::State::on_return_reply(const Reply& reply) {
  const bool was_member = membership.joined();
  away.deaf = away.pinged = 0;
  if (was_member && !reply.authentic) return;
  if (!was_member) {
    requests.forget_peer();
    confirming = false;
  }
  // Let in, and not known any more: that was another life of the switch.
  if (reply.authentic && reply.body.status == wire::Status::not_a_member) {
    if (reply.action == wire::Action::rejoin && ++away.strangers < enough_rejoins)
      return go_away(now + options.join_retry);
    away.unknown = away.unknown || reply.action == wire::Action::rejoin;
    renew_incarnation();
    return membership.rejoin(now + options.join_retry, now);
  }
  // A plain Join follows, and must not be taken for the same as the Rejoin.
  if (reply.authentic && reply.body.status == wire::Status::job_full) renew_incarnation();
  const bool there = membership.on_join_reply(reply, now);
  if (membership.state() == EngineState::failed) return stop_everything();
  if (there) away.strangers = 0;
  // Of a job that forms nothing is known for good.
  if (!there || membership.state() == EngineState::forming) return;
  away.yes = false;
  base_known_at = now;
  last_ping = now;
  const wire::Resumed resumed = reply.action == wire::Action::rejoin
                                    ? wire::decode_resumed(reply.body.missing)
                                    : wire::Resumed{};
  if (reply.action == wire::Action::rejoin && resumed.goes_on())
    go_on(resumed);
  else
    begin_afresh(why_afresh(reply, resumed), wire::decode_resumed(reply.body.missing).origin);
  follow_job_state();
}

std::string Engine::State::why_afresh(const Reply& reply, const wire::Resumed& resumed) const {
  if (reply.action != wire::Action::rejoin)
    return away.unknown ? "the switch does not know how to go on after a restart (it is older than "
                          "this agent)"
                        : "this member's place was taken by another";
  const wire::ReplyBody& job = membership.job();
  const std::uint32_t slots = async ? async->slots : stream.slots();
  const std::uint32_t bytes = async ? async->segment_bytes : stream.segment_bytes();
  std::string why = wire::fresh_reason_name(resumed.fresh);
  if (job.slots != slots)
    why += ": " + std::to_string(slots) + " slots before, " + std::to_string(job.slots) + " now";
  if (job.segment_bytes != bytes)
    why += ": segments of " + std::to_string(bytes) + " bytes before, of " +
           std::to_string(job.segment_bytes) + " now";
  if (resumed.fresh == wire::Resumed::Fresh::too_far_apart)
    why += ": by " + std::to_string(resumed.count) + " segments, where the last " +
           std::to_string(job.slots) + " are kept";
  return why;
}

void Engine::State::begin_afresh(const std::string& why, std::optional<std::uint32_t> origin) {
  Error error{ErrorCode::job_reset, wire::Status::ok, 0,
              "job " + std::to_string(options.job) +
                  " started afresh after this member had lost its place at the switch (" + why +
                  "); all members start again together"};
  requests.was_reset();
  if (!async) {
    ++statistics.resets;
    return end_epoch(error);
  }
  if (membership.job().base_round != async->base_round()) return restart_updates(error, origin);
  // The same life of the job: the updates missed meanwhile can be asked for.
  operations.fail_all(error);
  async->pushes.stop();
  async->saw_forming = false;
}

void Engine::State::go_on(const wire::Resumed& resumed) {
  ++statistics.resumes;
  if (async) return go_on_with_updates();
  if (go_on_in_stream(resumed)) return;
  // The switch goes on with something else than what is here: it has to be told.
  --statistics.resumes;
  end_epoch({ErrorCode::job_reset, wire::Status::ok, 0,
             "the switch went on with job " + std::to_string(options.job) +
                 " from positions that do not fit this member's; a Reset follows"});
  broken = true;
}

bool Engine::State::go_on_in_stream(const wire::Resumed& resumed) {
  const wire::ReplyBody& job = membership.job();
  const std::uint64_t position = stream.position();
  const std::uint64_t behind = static_cast<std::uint32_t>(position) - resumed.first;
  const std::uint64_t first = position - behind;
  const std::uint64_t end = first + resumed.count;
  if (behind > position || job.slots != stream.slots() ||
      job.segment_bytes != stream.segment_bytes() || resumed.count > job.slots || position > end ||
      stream.end_of_results() > end)
    return false;
  stream.go_on(job, membership.member(), end, now);
  inquiry.asked = inquiry.answered = false;
  std::vector<HandBack::Item> items;
  for (std::uint64_t at = first; at != end; ++at)
    if (const KeptResult* result = kept.find(stream.slot_of(at), at); result != nullptr)
      items.push_back({stream.slot_of(at), stream.round_of(at), result, false});
  if (items.empty()) return true;
  stream.pause();
  hand_back.begin(std::move(items), job, now);
  return true;
}

void Engine::State::hand_back_answered() {
  if (!hand_back.active() && stream.active()) follow_job_state();
}

// ---- asynchronous

void Engine::State::go_on_with_updates() {
  Asynchronous& a = *async;
  const wire::ReplyBody& job = membership.job();
  a.shift = job.base_round - a.origin;
  a.pushes.go_on(job, membership.member(), now);
  const std::uint32_t segments = a.updates.segments();
  std::vector<HandBack::Item> items;
  for (std::uint32_t segment = 0; segment < segments; ++segment) {
    const KeptResult* newest = kept.newest(segment);
    const std::uint32_t number =
        newest == nullptr ? a.origin : static_cast<std::uint32_t>(newest->number);
    items.push_back({segment, number + a.shift, newest, false});
  }
  hand_back.begin(std::move(items), job, now);
  auto& settling = a.settling;
  settling.stage.assign(segments, {});
  settling.target.assign(segments, a.origin);
  settling.had = a.updates.complete();
  settling.left = segments;
  settling.progress_at = now;
  if (a.phase == Asynchronous::Phase::live) a.asking.begin(segments, now);
  if (a.phase == Asynchronous::Phase::probing) a.probe_at = now;
}

void Engine::State::note_settled(std::uint32_t segment, std::uint32_t round, bool marked) {
  Asynchronous& a = *async;
  if (!hand_back.answered(segment, round, marked, now)) return;
  a.settling.stage[segment] = Asynchronous::Settling::Stage::catching_up;
  a.settling.target[segment] = round - a.shift;
  a.settling.progress_at = now;
  if (a.phase == Asynchronous::Phase::live &&
      wire::serial_newer(a.settling.had[segment], a.settling.target[segment]))
    give_up_lost_updates(segment);
}

void Engine::State::give_up_lost_updates(std::uint32_t segment) {
  Asynchronous& a = *async;
  need_weights(EventKind::gone,
               {ErrorCode::gone, wire::Status::ok, 0,
                "update " + std::to_string(a.settling.had[segment]) + " of segment " +
                    std::to_string(segment) +
                    " was lost with a switch that restarted, and this member has weights with it"});
  take_new_place(a.why, now);
}

void Engine::State::advance_settling(std::uint32_t segment) {
  Asynchronous& a = *async;
  auto& settling = a.settling;
  using Stage = Asynchronous::Settling::Stage;
  if (!settling.active() || settling.stage[segment] != Stage::catching_up) return;
  // Who waits for weights has nothing under way that an update could acknowledge.
  if (a.phase == Asynchronous::Phase::live &&
      wire::serial_newer(settling.target[segment], a.updates.complete_to(segment)))
    return;
  settling.stage[segment] = Stage::done;
  if (--settling.left == 0) follow_async();
}

Time Engine::State::lost_updates_due() const {
  if (away.yes || !async->settling.active() || hand_back.active() ||
      async->phase != Asynchronous::Phase::live)
    return never;
  return async->settling.progress_at + patience;
}

void Engine::State::notice_lost_updates() {
  if (now < lost_updates_due()) return;
  Asynchronous& a = *async;
  auto& settling = a.settling;
  using Stage = Asynchronous::Settling::Stage;
  settling.progress_at = now;
  for (std::uint32_t segment = 0; segment < a.updates.segments(); ++segment)
    if (settling.stage[segment] == Stage::catching_up && a.updates.room(segment))
      return fall_behind(segment, a.updates.complete_to(segment) + 1 + a.shift);
}

}  // namespace iswitch::agent
