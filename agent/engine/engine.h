// The worker's side of protocol.md as a state machine: received datagrams and time go in, datagrams
// to send and the next deadline come out. Pure: no socket, clock, thread or log.
//
// The driver's loop:  receive() for what has come; submit() for what the user wants; tick(now);
// transmit() until it gives nothing; take_completion() until it gives nothing; sleep until
// next_deadline() or the next datagram.
//
// What a failure means. All members must agree on which operation a position of the stream belongs
// to, or different tensors would be added. So a stream lives for one *epoch*: from a base round
// until the job is reset, the membership is lost, or an operation fails on this member (deadline
// passed, mismatch, gone). Then
//  - everything outstanding fails together: the culprit with its own error, the rest with
//  job_reset.
//    From then on the engine neither reads nor writes the vectors of those operations. Vectors of
//    failed operations hold some segments' results and otherwise what they held before;
//  - if it was an operation that failed, the switch is asked for a Reset a little later (100 ms and
//    more: other members that wait for the same one reach their own deadlines first), since what
//    this member has sent cannot be taken back, and what it has not sent others would wait for;
//  - if nothing was outstanding, the next operation submitted fails with the reason instead, so
//  that
//    each member is told exactly once per epoch. Operations submitted before the failed completions
//    have been taken fail as well: their user could not know;
//  - operations submitted after that wait, within their deadlines, and open the next epoch.
// Members may disagree on which operations of an epoch completed. What is safe is to begin each
// epoch by agreeing again: the first operation after a failure is the first of the epoch on every
// member. root_missing is the exception: every member has the same result, so only that operation
// fails.
//
// A switch that restarts is no failure, as long as it is back within EngineOptions::resume_within
// and the others come back too (protocol.md section 9): operations wait, results that somebody else
// lacks are handed back, and all goes on where it was. Where it cannot, the epoch ends with an
// error that says why.
//
// Asynchronous jobs (EngineOptions::mode) have pushes and updates instead. A push that fails fails
// alone; updates go on. Whenever this member's weights no longer follow from the updates it gets
// (it fell behind what the switch keeps, the job was reset, it joined a job at work) all pushes
// fail, an Event tells so, and nothing is sent or delivered until resume().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wire/control.h"
#include "wire/frame.h"
#include "wire/units.h"

namespace iswitch::agent {

/// Why an operation or a join failed. Values are those of iswitch.h.
enum class ErrorCode : std::uint8_t {
  none = 0,
  not_joined = 1,   ///< no membership (yet, or given up)
  refused = 2,      ///< the switch refused the Join; `status` says why
  timed_out = 3,    ///< deadline passed; `missing` names members when the switch could tell
  job_reset = 4,    ///< the job was reset (a member joined, an operator, a restarted switch)
  switch_gone = 5,  ///< the switch said Leave, or does not answer
  halted = 6,       ///< the job is halted and the deadline passed
  mismatch = 7,     ///< ranks disagree on the operation
  gone = 8,         ///< the result is no longer kept: this member fell too far behind
  bad_argument = 9,
  closed = 10,        ///< the agent has left or was destroyed, or was inherited through fork()
  system = 11,        ///< the machine refused something (socket, memory); the text says what
  root_missing = 12,  ///< a forced broadcast lacks the root's data
  in_doubt = 13,      ///< whether a push is in the sums got lost with a switch that restarted
};
const char* error_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::none;
  wire::Status status = wire::Status::ok;
  wire::MemberMask missing = 0;  ///< timed_out: members not in the sum, as the switch last told
  std::string text;              ///< one line: what happened, where, what to do
  explicit operator bool() const { return code != ErrorCode::none; }
};

struct EngineOptions {
  wire::JobId job = 1;
  wire::MemberId wanted_member = wire::no_member;
  /// This worker's number in the whole job, which may span several switches: what a broadcast's
  /// root is compared with. None: the member id.
  std::optional<std::uint32_t> rank;
  wire::Mode mode = wire::Mode::sync;
  /// Asynchronous: length of the vector that is pushed, in floats; the same on all members. At most
  /// slots x segment_bytes / 4.
  std::uint64_t elements = 0;
  std::uint32_t max_segment_bytes = wire::max_segment_bytes;  ///< what the transport can carry
  /// Random at each start. An asynchronous member derives further ones from it whenever it has to
  /// join again.
  std::uint32_t incarnation = 0;
  std::vector<std::uint8_t> key;
  wire::Ipv4 own_ip;  ///< as the switch sees it (tags cover it)
  std::uint16_t own_port = 0;
  wire::Ipv4 switch_ip;  ///< tags of the switch's own requests cover these
  std::uint16_t switch_port = wire::default_udp_port;
  std::uint64_t start_unix_microseconds = 0;  ///< nonces start here and grow
  Time start_time = 0;
  /// Datagrams of a full segment that the receive buffer holds; the window never exceeds it.
  std::uint32_t receive_datagrams = 64;
  /// For so long after the switch has lost this member's place or has gone, operations wait for it
  /// to come back, and go on then as if nothing had been (protocol.md section 9). 0: they fail at
  /// once, and nothing is kept for that.
  Time resume_within = 10 * second;
  bool ecn = false;                                           ///< send contributions as ECT(0)
  std::uint8_t data_tos = wire::FrameRules{}.data_tos;        ///< DSCP; ECN bits zero
  std::uint8_t control_tos = wire::FrameRules{}.control_tos;  ///< DSCP; ECN bits zero
  Time ping_interval = second;
  Time join_retry = 20 * millisecond;  ///< first; doubles up to ping_interval
  Time min_retransmit = 2 * millisecond;
  Time max_retransmit = 500 * millisecond;
};

enum class Reduction : std::uint8_t { sum, mean };

using OperationId = std::uint64_t;

/// What a user asks for. Spans stay valid until the completion has been taken. `input` and `output`
/// may be the same span, but not overlap otherwise; any length, any alignment of float.
struct Request {
  wire::OperationKind kind = wire::OperationKind::sum;
  Reduction reduction = Reduction::sum;
  std::span<const float> input;  ///< sum; broadcast at the root
  std::span<float> output;       ///< sum; broadcast: the vector, at every rank
  std::uint32_t root = 0;        ///< broadcast: the rank that gives the data
  std::uint32_t user_tag = 0;
  Time deadline = never;
};

/// How an operation ended. A push is done once the switch has summed all of it.
struct Completion {
  OperationId id = 0;
  Error error;
  bool partial = false;                ///< some segment was forced before its threshold
  std::uint32_t smallest_workers = 0;  ///< fewest workers in any segment's sum; 0 without segments
};

/// An update of an asynchronous job: the sum of some members' pushes in one segment of the vector.
/// All members get the same updates of a segment in the same order; segments of one vector may
/// differ by a few updates for a moment.
struct Update {
  std::uint32_t segment = 0;
  std::uint64_t first = 0;        ///< the segment's first element in the vector
  std::uint32_t number = 0;       ///< of this segment; grows by one, wraps at 32 bits
  std::uint16_t workers = 0;      ///< contributions in it; at least 1
  bool partial = false;           ///< forced before the threshold was met
  std::span<const float> values;  ///< valid until the next take_update(), resume() or receive()
};

/// Which updates some weights contain: the number of the last one, segment by segment.
struct UpdateNumbers {
  std::uint32_t base_round = 0;     ///< numbers count from here; a Reset changes it
  std::vector<std::uint32_t> last;  ///< one a segment; base_round where there was none
};

/// Why an asynchronous member needs weights, and the numbers of the updates in them, from a peer.
enum class EventKind : std::uint8_t {
  joined,  ///< the job was at work already when this member joined
  gone,    ///< an update was missed that the switch no longer keeps
  reset,   ///< the job was reset: all take the weights of one of them
};
struct Event {
  EventKind kind = EventKind::joined;
  std::uint32_t base_round = 0;  ///< that resume() wants
  /// joined: no update has been made since base_round, as far as the switch told. Where all members
  /// start from the same weights and the job has not been reset, resume(numbers()) will do.
  bool untouched = false;
  std::string text;  ///< one line: what happened, what to do
};

/// One datagram to send: `head` then `payload`, to the switch's port base + shard, with this ToS.
struct Outgoing {
  std::array<std::uint8_t, wire::max_control_bytes> head{};
  std::uint16_t head_size = 0;
  std::uint16_t shard = 0;
  std::uint8_t tos = 0;
  Bytes payload;  ///< points into the user's vector; valid until the next call of receive() or
                  ///< submit()
};

enum class EngineState : std::uint8_t { idle, joining, forming, running, halted, left, failed };

/// For people and tests; all counts since the engine was made.
/// contributions_sent includes the retransmissions; gradient_bytes_sent counts payload sent for the
/// first time and gradient_bytes_received that of first copies of results.
struct Statistics {
  std::uint64_t contributions_sent = 0, retransmissions = 0, results = 0, duplicate_results = 0;
  std::uint64_t gradient_bytes_sent = 0, gradient_bytes_received = 0;
  std::uint64_t ecn_marks = 0, partial_results = 0, malformed = 0, ignored = 0;
  std::uint64_t control_sent = 0, control_received = 0, resets = 0, timeouts = 0;
  std::uint64_t operations_done = 0, operations_failed = 0;
  /// How often the job went on after its switch had restarted; results sent back for others then.
  std::uint64_t resumes = 0, handed_back = 0;
  /// Asynchronous: taken by the user; asked for again (Help); results dropped since the user does
  /// not take what is there.
  std::uint64_t updates = 0, helps = 0, updates_refused = 0;
  std::uint32_t window_bytes = 0, in_flight_bytes = 0;
  Time smoothed_rtt = 0, retransmit_timeout = 0;
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  /// Starts joining; the outcome shows in state() and join_error(): running, or failed at
  /// `deadline` or when the switch refuses for good. A membership that is lost later is sought
  /// again without a deadline, under the same id.
  void join(Time now, Time deadline);
  /// Sends Leave until answered or until `deadline`, then state() is left; operations in flight
  /// fail with closed at once.
  void leave(Time now, Time deadline);

  /// What the receive buffer holds, once the job's segment size is known
  /// (EngineOptions::receive_datagrams is the estimate until then). The window never exceeds it.
  /// Call it before the first operation; later it counts from the next epoch on.
  void limit_receive_datagrams(std::uint32_t datagrams);
  /// Has the pages of what is kept of results now rather than when results come: for who has a
  /// moment, as after joining.
  void use_pages();

  /// A UDP payload that came from the switch's address and a port in [base, base + shards).
  void receive(Bytes datagram, wire::Ecn ecn, Time now);
  /// Fills at most out.size() datagrams that may go now; gives how many.
  std::size_t transmit(std::span<Outgoing> out, Time now);
  void tick(Time now);
  /// When tick() or transmit() has something to do without further input; `never` if it has not.
  Time next_deadline() const;

  /// Operations go in the same order on all members. Errors come as completions. An operation may
  /// be submitted from join() on; it waits for the job to run. One of 0 elements is complete at
  /// once.
  OperationId submit(const Request& request, Time now);
  std::optional<Completion> take_completion();

  // Asynchronous jobs only.

  /// Contributes `gradient`, which stays valid until the completion has been taken. Several may be
  /// under way; each segment of one goes as soon as that of the one before is acknowledged.
  OperationId push(std::span<const float> gradient, Time deadline, Time now);
  /// All pushes under way fail (timed_out) and nothing of them is sent any more. Parts of them may
  /// have been summed, or be summed yet.
  void give_up_pushes(Time now);
  /// The next update there is, each once and in order of its segment's numbers. Updates that are
  /// not taken are kept, twice as many a segment as the switch keeps; then they are asked for again
  /// once there is room.
  std::optional<Update> take_update();
  /// take_update() or take_event() has something.
  bool has_news() const;
  /// The latest event. One that is overtaken by another is not told any more.
  std::optional<Event> take_event();
  /// Between an event and resume(): nothing is delivered, and a push fails.
  bool needs_weights() const;
  /// The numbers of the updates taken. Between an event and resume() those of a job in which
  /// nothing has happened since base_round: right for weights that all members start from.
  UpdateNumbers numbers() const;
  /// From now on updates newer than `numbers` are delivered. Also without an event, as long as
  /// `numbers` are not older than what was taken. An error and no effect when they belong to
  /// another base round or vector.
  Error resume(const UpdateNumbers& numbers, Time now);

  /// Fails everything outstanding with `error` (the driver is going away).
  void abandon(const Error& error);

  // Operator-like requests that members may make; fire and forget, repeated until answered.
  void request_reset(Time now);
  void request_threshold(std::uint16_t threshold, Time now);
  void request_halt(bool halted, Time now);
  void request_force(std::uint32_t segment, std::uint32_t round, Time now);

  EngineState state() const;
  const Error& join_error() const;
  wire::MemberId member() const;
  /// The job as the switch last described it.
  const wire::ReplyBody& job() const;
  /// The base_round at which what members do now began: where a switch has restarted and the job
  /// has gone on, job().base_round is newer.
  std::uint32_t origin() const;
  Statistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace iswitch::agent
