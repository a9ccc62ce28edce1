// What an Agent is made of: the engine, a transport and who drives them.
//
// One mutex guards all of it; nobody holds it while waiting. Whoever drives (waits for packets
// and timers, then moves packets through the engine) holds the *token*, `driving_`; there is
// never more than one. Kernel UDP is waited for in the kernel; a transport that polls is
// asked again and again while something is expected, as patience.h says.
// Candidates are the agent's own thread and callers inside wait(), progress() or leave().
// Submitting sends the first datagrams at once, on the caller's thread.
//
// A caller that waits takes the token when it is free, and the thread gives it up to a waiting
// caller after its next turn: so a loop of small operations costs no switch between threads. The
// thread stays out for a while after a caller has driven (`lease`), unless operations are left to
// nobody.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>

#include "agent/engine/engine.h"
#include "agent/patience.h"
#include "agent/transport/clock.h"
#include "agent/transport/transport.h"
#include "iswitch/agent.h"

namespace iswitch {

namespace agent {
class Core;
}

/// One operation. The driver writes the outcome, then `done`; afterwards it is read-only.
struct Handle::State {
  std::shared_ptr<agent::Core> core;  ///< null for one that failed before it began
  std::atomic<bool> done{false};
  AgentError error;
  bool partial = false;
  std::uint32_t smallest_workers = 0;
  Time submitted_at = 0;  ///< when submit() was through; read by waiters only
};

namespace agent {

/// `now + timeout`, at most `never`; a negative timeout is none.
Time deadline_after(Time now, std::chrono::milliseconds timeout);
AgentError to_agent_error(const Error& error);
AgentError make_error(AgentErrorCode code, std::string text);

/// The membership as people ask for it.
struct Membership {
  std::uint16_t rank = 0;
  wire::MemberId member = wire::no_member;
  std::uint16_t members_now = 0;
  std::uint16_t members_expected = 0;
  std::uint16_t threshold = 0;
  std::uint32_t segment_bytes = 0;
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  /// Opens the socket and joins; returns when the job runs.
  static std::variant<std::shared_ptr<Core>, AgentError> join(const AgentOptions& options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  std::shared_ptr<Handle::State> submit(Request request, const OperationOptions& options);
  std::shared_ptr<Handle::State> push(std::span<const float> gradient,
                                      const OperationOptions& options);
  void give_up_pushes();
  void request_reset();
  Expected<Arrived> next(SliceUpdate& update, MemberEvent& event, Time until);
  bool needs_weights();
  iswitch::UpdateNumbers numbers();
  AgentError resume(const iswitch::UpdateNumbers& numbers);
  /// Until the operation is done or `until`; false when it is not done.
  bool wait(const Handle::State& operation, Time until);
  void progress(Time until);
  /// Leaves, waiting at most `grace` for the answer, and stops for good. The first call counts;
  /// others wait for it.
  AgentError close(Time grace);

  /// This process is a child of the one that joined; nothing but this may be asked.
  bool inherited() const;
  AgentError inherited_error() const;

  Membership membership();
  AgentStatistics statistics();

 private:
  using Lock = std::unique_lock<std::mutex>;

  explicit Core(const AgentOptions& options);
  /// Address, key, transport and engine.
  AgentError open(const AgentOptions& options);
  AgentError open_transport(const AgentOptions& options);
  AgentError drive_join(std::chrono::milliseconds timeout);
  void fit_window();
  /// Empty when the thread runs, else why not.
  std::string start_thread();

  /// `issue(now, deadline)` hands an operation to the engine and gives its id.
  template <class Issue>
  std::shared_ptr<Handle::State> begin(const OperationOptions& options, Issue&& issue);
  /// Drives, or waits while somebody else does, until `done()` or `until`; at least one turn.
  template <class Done>
  void drive(Lock& lock, Time until, Done&& done);
  /// Nobody's operations are left to nobody; updates come at any time.
  bool needs_driver() const { return asynchronous_ || !operations_.empty(); }

  Lock enter();
  void run();
  void poll_and_pump(Lock& lock, Time until);
  /// What came of waiting, without the lock.
  struct Woken {
    bool readable = true;
    bool lost = false;  ///< somebody else closed our descriptor
  };
  Woken wait_for_descriptor(Time now, Time wake, bool writable) const;
  /// How long a transport that polls is left alone; 0: not at all.
  Time rest(Time now);
  void pump(bool readable);
  void transmit(Time now);
  void finish_operations();
  void lose_socket();
  void take_token();
  void give_token(bool caller);
  void hand_over();
  void wait_for_change(Lock& lock, Time until);
  void kick() const;
  bool callers_at_work(Time now) const;

  std::string name_;  ///< "job 1 at switch 10.0.0.1:17170", for texts; set by open_transport()
  const std::chrono::milliseconds default_timeout_;
  const std::uint32_t wanted_window_bytes_;
  const std::optional<std::uint16_t> rank_;
  const bool asynchronous_;
  const std::uint32_t generation_;  ///< of the process that joined

  // `gate_` is held while waiting for `mutex_`, so that the driver, which takes it again and again,
  // cannot starve the others.
  std::mutex gate_;
  std::mutex mutex_;
  // Guarded by mutex_ from here on.
  std::condition_variable changed_;      // something is done, or the token is free
  std::condition_variable thread_wake_;  // the thread should look who drives
  bool driving_ = false;
  Time poll_until_ = never;  // while somebody polls
  bool polls_writable_ = false;
  unsigned waiters_ = 0;
  Time leased_until_ = 0;  // callers drive, the thread stays out
  Time last_submit_at_ = 0;
  unsigned prompt_waits_ = 0;  // operations in a row that were waited for as soon as submitted
  bool closing_ = false;
  bool closed_ = false;
  bool stopping_ = false;
  bool socket_lost_ = false;  // somebody else closed our descriptor
  AgentError close_error_;
  std::unique_ptr<Transport> transport_;  // none once closed
  Transport::Counts final_counts_;
  bool polls_ = false;  // the transport does
  Patience patience_;   // for it
  Time lively_at_ = 0;  // something came or was submitted
  std::optional<Engine> engine_;
  std::unordered_map<OperationId, std::shared_ptr<Handle::State>> operations_;
  std::vector<Outgoing> outgoing_;

  int event_fd_ = -1;  // wakes the one that polls
  std::thread thread_;
};

}  // namespace agent
}  // namespace iswitch
