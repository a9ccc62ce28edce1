// The worker library: join a job of an iSwitch and reduce, broadcast and meet through the switch.
//
//   auto agent = iswitch::Agent::join({.switch_address = "10.77.0.254", .job = 1});
//   if (!agent) { std::fprintf(stderr, "%s\n", agent.error().text.c_str()); return 1; }
//   auto handle = (*agent)->all_reduce(gradient, gradient);   // in place
//   if (auto failed = handle.wait()) ...
//
// In an asynchronous job (AgentOptions::async_elements) workers do not wait for each other: they
// push gradients and take updates, see Agent::push() and Agent::next(); AsyncTrainer
// (iswitch/async_trainer.h) makes a training loop of it.
//
// A switch that restarts, or a standby that takes its address over, costs time and nothing else:
// operations under way wait and go on (AgentOptions::resume_within).
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
  in_doubt = 13,
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

/// AgentOptions::member: the switch chooses.
inline constexpr std::uint16_t any_member = 0xFFFF;

struct AgentOptions {
  std::string switch_address{};  ///< IPv4, or IPv4:port
  std::uint16_t job = 1;
  /// This worker's number in the whole job, which a broadcast's root refers to. None: its member
  /// id.
  std::optional<std::uint16_t> rank{};
  /// Wanted member id at the switch; none: the rank, which is right where one switch has the whole
  /// job. Behind a leaf of several: any_member, or a number that counts the leaf's members.
  std::optional<std::uint16_t> member{};
  std::string local_address{};  ///< IPv4 to bind; empty: what the route gives
  std::uint16_t local_port =
      0;                   ///< 0: any. A fixed one lets a restarted worker take its place at once
  std::string key_file{};  ///< empty: no key. Must not be readable by group or others
  std::chrono::milliseconds join_timeout{30'000};       ///< until the job runs
  std::chrono::milliseconds operation_timeout{30'000};  ///< default deadline of operations
  /// For so long after the switch has lost this member's place or has said that it goes, operations
  /// wait, each at most until its own deadline, for the switch (or a standby with its address) to
  /// come back, and go on then as if nothing had been: exact sums, the same bits everywhere. The
  /// library keeps for that what it has received last: slots x segment_bytes of the job
  /// (asynchronous: history x the vector). 0: they fail at once, and nothing is kept.
  std::chrono::milliseconds resume_within{10'000};
  std::uint32_t window_bytes =
      0;  ///< most gradient bytes in flight; 0: what buffers and slots allow
  bool ecn = false;
  /// Above 0: the job is asynchronous, and this the length of its vector, in floats; the same on
  /// all members and at most the job's slots x segment_bytes / 4.
  std::size_t async_elements = 0;
  /// false: the caller drives the agent with progress(); true: the library has a thread of its own.
  bool background_thread = true;
  /// Empty: kernel UDP. Else a DPDK device that this process takes for itself, by which no kernel
  /// is on the way: "net_memif0,socket=/run/iswitch/memif.sock,id=2" to a switchd on this host, a
  /// PCI address, or any other device string. Needs local_address, an IPv4 of the switch's network
  /// that nobody else has, and libiswitch-agent-dpdk.so. While operations are under way, whoever
  /// waits for them polls the device and uses a core.
  std::string device{};
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

/// One update of an asynchronous job: the sum of some workers' pushes in one segment of the vector.
/// All members get the same updates of a segment in the same order, numbered without gaps; segments
/// may be a few updates apart for a moment.
struct SliceUpdate {
  std::uint32_t segment = 0;
  std::size_t first = 0;      ///< element of the vector that values[0] belongs to
  std::uint32_t number = 0;   ///< of this segment; wraps at 32 bits
  std::uint16_t workers = 0;  /// contributions in the sum, at least 1: divide by it for the mean
  bool partial = false;       ///< forced before the threshold was met
  std::vector<float> values;
};

/// Which updates some weights contain: the number of the last one, segment by segment.
struct UpdateNumbers {
  /// Numbers count from here. A Reset changes it, a switch that restarts does not: for the user
  /// numbers go on.
  std::uint32_t base_round = 0;
  std::vector<std::uint32_t> last;  ///< one a segment; base_round where there was none
};

enum class MemberEventKind : std::uint8_t {
  joined = 0,  ///< the job was at work already when this member joined
  gone = 1,    ///< an update was missed that the switch no longer keeps
  reset = 2    ///< the job was reset: all members take the weights of one of them
};
/// This member's weights do not follow from the updates any more. Take weights and their numbers
/// from a peer (for reset: all from the same one, which keeps its own) and resume() with them.
struct MemberEvent {
  MemberEventKind kind = MemberEventKind::joined;
  std::uint32_t base_round = 0;  ///< that resume() wants
  /// joined: no update has been made since base_round. Where all members start from the same
  /// weights and the job has not been reset, resume(numbers()) will do.
  bool untouched = false;
  std::string text;  ///< one line: what happened, what to do
};

/// What next() found.
enum class Arrived : std::uint8_t { nothing, update, event };

struct AgentStatistics {
  std::uint64_t contributions_sent = 0, retransmissions = 0, results = 0, duplicate_results = 0;
  std::uint64_t gradient_bytes_sent = 0, gradient_bytes_received = 0;
  std::uint64_t operations_done = 0, operations_failed = 0, resets = 0;
  std::uint64_t resumes = 0;  ///< how often the job went on after its switch had restarted
  /// Asynchronous: updates taken, and asked for again since they were missed.
  std::uint64_t updates = 0, helps = 0;
  std::uint64_t ecn_marks = 0;                      ///< results that told of congestion
  std::uint64_t send_calls = 0, receive_calls = 0;  ///< of the kernel, or of the device
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
  /// `data` of the worker with this rank ends up in everybody's `data`.
  Handle broadcast(std::span<float> data, std::uint16_t root, const OperationOptions& options = {});
  Handle barrier(const OperationOptions& options = {});

  // Asynchronous jobs only.

  /// Contributes a gradient of async_elements floats, which must live until the handle is done:
  /// when all of it has become part of updates. Several may be under way. A push that fails (at its
  /// deadline, or since this member fell behind) may have been summed in part, each part once.
  Handle push(std::span<const float> gradient, const OperationOptions& options = {});
  /// The pushes under way fail (timed_out) and nothing of them is sent any more: for the end of a
  /// training, when nobody pushes what would complete them. Parts of them may be summed yet.
  void give_up_pushes();
  /// Waits at most `time` for the next update, filled into `update` (whose memory is used again),
  /// or event. Each update comes once, in order of its segment's numbers. After an event no update
  /// comes, and pushes fail, until resume(). Updates must be taken steadily: the switch keeps the
  /// last few (its job's history), and who is further behind gets an event. An error when the
  /// membership is over.
  Expected<Arrived> next(SliceUpdate& update, MemberEvent& event, std::chrono::milliseconds time);
  /// Between an event and resume(), even before next() has told it.
  bool needs_weights() const;
  /// The numbers of the updates taken; between an event and resume() base_round for all, which is
  /// right for weights from which all members begin.
  UpdateNumbers numbers() const;
  /// The member's weights contain these updates; newer ones are delivered from now on. Without an
  /// event too, if they are no older than what was taken. An error when they are of another base
  /// round (job_reset: take weights again), of another vector, or lack the update that is gone as
  /// well (gone: take another worker's; where all lack it, request_reset()).
  AgentError resume(const UpdateNumbers& numbers);
  /// Asks for a Reset of the job, synchronous or not: what is under way fails at all members with
  /// job_reset, and they begin again together. Returns at once; the request is repeated until the
  /// switch has answered.
  void request_reset();

  /// Ends the membership; later operations fail with `closed`.
  AgentError leave();

  /// Without a background thread: moves everything that can be moved, waiting at most `wait`.
  void progress(std::chrono::microseconds wait = std::chrono::microseconds{0});

  std::uint16_t rank() const;    ///< AgentOptions::rank, or the member id
  std::uint16_t member() const;  ///< this member's id at its switch
  std::uint16_t size() const;    ///< members now, of this switch
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
