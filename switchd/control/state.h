// What a Control is made of. Its functions are in files by what they deal with:
//   requests.cpp  what members ask             joins.cpp     Join and its rules
//   replies.cpp   what they are answered       slots.cpp     clear, start, halt: the datapath's
//   state announce.cpp  what is passed on to them    notices.cpp   what they are told unasked
//   rejoin.cpp    going on after a restart
//   operator.cpp  the operator's acts          timers.cpp    repetition and eviction
//   child.cpp     what follows from a parent   uplink.h      the link to it
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "switchd/control/control.h"
#include "switchd/control/frames.h"
#include "switchd/control/job.h"
#include "switchd/control/orders.h"
#include "switchd/control/turn.h"
#include "wire/frame.h"

namespace iswitch::control {

/// A new base_round is this much later than every round known.
inline constexpr std::uint32_t base_round_step = 2;

/// Who asks, and what to answer to.
struct Requester {
  wire::ControlHeader header;
  wire::Endpoint endpoint;
  datapath::PortId ingress = 0;
  Place place() const { return place_of(endpoint, ingress); }
};

struct Control::State {
  State(const SwitchConfig& switch_config, const std::vector<JobConfig>& job_configs,
        const Turn& turn);

  SwitchConfig config;
  FrameWriter frames;
  OrderBook orders;
  std::map<JobId, std::unique_ptr<Job>> jobs;
  Counters counters;
  RateLimiter strangers;  ///< notices about jobs that do not exist
  bool closing = false;   ///< leave_all has been called
  std::uint64_t last_instance = 0;
  std::optional<ParentAddress> parent_address;  ///< where there is a parent
  std::uint64_t incarnations = 0;               ///< taken at the parent so far

  // ---- jobs
  Job* find_job(JobId id);
  Job* find_instance(JobId id, std::uint64_t instance);
  /// Puts the job into the table and orders its tables.
  Job& make_job(const JobConfig& job_config, const Turn& turn);
  void install(Job& job, const Turn& turn);
  void installed(Job& job, bool ok, const Turn& turn);
  std::uint32_t first_base_round(const JobConfig& job_config, Time now) const;
  /// An order for `job`; `then` is not run if the job has been removed meanwhile.
  void order(Job& job, OrderBook::What what, const Turn& turn,
             std::function<void(Job&, const Outcome&, const Turn&)> then);
  void order(Job& job, OrderBook::What what, const Turn& turn);

  void on_frame(const datapath::ControlFrame& frame, const Turn& turn);

  // ---- requests (requests.cpp, joins.cpp)
  void on_request(const wire::Packet& packet, datapath::PortId ingress, const Turn& turn);
  /// True: answered before, being done, or refused as a replay; there is nothing more to do.
  bool repeated_or_replayed(Job& job, const Requester& who, const Turn& turn);
  void perform(Job& job, const Requester& who, Bytes body, const Turn& turn);
  void on_join(Job& job, const Requester& who, Bytes body, const Turn& turn);
  void on_rejoin(Job& job, const Requester& who, Bytes body, const Turn& turn);
  void let_in(Job& job, const Requester& who, const wire::JoinBody& join,
              const std::optional<Stream>& stream, const Turn& turn);
  void make_way(Job& job, const Requester& who, MemberId wanted, const Turn& turn);
  void take_seat(Job& job, const MemberTable::Seat& seat, const Member& joiner, const Turn& turn);
  void answer_join(Job& job, const Requester& who, const Turn& turn);
  void on_leave(Job& job, const Requester& who, const Turn& turn);
  void on_reset(Job& job, const Requester& who, std::uint32_t wanted_base, const Turn& turn);
  void on_set_threshold(Job& job, const Requester& who, std::uint16_t wanted, const Turn& turn);
  void on_force(Job& job, const Requester& who, const wire::SlotBody& slot, const Turn& turn);
  void on_help(Job& job, const Requester& who, const wire::SlotBody& slot, const Turn& turn);
  void helped(Job& job, const Requester& who, const wire::SlotBody& slot,
              const Job::HelpInProgress& help, const Outcome& outcome, const Turn& turn);

  void set_threshold(Job& job, std::uint16_t wanted, const Turn& turn,
                     std::function<void(Job&, const Outcome&, const Turn&)> then);
  /// Whether a Force found its sum, now or before.
  static bool forced(const Outcome& outcome);

  // ---- going on after a restart (rejoin.cpp)
  std::uint32_t life_of(std::uint64_t instance) const;
  /// Of a Rejoin: false where it names another life of this switch, and is no repetition.
  static bool knows_life(const Job& job, const Requester& who, Bytes body);
  /// A Rejoin to a job that runs, after which all members have to say what they have.
  static bool calls_all(const Job& job, const Requester& who, const wire::JoinBody& join,
                        const Stream& stream);
  /// All members lose their places; it starts when they have come back.
  void form_again(Job& job, const Turn& turn);
  /// A child's place at its parent is no more.
  void parent_lost(Job& job, const Turn& turn);
  /// Its members are all there: the parent is asked.
  static void open_uplink(Job& job, const Turn& turn);
  /// At a Start: whether the stream goes on, and from which base_round.
  static void decide(Job& job);
  static void take_decision(Job& job);
  /// `missing` in the reply to a Join or Rejoin.
  static std::uint64_t said_of_stream(const Job& job, const Member& member, wire::Action action);
  /// Whoever has an update that is not kept here hands it back.
  void ask_who_has(Job& job, const wire::SlotBody& slot, MemberId asker, const Turn& turn);

  // ---- replies (replies.cpp)
  /// The answer to a request that was done (or refused after it was taken up): remembered, and sent
  /// unless its source has made a newer request meanwhile.
  void answer(Job& job, const Requester& who, wire::Status status, const Turn& turn,
              std::uint64_t missing = 0);
  /// A reply that leaves nothing behind.
  void reply(Job& job, const Requester& who, wire::Status status, std::uint64_t missing,
             const Turn& turn);
  void reply_no_such_job(const Requester& who, const Turn& turn);

  // ---- the datapath's state (slots.cpp)
  /// Does whatever the job's slots need next, or tells that they need nothing.
  void advance(Job& job, const Turn& turn);
  void stop(Job& job, const Turn& turn);
  void start(Job& job, const Turn& turn);
  void started(Job& job, bool halt_may_differ, const Turn& turn);
  void settle(Job& job, const Turn& turn);
  void call_back(Job& job, const Turn& turn);
  void when_settled(Job& job, std::function<void(const Turn&)> then, const Turn& turn);
  /// Clears every slot and takes a new base_round; requests during a clearing are part of it.
  void request_clear(Job& job, const Turn& turn);
  /// The table of members of a running job changes: clear before and start after it.
  void clear_for_new_member(Job& job, const Turn& turn);
  void set_halted(Job& job, bool halted, const Turn& turn,
                  std::function<void(Job&, const Turn&)> then);
  void drop_member(Job& job, datapath::MemberId member, const Turn& turn,
                   std::function<void(Job&, const Turn&)> then);

  /// Nobody is left.
  void disband(Job& job, const Turn& turn);
  /// It forms from the beginning: those that join know nothing of what was.
  static void forget_members(Job& job);

  // ---- a child's (child.cpp)
  std::unique_ptr<Uplink> make_uplink(const JobConfig& job_config, const Turn& turn);
  bool is_from_parent(const wire::Packet& packet, datapath::PortId ingress) const;
  /// Something about the link may have changed: does what follows.
  void link_changed(Job& job, const Turn& turn);
  void on_parent_address(const datapath::Notice& notice, const Turn& turn);
  void on_parent_reply(const wire::Packet& packet, const Turn& turn);
  void on_parent_unasked(Job& job, const wire::Packet& packet, const Turn& turn);
  /// False: no order, but what any client may ask.
  bool on_parent_order(const wire::Packet& packet, const Turn& turn);
  void obey(Job& job, const wire::ControlHeader& header, Bytes body, const Turn& turn);
  void help_parent(Job& job, const wire::ControlHeader& header, const wire::SlotBody& slot,
                   const Turn& turn);
  /// The parent has the job in another life than the running slots are of.
  static bool has_new_run(const Job& job);
  /// Of a running child: asks for a Reset that is due, refuses contributions while the parent is
  /// away.
  void follow_link(Job& job, const Turn& turn);
  /// Of a child whose slots are clear: takes its parent's parameters. True: that takes a while, or
  /// the job is not to be started.
  bool adapt(Job& job, const Turn& turn);
  void reinstall(Job& job, const datapath::JobSpec& spec, const Turn& turn);
  void request_reset(Job& job, const Turn& turn);
  /// Asks the parent, and `then` gets the status that the asker is to be answered with.
  void ask_parent(Job& job, wire::Action action, const wire::SlotBody& slot, const Turn& turn,
                  std::function<void(Job&, wire::Status, const Turn&)> then);
  void help_from_parent(Job& job, const wire::SlotBody& slot, const Turn& turn,
                        std::function<void(Job&, wire::Status, const Turn&)> then);
  /// Halt or Resume, at the root first where this is a child.
  void pass_halt(Job& job, bool halted, const Turn& turn,
                 std::function<void(Job&, wire::Status, const Turn&)> then);
  /// A Force that found its sum waiting goes on to the parent.
  void forced_here(Job& job, const wire::SlotBody& slot, const Outcome& outcome, const Turn& turn,
                   std::function<void(Job&, wire::Status, const Turn&)> then);
  /// The parent may have what is not kept here.
  void gone_here(Job& job, const datapath::Notice& notice, const Turn& turn);
  /// Of an update that is gone: to a child switch such a word is about a push of its own.
  void tell_workers(Job& job, wire::Status status, std::uint64_t missing, const Turn& turn);
  void tell_all(Job& job, wire::Status status, std::uint64_t missing, const Turn& turn);

  // ---- passing on (announce.cpp)
  void announce(Job& job, const Turn& turn);
  void announce_to(Job& job, Member& member, const Turn& turn);
  void on_member_reply(const wire::Packet& packet, datapath::PortId ingress, const Turn& turn);
  void send_outstanding(Job& job, Member& member, const Turn& turn);
  void ask_for_contribution(Job& job, const Member& member, const wire::SlotBody& slot,
                            const Turn& turn);
  void say_leave(Job& job, const Turn& turn);
  /// The switch ends. Without a Leave to the parent: it comes back.
  void end_all(bool leave_parent, const Turn& turn);

  // ---- notices (notices.cpp)
  void on_notice(const datapath::Notice& notice, const Turn& turn);
  void tell_member(Job& job, datapath::MemberId id, wire::Status status, std::uint64_t missing,
                   const Turn& turn);
  /// `job` is null where there is none of the claimed id.
  void tell_stranger(Job* job, const datapath::Notice& notice, const Turn& turn);
  void tell(RateLimiter& limiter, JobId job, const wire::ReplyBody& body, wire::Key key,
            const Destination& to, const Turn& turn);

  // ---- time (timers.cpp)
  void tick(const Turn& turn);
  void evict_silent(Job& job, const Turn& turn);
  Time next_deadline() const;

  // ---- the operator (operator.cpp)
  void add_job(const JobConfig& job_config, OperatorDone done, const Turn& turn);
  void remove_job(JobId id, OperatorDone done, const Turn& turn);
  void operator_threshold(JobId id, std::uint16_t threshold, OperatorDone done, const Turn& turn);
  void operator_force(JobId id, const wire::SlotBody& slot, OperatorDone done, const Turn& turn);
  void operator_reset(JobId id, OperatorDone done, const Turn& turn);
  void operator_halt(JobId id, bool halted, OperatorDone done, const Turn& turn);
  void remove_member(JobId id, MemberId member, OperatorDone done, const Turn& turn);
  void list_slots(JobId id, std::uint32_t limit, OperatorDone done, const Turn& turn);

  /// An act in progress; its callback runs once, whatever becomes of the job.
  struct Act {
    std::uint64_t instance = 0;
    OperatorDone done;
  };
  std::map<std::uint64_t, Act> acts;
  std::uint64_t last_act = 0;
  std::vector<std::pair<OperatorDone, OperatorReply>> finished;

  /// Callbacks run at the end of a call, when everything is in order again: they may call Control.
  void run_finished();
  std::uint64_t begin_act(const Job& job, OperatorDone done);
  void end_act(std::uint64_t act, OperatorReply outcome);
  /// Ends every act on this job, or on all jobs, with an error.
  void fail_acts(std::optional<std::uint64_t> instance, const std::string& error);
  void finish(OperatorDone done, OperatorReply outcome);
  /// The job; where there is none, or all ends, `done` has been told.
  Job* job_for_operator(JobId id, OperatorDone& done);
};

}  // namespace iswitch::control
