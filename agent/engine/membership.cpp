#include "agent/engine/membership.h"

#include <algorithm>
#include <utility>

#include "agent/engine/texts.h"

namespace iswitch::agent {
namespace {

EngineState state_of(wire::JobState state) {
  switch (state) {
    case wire::JobState::running:
      return EngineState::running;
    case wire::JobState::halted:
      return EngineState::halted;
    case wire::JobState::forming:
      break;
  }
  return EngineState::forming;
}

/// While a job forms, an answer is expected to change soon.
constexpr int forming_polls_in_retries = 5;
/// A switch that restarts is back within seconds: it is asked more often than one that is looked
/// for.
constexpr int rejoins_in_pings = 4;

}  // namespace

std::string unfit_job(const wire::ReplyBody& job, const EngineOptions& options) {
  const auto field = [](const char* name, std::uint64_t value, const std::string& need) {
    return std::string("the switch's reply has ") + name + " " + std::to_string(value) + "; " +
           need;
  };
  if (job.mode != options.mode)
    return field("mode", static_cast<std::uint64_t>(job.mode),
                 options.mode == wire::Mode::sync
                     ? "the job is asynchronous, this agent was started for a synchronous one"
                     : "the job is synchronous, this agent was started for an asynchronous one");
  if (job.data_type != wire::DataType::float32)
    return field("data type", static_cast<std::uint64_t>(job.data_type),
                 "this agent sends float32 (0)");
  if (job.slots == 0) return field("slots", 0, "at least 1 is needed");
  if (job.shards == 0) return field("shards", 0, "at least 1 is needed");
  if (job.segment_bytes < wire::min_segment_bytes || job.segment_bytes > wire::max_segment_bytes ||
      job.segment_bytes % wire::min_segment_bytes != 0)
    return field("segment_bytes", job.segment_bytes, "a multiple of 32 from 32 to 8928 is needed");
  const std::uint64_t most_elements =
      std::uint64_t{job.slots} * (job.segment_bytes / sizeof(float));
  if (options.mode == wire::Mode::async &&
      (options.elements == 0 || options.elements > most_elements))
    return field("slots", job.slots,
                 "of " + std::to_string(job.segment_bytes) +
                     " bytes each they hold vectors of 1 to " + std::to_string(most_elements) +
                     " floats; this member's has " + std::to_string(options.elements) +
                     ": raise the job's slots");
  if (job.segment_bytes > options.max_segment_bytes)
    return field("segment_bytes", job.segment_bytes,
                 "this host can carry " + std::to_string(options.max_segment_bytes) +
                     ": raise its interface's MTU or lower the job's segment_bytes");
  return {};
}

Membership::Membership(const EngineOptions& options, Requests& requests)
    : options_(options), requests_(requests), wanted_(options.wanted_member) {}

bool Membership::joined() const {
  return state_ == EngineState::forming || state_ == EngineState::running ||
         state_ == EngineState::halted;
}

void Membership::join(Time now, Time deadline) {
  wanted_ = options_.wanted_member;
  deadline_ = deadline;
  error_ = {};
  member_ = wire::no_member;
  has_run_ = false;
  rejoin_.reset();
  job_ = {};
  send_join(now, now);
}

void Membership::rejoin(Time at, Time now) {
  rejoin_.reset();
  start_again(at, now);
}

void Membership::come_back(const wire::RejoinBody& body, Time at, Time now) {
  rejoin_ = body;
  start_again(at, now);
}

void Membership::start_again(Time at, Time now) {
  wanted_ = member_;
  has_run_ = false;
  deadline_ = never;
  state_ = EngineState::idle;
  send_join(at, now);
}

void Membership::send_join(Time at, Time now) {
  if (!joined()) {
    if (state_ != EngineState::joining) {
      pause_ = 0;
      last_refusal_ = wire::Status::ok;
      unproven_refusals_ = 0;
    }
    state_ = EngineState::joining;
  }
  wire::JoinBody body;
  body.mode = options_.mode;
  body.wanted_member = wanted_;
  body.max_segment_bytes = options_.max_segment_bytes;
  body.incarnation = options_.incarnation;
  const wire::MemberId sender = joined() ? member_ : wire::no_member;
  if (rejoin_) {
    rejoin_->join = body;
    const Time most = std::max(options_.ping_interval / rejoins_in_pings, options_.join_retry);
    return requests_.start({wire::Action::rejoin, *rejoin_}, sender,
                           {options_.join_retry, most, true}, at, now);
  }
  requests_.start({wire::Action::join, body}, sender, {options_.join_retry, options_.ping_interval},
                  at, now);
}

bool Membership::on_join_reply(const Reply& reply, Time now) {
  if (!reply.authentic || reply.body.status != wire::Status::ok) {
    refused(reply, now);
    return false;
  }
  const wire::ReplyBody& body = reply.body;
  if (const auto life = wire::decode_life(body.missing);
      life && reply.action == wire::Action::rejoin && rejoin_) {
    // Nothing has been done yet: a late copy of a Rejoin must not count in the switch's next life.
    if (rejoin_->life == *life)
      pause_ = std::clamp(2 * pause_, options_.join_retry, forming_interval());
    rejoin_->life = *life;
    send_join(now + pause_, now);
    return false;
  }
  if (std::string problem = unfit_job(body, options_); !problem.empty()) {
    fail({ErrorCode::refused, wire::Status::ok, 0, text::join_failed(options_, problem)});
    return false;
  }
  if (body.member >= wire::max_members || (wanted_ != wire::no_member && body.member != wanted_)) {
    const std::string problem =
        "the switch gave member id " + std::to_string(body.member) +
        (wanted_ == wire::no_member ? "; ids are 0 to 63"
                                    : ", wanted was " + std::to_string(wanted_));
    fail({ErrorCode::refused, wire::Status::ok, 0, text::join_failed(options_, problem)});
    return false;
  }
  member_ = body.member;
  last_refusal_ = wire::Status::ok;
  adopt(body);
  if (state_ == EngineState::forming && !has_run_) {
    pause_ = std::clamp(2 * pause_, options_.join_retry, forming_interval());
    send_join(now + pause_, now);
  }
  return true;
}

void Membership::adopt(const wire::ReplyBody& body) {
  job_ = body;
  job_.missing = 0;
  state_ = state_of(body.state);
  if (state_ == EngineState::forming) return;
  const auto main = requests_.main();
  if (main == wire::Action::join || main == wire::Action::rejoin) requests_.stop();
  has_run_ = true;
  rejoin_.reset();
  pause_ = 0;
  deadline_ = never;
}

Time Membership::forming_interval() const { return forming_polls_in_retries * options_.join_retry; }

void Membership::refused(const Reply& reply, Time now) {
  const wire::Status status = reply.body.status;
  if (!reply.authentic) {
    // Another key, or a switch without the job, which has no key to sign with. Anything else is
    // noise.
    if (status != wire::Status::bad_tag && status != wire::Status::no_such_job) return;
    last_refusal_ = status;
    if (status == wire::Status::bad_tag && ++unproven_refusals_ >= Requests::unproven_believed)
      return fail(text::refusal(options_, status));
    requests_.stop();
  }
  last_refusal_ = status;
  if (reply.authentic && (status == wire::Status::bad_tag || status == wire::Status::bad_value ||
                          status == wire::Status::unsupported)) {
    job_ = reply.body;  // what the job is like may say why
    const bool told = status == wire::Status::unsupported && job_.slots != 0;
    return fail(text::refusal(options_, status, told ? unfit_job(job_, options_) : std::string()));
  }
  if (status == wire::Status::replayed_nonce) requests_.jump_nonces();
  // Joining again, the old place would be best, but somebody else may have it for good.
  if (status == wire::Status::job_full) {
    wanted_ = options_.wanted_member;
    rejoin_.reset();
  }
  pause_ = std::clamp(2 * pause_, options_.join_retry,
                      std::max(options_.ping_interval, options_.join_retry));
  send_join(now + pause_, now);
}

void Membership::fail(Error error) {
  state_ = EngineState::failed;
  error_ = std::move(error);
  deadline_ = never;
  requests_.stop();
}

Error Membership::why_not_yet() const {
  if (state_ == EngineState::forming)
    return {ErrorCode::timed_out, wire::Status::ok, 0,
            text::forming(options_, job_.members_now, job_.members_expected)};
  if (last_refusal_ != wire::Status::ok) return text::refusal(options_, last_refusal_);
  return {ErrorCode::switch_gone, wire::Status::ok, 0, text::no_answer_to_join(options_)};
}

void Membership::tick(Time now) {
  const bool waiting = state_ == EngineState::joining || state_ == EngineState::forming;
  if (!waiting || now < deadline_) return;
  Error why = why_not_yet();
  // Its place is given back, or the job would wait for a member that has given up.
  if (state_ == EngineState::forming) requests_.farewell(member_, now);
  fail(std::move(why));
}

Time Membership::next_deadline() const {
  const bool waiting = state_ == EngineState::joining || state_ == EngineState::forming;
  return waiting ? deadline_ : never;
}

}  // namespace iswitch::agent
