// Becoming a member and knowing what job one is a member of (protocol.md section 6, Join).
#pragma once

#include <optional>
#include <string>

#include "agent/engine/engine.h"
#include "agent/engine/requests.h"

namespace iswitch::agent {

class Membership {
 public:
  Membership(const EngineOptions& options, Requests& requests);

  void join(Time now, Time deadline);
  /// Membership was lost: Join again with the id one had, without a deadline, first sent at `at`.
  void rejoin(Time at, Time now);
  /// Membership was lost, but what was done so far need not be (protocol.md section 9): asks by
  /// Rejoin. `body` without its Join part.
  void come_back(const wire::RejoinBody& body, Time at, Time now);
  /// It does so.
  bool coming_back() const { return rejoin_.has_value(); }

  /// The answer to a Join. True when this is a member now (again); see state().
  bool on_join_reply(const Reply& reply, Time now);
  /// What any other authentic reply or request says of the job. The caller compares base rounds
  /// first.
  void adopt(const wire::ReplyBody& body);
  void set_base_round(std::uint32_t base_round) { job_.base_round = base_round; }
  void set_state(EngineState state) { state_ = state; }
  void fail(Error error);

  void tick(Time now);
  Time next_deadline() const;

  EngineState state() const { return state_; }
  /// The switch counts this as a member, whatever the job's state.
  bool joined() const;
  /// It has been told since its Join that the job runs. From then on it asks by Ping alone: a Join
  /// that is repeated could make it a member of the switch's next life unnoticed.
  bool has_run() const { return has_run_; }
  /// How often to ask whether a job that is forming runs.
  Time forming_interval() const;
  wire::MemberId member() const { return member_; }
  const wire::ReplyBody& job() const { return job_; }
  const Error& error() const { return error_; }
  /// Why there is no membership yet, for people.
  Error why_not_yet() const;

 private:
  void send_join(Time at, Time now);
  void start_again(Time at, Time now);
  void refused(const Reply& reply, Time now);

  const EngineOptions& options_;
  Requests& requests_;
  EngineState state_ = EngineState::idle;
  std::optional<wire::RejoinBody> rejoin_;  // instead of Join
  wire::MemberId wanted_ = wire::no_member;
  wire::MemberId member_ = wire::no_member;
  wire::ReplyBody job_;
  Error error_;
  Time deadline_ = never;
  bool has_run_ = false;
  Time pause_ = 0;  // until the next Join after an answer
  wire::Status last_refusal_ = wire::Status::ok;
  unsigned unproven_refusals_ = 0;
};

/// What of a job's description this member cannot work with; empty when it can.
std::string unfit_job(const wire::ReplyBody& job, const EngineOptions& options);

}  // namespace iswitch::agent
