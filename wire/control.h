// Control messages (protocol.md section 6): header, body, 16-byte tag.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "wire/address.h"
#include "wire/header.h"

namespace iswitch::wire {

enum class Action : std::uint8_t {
  join = 1,
  leave = 2,
  reset = 3,
  set_threshold = 4,
  force_broadcast = 5,
  help = 6,
  halt = 7,
  resume = 8,
  ping = 9,
  rejoin = 10
};
inline constexpr Action last_action = Action::rejoin;
const char* action_name(Action action);  ///< "join", ..., "unknown"

enum class Status : std::uint16_t {
  ok = 0,
  no_such_job = 1,
  not_a_member = 2,
  job_full = 3,
  bad_tag = 4,
  bad_value = 5,
  unsupported = 6,
  gone = 7,
  halted = 8,
  parent_not_ready = 9,
  replayed_nonce = 10,
  mismatch = 11
};
const char* status_name(Status status);  ///< "ok", "no such job", ...

enum class JobState : std::uint8_t { forming = 0, running = 1, halted = 2 };
const char* job_state_name(JobState state);

enum class MemberKind : std::uint8_t { worker = 0, child_switch = 1 };

struct JoinBody {
  static constexpr std::size_t bytes = 16;
  MemberKind kind = MemberKind::worker;
  DataType data_type = DataType::float32;
  Mode mode = Mode::sync;
  MemberId wanted_member = no_member;
  std::uint16_t shards = 0;             ///< of a child switch; 0 from a worker
  std::uint32_t max_segment_bytes = 0;  ///< most the joiner can take
  std::uint32_t incarnation = 0;        ///< random at each start of the member
  bool operator==(const JoinBody&) const = default;
};

/// Of a member that had a place in a stream and lost it (section 9): what it was to the stream.
struct RejoinBody {
  static constexpr std::size_t bytes = JoinBody::bytes + 36;
  JoinBody join;                    ///< incarnation: a new one; wanted_member: the former id
  std::uint32_t origin = 0;         ///< base_round of the stream's start
  std::uint32_t newest = 0;         ///< no round or number it has seen or used is newer
  std::uint32_t slots = 0;          ///< as they were, likewise segment_bytes
  std::uint32_t segment_bytes = 0;  ///< of the job
  std::uint64_t position = 0;       ///< synchronous: the first one whose result it lacks
  std::uint64_t end = 0;            ///< one after the last one whose result it has, or position
  std::uint32_t life = 0;           ///< of the switch, as its last answer said; 0 not known yet
  bool operator==(const RejoinBody&) const = default;
};

struct ReplyBody {
  static constexpr std::size_t bytes = 40;
  Status status = Status::ok;
  JobState state = JobState::forming;
  Mode mode = Mode::sync;
  DataType data_type = DataType::float32;
  MemberId member = no_member;
  std::uint16_t members_now = 0;
  std::uint16_t members_expected = 0;
  std::uint16_t threshold = 0;
  std::uint16_t shards = 0;
  std::uint32_t segment_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t base_round = 0;
  std::uint16_t history = 0;
  std::uint64_t missing =
      0;  ///< Help: direct members not in the sum; 7 and 11: segment << 32 | round; Rejoin: Resumed
  bool operator==(const ReplyBody&) const = default;
};

/// Body of FBcast and Help.
struct SlotBody {
  static constexpr std::size_t bytes = 8;
  std::uint32_t segment = 0;
  std::uint32_t round = 0;
};

/// What the reply to a Rejoin says of the stream once the job runs, in `missing`.
struct Resumed {
  /// Why the job has started afresh; none: it goes on.
  enum class Fresh : std::uint8_t {
    none = 0,
    stranger = 1,       ///< somebody joined who does not know the stream
    other_origin = 2,   ///< members are of different streams
    other_shape = 3,    ///< other slots or segment size
    too_far_apart = 4,  ///< members differ by more segments than are kept
    went_on = 5,        ///< the job went on without this member
    reset = 6,          ///< it went on, and has been Reset since
  };
  Fresh fresh = Fresh::stranger;
  std::uint32_t first = 0;  ///< goes on: low half of E, the first position that somebody lacks
  std::uint32_t count = 0;  ///< goes on: F - E, below 2^31; too_far_apart: segments apart
  /// Started afresh for this member, who came to an asynchronous job that runs: of its stream,
  /// where that is not base_round. `first` and `count` are not said then.
  std::optional<std::uint32_t> origin{};

  bool goes_on() const { return fresh == Fresh::none; }
  bool operator==(const Resumed&) const = default;
};
const char* fresh_reason_name(Resumed::Fresh reason);  ///< for people, one phrase
std::uint64_t encode_resumed(const Resumed& resumed);
/// The switch's number, which a Rejoin has to carry to be done: what `missing` says where it does
/// not yet. Never 0; none: `missing` says something else.
std::uint64_t encode_life(std::uint32_t life);
std::optional<std::uint32_t> decode_life(std::uint64_t missing);
/// Any 64 bits: a reason that is not listed is read as `stranger`, the unspecific one.
Resumed decode_resumed(std::uint64_t missing);

inline constexpr std::size_t tag_bytes = 16;
using Tag = std::array<std::uint8_t, tag_bytes>;

/// Length of a request's body for an action (Join 16, Rejoin 52, Reset 4, SetH 2, FBcast and Help
/// 8, else 0).
std::size_t request_body_bytes(Action action);
inline constexpr std::size_t max_control_bytes = header_bytes + RejoinBody::bytes + tag_bytes;
static_assert(RejoinBody::bytes > ReplyBody::bytes);

// Readers expect the length that parse_message has already checked. Values outside their
// enumeration (kind, mode, data type, state) and non-zero reserved bytes give nothing.
std::optional<JoinBody> read_join(Bytes body);
/// Nothing also where `end` is before `position`, or an asynchronous member states either.
std::optional<RejoinBody> read_rejoin(Bytes body);
std::optional<ReplyBody> read_reply(Bytes body);
SlotBody read_slot(Bytes body);
std::uint32_t read_reset(Bytes body);          ///< base_round
std::uint16_t read_set_threshold(Bytes body);  ///< H

/// A job's key: the file's bytes, 16 to 1024; empty means the job has none.
using Key = std::span<const std::uint8_t>;

/// HMAC-SHA256-128 over header and body, the client's IPv4 address and UDP port; zeros without a
/// key. The client is the requester, in both directions.
Tag control_tag(Key key, Bytes header_and_body, Ipv4 client, std::uint16_t client_port);
/// Constant-time comparison of the tag that ends `datagram` with the right one.
bool tag_is_right(Key key, Bytes datagram, Ipv4 client, std::uint16_t client_port);

/// Bytes of one whole control datagram (UDP payload).
struct ControlDatagram {
  std::array<std::uint8_t, max_control_bytes> bytes{};
  std::size_t size = 0;
  Bytes view() const { return {bytes.data(), size}; }
};

/// Who a control datagram is tagged for.
struct Client {
  Key key;
  Ipv4 ip;
  std::uint16_t udp_port = 0;
};

/// What every control packet's header says. Round carries the request id, set the nonce.
struct ControlHeader {
  Action action = Action::ping;
  JobId job = 0;
  MemberId member = no_member;
  std::uint32_t request_id = 0;
  std::uint64_t nonce = 0;
};

ControlDatagram write_join(const ControlHeader& header, const JoinBody& body, const Client& client);
ControlDatagram write_rejoin(const ControlHeader& header, const RejoinBody& body,
                             const Client& client);
/// Leave, Halt, Resume, Ping.
ControlDatagram write_plain_request(const ControlHeader& header, const Client& client);
ControlDatagram write_reset(const ControlHeader& header, std::uint32_t base_round,
                            const Client& client);
ControlDatagram write_set_threshold(const ControlHeader& header, std::uint16_t threshold,
                                    const Client& client);
/// FBcast, Help.
ControlDatagram write_slot_request(const ControlHeader& header, const SlotBody& body,
                                   const Client& client);
ControlDatagram write_reply(const ControlHeader& header, const ReplyBody& body,
                            const Client& client);

/// Operation tag of a contribution (protocol.md section 2): CRC-32C (Castagnoli) over the fields.
enum class OperationKind : std::uint8_t { sum = 0, broadcast = 1, barrier = 2 };
struct Operation {
  OperationKind kind = OperationKind::sum;
  DataType data_type = DataType::float32;
  std::uint32_t root = 0;
  std::uint64_t elements = 0;
  std::uint32_t user_tag = 0;
};
std::uint32_t operation_tag(const Operation& operation);

}  // namespace iswitch::wire
