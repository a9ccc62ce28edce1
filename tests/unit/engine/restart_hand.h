// A switch by hand that restarts (protocol.md section 9).
#pragma once

#include "tests/unit/engine/hand.h"

namespace iswitch::agent {

class RestartHand : public Hand {
 public:
  static EngineOptions resuming(Time within = 10 * second) {
    EngineOptions options = default_options();
    options.resume_within = within;
    return options;
  }
  static wire::ReplyBody job_with(std::uint32_t slots) {
    wire::ReplyBody body = default_job();
    body.slots = slots;
    return body;
  }
  explicit RestartHand(EngineOptions engine_options = resuming(),
                       wire::ReplyBody description = default_job())
      : Hand(std::move(engine_options), description) {}

  wire::ReplyBody stranger() const {
    wire::ReplyBody body = job;
    body.status = wire::Status::not_a_member;
    return body;
  }
  /// The member learns that it has no place; gives what it sent then.
  std::vector<SentDatagram> lose_place() {
    unasked(stranger());
    const auto pings = requests(sent(), wire::Action::ping);
    REQUIRE(!pings.empty());
    reply(pings.back(), stranger());
    return sent();
  }
  static wire::RejoinBody body_of(const SentDatagram& rejoin) {
    const auto body = wire::read_rejoin(rejoin.body());
    REQUIRE(body.has_value());
    return *body;
  }
  /// The Rejoin that is there, or the next.
  SentDatagram next_rejoin(const std::vector<SentDatagram>& all) {
    auto rejoins = requests(all, wire::Action::rejoin);
    if (rejoins.empty()) rejoins = requests(run_for(300 * millisecond), wire::Action::rejoin);
    REQUIRE(!rejoins.empty());
    return rejoins.back();
  }
  /// Tells the life and takes the Rejoin that says it.
  SentDatagram named_rejoin(const std::vector<SentDatagram>& all, std::uint32_t life = 77) {
    const SentDatagram first = next_rejoin(all);
    wire::ReplyBody body = job;
    body.state = wire::JobState::forming;
    body.missing = wire::encode_life(life);
    reply(first, body);
    const SentDatagram again = next_rejoin(sent());
    CHECK(body_of(again).life == life);
    CHECK(again.header.set > first.header.set);
    CHECK(body_of(again).join.incarnation == body_of(first).join.incarnation);
    return again;
  }
  /// It is in, the job forms; gives the Rejoin that asks again.
  SentDatagram form(const SentDatagram& rejoin) {
    wire::ReplyBody body = job;
    body.state = wire::JobState::forming;
    body.members_now = 3;
    reply(rejoin, body);
    CHECK(engine.state() == EngineState::forming);
    return next_rejoin({});
  }
  void answer_rejoin(const SentDatagram& rejoin, std::uint32_t base_round,
                     const wire::Resumed& resumed) {
    job.base_round = base_round;
    wire::ReplyBody body = job;
    body.missing = wire::encode_resumed(resumed);
    reply(rejoin, body);
  }
  void go_on(const SentDatagram& rejoin, std::uint32_t base_round, std::uint32_t first,
             std::uint32_t end) {
    answer_rejoin(rejoin, base_round, {wire::Resumed::Fresh::none, first, end - first, {}});
    CHECK(engine.state() == EngineState::running);
  }
  /// What was handed back goes to all.
  void take_back(const SentDatagram& result) { receive(result.bytes); }
};

}  // namespace iswitch::agent
