// The engine's parts and how events pass between them.
//
// An *epoch* is the life of one stream: from base_round at position 0 until the job is reset, the
// membership is lost, or an operation fails on this member. However it ends, the member is told
// once: by everything outstanding failing together or, when nothing was outstanding, by the next
// operation failing. What is submitted after that waits for the next epoch and opens it. So the
// first operation of an epoch is, on every member, the first one issued after that member was told.
//
// A switch that restarts ends no epoch (protocol.md section 9), as long as it is back within
// EngineOptions::resume_within. Until it tells that the job runs again this member is *away*:
// operations wait, nothing is sent of them, no result is taken. Then results that others may lack
// are handed back, and after that the stream goes on where it was.
#pragma once

#include <optional>
#include <string>

#include "agent/engine/asynchronous.h"
#include "agent/engine/engine.h"
#include "agent/engine/hand_back.h"
#include "agent/engine/kept.h"
#include "agent/engine/membership.h"
#include "agent/engine/operations.h"
#include "agent/engine/requests.h"
#include "agent/engine/stream.h"

namespace iswitch::agent {

struct Engine::State {
  explicit State(EngineOptions engine_options)
      : options(std::move(engine_options)),
        requests(options, statistics),
        membership(options, requests),
        operations(statistics),
        stream(options, operations, statistics),
        hand_back(options, kept, statistics),
        last_ping(options.start_time),
        now(options.start_time) {
    if (options.mode == wire::Mode::async) async.emplace(options, operations, statistics);
  }

  // receive.cpp: what a datagram means
  void on_result(const wire::Message& message, wire::Ecn ecn);
  void on_request(const wire::Message& message, Bytes datagram);
  void on_reply(const wire::Message& message, Bytes datagram);
  void on_main_reply(const Reply& reply);
  void on_help_reply(const Reply& reply);
  void note_parent(const Reply& reply);
  /// `asked_at`: when the request that it answers was sent; long ago for what nobody asked for.
  void on_job_state(const wire::ReplyBody& body, Time asked_at);
  void follow_job_state();
  void on_base_round(std::uint32_t base_round);
  /// Status 7 or 11: the operation that covers the segment fails.
  void on_refused_segment(const wire::ReplyBody& body);

  // epoch.cpp: beginnings and ends of epochs
  void begin_epoch_if_possible();
  /// Everything outstanding fails with `error`; when nothing is, the next operation will.
  void end_epoch(const Error& error);
  /// `culprit` fails with `error` and all others with it: this member can no longer contribute to
  /// them. What is outstanding on other members needs a Reset, which is asked for after a grace.
  void break_epoch(OperationId culprit, const Error& error);
  /// Another one, as random as the first.
  void renew_incarnation();
  /// The membership has failed for good.
  void stop_everything();
  void lose_membership();
  void switch_leaves();
  void ask_for_reset();
  std::string missing_so_far() const;
  Error reset_error(std::uint32_t before, std::uint32_t after) const;

  // restart.cpp: the switch has restarted
  /// What this member has can be handed back, so the loss of its place need not end anything.
  bool can_come_back() const;
  /// Asks for its place again by Rejoin, first at `at`.
  void go_away(Time at);
  wire::RejoinBody what_is_here() const;
  /// Until it can say again what it has; nothing is under way any more.
  void forget_way_back();
  void on_return_reply(const Reply& reply);
  void on_ping_while_away(const Reply& reply);
  void go_on(const wire::Resumed& resumed);
  /// True when the stream can go on between these two positions.
  bool go_on_in_stream(const wire::Resumed& resumed);
  void go_on_with_updates();
  void begin_afresh(const std::string& why, std::optional<std::uint32_t> origin);
  std::string why_afresh(const Reply& reply, const wire::Resumed& resumed) const;
  void hand_back_answered();
  /// resume_within is over.
  void give_up_coming_back();
  void ping_while_away();

  // lateness.cpp: who is missing, and operations that do not end in time
  Time inquiry_due() const;
  void inquire();
  Error overdue_error(const Operation& operation) const;
  /// Why nothing can end at all just now: no switch, no job.
  std::optional<Error> standstill(const std::string& what) const;
  bool switch_silent() const;
  void end_overdue();

  // asynchronous.cpp: an asynchronous job has no epochs but *places*: from a Join until the place
  // is lost or given up. Errors end pushes; an event ends the delivery of updates.
  void follow_async();
  void on_update(const wire::Message& message, bool marked_here);
  /// This member's weights do not follow from the updates any more.
  void need_weights(EventKind kind, const Error& error);
  /// Every slot begins again.
  void restart_updates(const Error& error, std::optional<std::uint32_t> origin = {});
  void begin_updates(std::optional<std::uint32_t> origin);
  /// An update that is needed is not kept any more.
  void fall_behind(std::uint32_t segment, std::uint32_t number);
  /// All pushes fail, and this member joins again, at `at`, so that late copies of what it sent
  /// mean nothing.
  void take_new_place(const Error& error, Time at);
  /// A result came that its switch calls settled: what was handed back of the slot is answered.
  void note_settled(std::uint32_t segment, std::uint32_t round, bool marked);
  /// The weights have updates of the segment, from a peer, that are lost: others will get other
  /// ones under these numbers.
  void give_up_lost_updates(std::uint32_t segment);
  void advance_settling(std::uint32_t segment);
  /// Nobody has an update that this member lacks.
  void notice_lost_updates();
  Time lost_updates_due() const;
  /// The result is new here, and may have a push of this member in it.
  void acknowledge_push(const wire::Header& header, bool marked);
  void take_result(const wire::Message& message, bool marked_here);
  void on_async_help_reply(const Reply& reply);
  void ask_for_updates();
  Time asking_due() const;
  Error resume_updates(const UpdateNumbers& numbers);
  Error overdue_push(const Operation& operation) const;
  /// This member sends contributions, or would, were it not for the job's state.
  bool begun() const {
    return async ? async->phase != Asynchronous::Phase::unbegun : stream.active();
  }

  void keep_alive();
  Time ping_due() const;
  /// The membership has ended, as leave() wanted.
  void has_left();
  Error unready() const;

  EngineOptions options;
  Statistics statistics;
  Requests requests;
  Membership membership;
  Operations operations;
  Stream stream;
  std::optional<Asynchronous> async;  ///< instead of the stream
  KeptResults kept;
  HandBack hand_back;

  /// An operation failed here: nothing is sent before a newer base round.
  bool broken = false;
  Time reset_at = never;        ///< broken: when to ask for a Reset (again)
  std::optional<Error> report;  ///< an epoch ended while nothing was outstanding
  bool leaving = false;
  Time leave_deadline = never;
  Time base_known_at = 0;       ///< when the present base round was learned
  bool parent_missing = false;  ///< the switch said that its parent does not run the job
  bool confirming = false;      ///< somebody says that this is no member: a Ping will tell
  Time ping_at = 0;             ///< confirming: when to Ping (again)

  struct {
    bool yes = false;
    Time since = 0;
    Time until = never;
    unsigned pinged = 0;     ///< how often the Rejoin had been sent at the last Ping
    unsigned deaf = 0;       ///< such Pings in a row that were answered by 2, and the Rejoin not
    unsigned strangers = 0;  ///< Rejoins in a row answered by 2
    bool unknown = false;    ///< the switch answers, but no Rejoin
  } away;

  /// Help about the oldest outstanding segment.
  struct {
    bool asked = false;
    bool answered = false;
    std::uint64_t position = 0;
    wire::MemberMask missing = 0;
    Time last = INT64_MIN / 2;
    Time next = 0;
    Time interval = 0;
  } inquiry;

  std::uint64_t incarnations = 0;  ///< of this member so far
  Time last_ping;
  Time now;  ///< of the latest call
};

}  // namespace iswitch::agent
