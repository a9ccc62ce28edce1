// The worker library: join a job of an iSwitch and reduce, broadcast and meet through the switch.
//
//   auto agent = iswitch::Agent::join({.switch_address = "10.77.0.254", .job = 1});
//   if (!agent) { std::fprintf(stderr, "%s\n", agent.error().text.c_str()); return 1; }
//   auto handle = (*agent)->all_reduce(gradient, gradient);   // in place
//   if (auto failed = handle.wait()) ...
//
// Results are bit-identical on all ranks of one operation, not across runs (order of arrival).
// Nothing here exits, aborts, blocks without a deadline or writes to stdout. An Agent and its
// handles may be used from several threads; operations must be issued in the same order on every
// rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#ifndef ISWITCH_API
#define ISWITCH_API __attribute__((visibility("default")))
#endif

namespace iswitch {

/// Same values as ISWITCH_ERROR_... in iswitch.h.
enum class AgentErrorCode : std::uint8_t {
  none = 0,
  not_joined = 1,
  refused = 2,
  timed_out = 3,
  job_reset = 4,
  switch_gone = 5,
  halted = 6,
  mismatch = 7,
  gone = 8,
  bad_argument = 9,
  closed = 10,
  system = 11,
  root_missing = 12,
};

/// A failure as a value. True when there is one.
struct AgentError {
  AgentErrorCode code = AgentErrorCode::none;
  std::string text;                    ///< one line: what happened, where, what to do
  std::vector<std::uint16_t> missing;  ///< timed_out: members that had not contributed
  explicit operator bool() const { return code != AgentErrorCode::none; }
};

/// A value or an error.
template <class T>
class Expected {
 public:
  Expected(T value) : state_(std::move(value)) {}
  Expected(AgentError error) : state_(std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const AgentError& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, AgentError> state_;
};

enum class Reduce : std::uint8_t { sum, mean };

struct AgentOptions {
  std::string switch_address{};  ///< IPv4, or IPv4:port
  std::uint16_t job = 1;
  std::optional<std::uint16_t> rank{};  ///< wanted member id; none: any
  std::string local_address{};          ///< IPv4 to bind; empty: what the route gives
  std::uint16_t local_port =
      0;                   ///< 0: any. A fixed one lets a restarted worker take its place at once
  std::string key_file{};  ///< empty: no key. Must not be readable by group or others
  std::chrono::milliseconds join_timeout{30'000};       ///< until the job runs
  std::chrono::milliseconds operation_timeout{30'000};  ///< default deadline of operations
  std::uint32_t window_bytes =
      0;  ///< most gradient bytes in flight; 0: what buffers and slots allow
  bool ecn = false;
  /// false: the caller drives the agent with progress(); true: the library has a thread of its own.
  bool background_thread = true;
};

struct OperationOptions {
  std::optional<std::chrono::milliseconds> timeout{};  ///< none: AgentOptions::operation_timeout
  std::uint32_t tag = 0;  ///< must be equal on all ranks; a mismatch fails the operation
};

/// An operation under way. Copies refer to the same operation. Dropping it does not cancel: the
/// vectors must live until it is done.
class ISWITCH_API Handle {
 public:
  Handle() = default;
  bool done() const;
  /// Waits until it is done; always ends, since every operation has a deadline.
  AgentError wait();
  /// Waits at most `time`; nothing when it is still under way.
  std::optional<AgentError> wait_for(std::chrono::milliseconds time);
  /// Meaningful once done: some segment was completed before its threshold was met.
  bool partial() const;
  /// Meaningful once done: fewest workers in any segment's sum (mean divides by each segment's
  /// own).
  std::uint32_t smallest_workers() const;

  struct State;  ///< the library's own
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

struct AgentStatistics {
  std::uint64_t contributions_sent = 0, retransmissions = 0, results = 0, duplicate_results = 0;
  std::uint64_t gradient_bytes_sent = 0, gradient_bytes_received = 0;
  std::uint64_t operations_done = 0, operations_failed = 0, resets = 0;
  std::uint64_t ecn_marks = 0;                      ///< results that told of congestion
  std::uint64_t send_calls = 0, receive_calls = 0;  ///< system calls
  std::uint32_t window_bytes = 0;
  std::chrono::nanoseconds smoothed_rtt{0}, retransmit_timeout{0};
};

class ISWITCH_API Agent {
 public:
  /// Joins and waits until the job runs, or fails within join_timeout.
  static Expected<std::unique_ptr<Agent>> join(const AgentOptions& options);
  /// Leaves (bounded by a short deadline) unless left already; outstanding operations end with
  /// `closed`.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Elementwise over all members. input.size() == output.size(); the same span or disjoint ones.
  Handle all_reduce(std::span<const float> input, std::span<float> output,
                    Reduce reduce = Reduce::sum, const OperationOptions& options = {});
  /// `data` of rank `root` ends up in everybody's `data`.
  Handle broadcast(std::span<float> data, std::uint16_t root, const OperationOptions& options = {});
  Handle barrier(const OperationOptions& options = {});

  /// Ends the membership; later operations fail with `closed`.
  AgentError leave();

  /// Without a background thread: moves everything that can be moved, waiting at most `wait`.
  void progress(std::chrono::microseconds wait = std::chrono::microseconds{0});

  std::uint16_t rank() const;  ///< this member's id
  std::uint16_t size() const;  ///< members now
  std::uint16_t size_expected() const;
  std::uint16_t threshold() const;  ///< contributions that complete a sum, as the switch last said
  std::uint32_t segment_bytes() const;
  AgentStatistics statistics() const;

 private:
  struct State;
  explicit Agent(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace iswitch
