// What passes between the control side and a datapath (the software pipeline or the FPGA): values
// only, so that the daemon sends them through rings, the simulator through its event queue, and a
// driver turns them into register writes. Pure: depends on wire/ alone.
//
// Threads in the daemon: control makes orders and reads answers; one lcore executes an order
// against its shard and fills the answer. Every order goes to every shard; control counts the
// answers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "wire/control.h"
#include "wire/frame.h"
#include "wire/units.h"

namespace iswitch::datapath {

using wire::JobId;
using wire::MemberId;
using wire::MemberMask;

using PortId = std::uint16_t;
inline constexpr unsigned max_ports = 64;
using PortMask = std::uint64_t;

/// The switch's own addresses and what makes a frame ours.
struct SwitchAddress {
  wire::Mac mac;
  wire::FrameRules rules;  ///< ip, base port, shards, ToS values
};

/// What a job is, fixed while it exists. A child switch fills it from its parent's Join reply.
struct JobSpec {
  JobId id = 0;
  wire::Mode mode = wire::Mode::sync;
  wire::DataType data_type = wire::DataType::float32;
  std::uint32_t slots =
      1024;  ///< of the whole job; shard s owns the segments with segment mod shards = s
  std::uint32_t segment_bytes = 1440;
  std::uint16_t history = 1;  ///< results kept a slot, the last one included
  bool udp_checksum = true;   ///< of results
  Time force_after = 0;       ///< age at which an open sum is forced; 0 never
  bool child = false;         ///< complete sums go up to a parent (PutParent), results come from it
};

/// A row of the membership table as the datapath needs it.
struct MemberSpec {
  MemberId id = 0;
  wire::MemberKind kind = wire::MemberKind::worker;
  wire::Endpoint endpoint;
  PortId ingress = 0;
  std::uint16_t shards = 1;       ///< of a child switch
  std::uint32_t incarnation = 0;  ///< asynchronous: the tag its pushes carry
  /// Came back to its stream, and perhaps had another id there: its bit in what is handed back may
  /// be somebody else's.
  bool id_in_doubt = false;
  bool operator==(const MemberSpec&) const = default;
};

/// A child switch's place at its parent: complete sums go there, results come from there alone.
struct ParentSpec {
  MemberId member = 0;            ///< this switch's id at the parent
  wire::Endpoint endpoint;        ///< of the parent; udp_port is its base port
  PortId port = 0;                ///< the way there, and the only ingress of results
  std::uint16_t shards = 1;       ///< of the parent: segment s goes to base port + s mod shards
  std::uint32_t incarnation = 0;  ///< this switch's in the job: the tag of its own pushes
  bool waited_for_all = false;    ///< its sums from before this start had all its members in them
  bool operator==(const ParentSpec&) const = default;
};

// ---- orders

/// Make the job's tables; it refuses contributions until Start.
struct Install {
  JobSpec job;
};
/// Forget the job and give back its buffers.
struct Remove {};
/// Refuse contributions, clear every slot, answer the highest round seen.
struct Stop {};
/// A stream that goes on (protocol.md section 9): members hold the results of some positions from
/// `first` up to `end` and hand them back. Both 0 in an asynchronous job, whose slots are all
/// unsettled.
struct Resumption {
  std::uint64_t first = 0;  ///< E: somebody lacks its result
  std::uint64_t end = 0;    ///< F: nobody has the result of this one or a later one
  bool operator==(const Resumption&) const = default;
};
/// Accept contributions from now on. An unused slot's last round is base_round - 1, or that of the
/// last position below `first` on it; in an asynchronous job its last update number is base_round.
/// The rows of all members are there before a stream goes on.
struct Start {
  std::uint32_t base_round = 0;
  std::optional<Resumption> resumed{};  ///< none: the job starts afresh
};
/// Refuse contributions (or accept them again), keeping every slot.
struct SetHalted {
  bool halted = false;
};
/// Add a member's row or replace it. In an asynchronous job a row that was absent or had another
/// incarnation is a refilled place: its bit is cleared in open, waiting and kept sums and its push
/// numbers start again after base_round (protocol.md section 6); the same incarnation again changes
/// the addresses alone.
struct PutMember {
  MemberSpec member;
};
/// Set or replace a child job's place at its parent. Before the first Start; a new place between
/// Stop and Start, the same place with another address or port at any time.
struct PutParent {
  ParentSpec parent;
};
/// Remove a member's row. Its parts stay in open sums; those that are complete without it complete.
struct DropMember {
  MemberId member = 0;
};
/// Threshold of sums opened from now on; 0 follows the number of members.
struct SetThreshold {
  std::uint16_t threshold = 0;
};
/// Complete an open sum now, marked PARTIAL (FBcast). Asynchronous: whatever is open in the slot,
/// round ignored.
struct Force {
  std::uint32_t segment = 0;
  std::uint32_t round = 0;
};
/// Help: send a kept result to `member`, or tell what is missing from the open sum. no_member: only
/// tell.
struct Replay {
  std::uint32_t segment = 0;
  std::uint32_t round = 0;
  MemberId member = 0;
};
/// The parent's Help: if that sum waits for the parent, send it up again, unchanged but for
/// RETRANSMIT; in an asynchronous job hand that update back if it is kept; else only tell (as
/// Replay does).
struct SendUp {
  std::uint32_t segment = 0;
  std::uint32_t round = 0;
};
/// Of an asynchronous child: this push of its own is in an update that the parent does not keep any
/// more. If it waits, it waits no longer, and the next sum goes up.
struct GiveUp {
  std::uint32_t segment = 0;
  std::uint32_t push = 0;
};
/// Answer the job's open sums (for people; at most `limit`).
struct ListSlots {
  std::uint32_t limit = 0;
};

struct Order {
  std::uint64_t number = 0;  ///< grows by one; answers carry it
  JobId job = 0;
  std::variant<Install, Remove, Stop, Start, SetHalted, PutMember, DropMember, PutParent,
               SetThreshold, Force, Replay, SendUp, GiveUp, ListSlots>
      what;
};

// ---- answers

enum class SlotState : std::uint8_t {
  not_mine,      ///< another shard's segment
  none,          ///< neither open nor kept; that sum may still come
  kept,          ///< result kept; Replay: sent again. Force: it is complete already
  open,          ///< Replay: `missing` tells who. Force: it was open, now forced
  waiting,       ///< complete here and sent up; the parent has not answered yet
  gone,          ///< Replay: not newer than the slot's last round and not kept
  elsewhere,     ///< Replay, asynchronous: as gone, but a member or the parent may still have it
  with_members,  ///< the same, and members alone are to be asked (section 9)
};

struct OpenSlot {
  std::uint32_t segment = 0;
  std::uint32_t round = 0;
  Time opened_at = 0;
  MemberMask members = 0;  ///< in the sum
  MemberMask missing = 0;  ///< direct members not in it
  std::uint32_t workers = 0;
  std::uint32_t bytes = 0;
  bool waiting = false;  ///< sent up to the parent
};

struct Answer {
  std::uint64_t number = 0;
  std::uint16_t shard = 0;
  bool ok = true;                   ///< false: no such job here, or no memory for its tables
  std::uint32_t highest_round = 0;  ///< Stop; base_round - 1 where nothing was seen
  SlotState slot = SlotState::not_mine;
  MemberMask missing = 0;
  std::vector<OpenSlot> open;  ///< ListSlots
};

// ---- what a datapath tells unasked

/// A control packet addressed to this switch, cut to its IPv4 length, checked by parse_frame.
struct ControlFrame {
  PortId ingress = 0;
  std::uint16_t size = 0;
  std::array<std::uint8_t, wire::encapsulation_bytes + wire::max_control_bytes> bytes{};
  Bytes view() const { return {bytes.data(), size}; }
};

/// A contribution was refused in a way that somebody should be told (protocol.md sections 4 and 6).
/// Datapaths coalesce notices per member; control limits the rate of what it sends.
struct Notice {
  enum class Kind : std::uint8_t {
    not_a_member,  ///< source and ingress match no row: tell the source
    not_running,   ///< forming or halted: tell `member`
    gone,  ///< not kept any more: tell `member`; a synchronous child asks its parent for it (Help).
           ///< Asynchronous: the update that acknowledges the member's push; `round` is the newest
           ///< that is gone, for a child switch the push
    mismatch,        ///< another tag or length: tell `member` and `others`
    parent_address,  ///< an ARP reply from the parent's IPv4 address: `source` has its MAC
  };
  Kind kind = Kind::not_a_member;
  JobId job = 0;
  MemberId member = 0;  ///< claimed, for not_a_member
  PortId ingress = 0;
  wire::Endpoint source;
  std::uint32_t segment = 0;
  std::uint32_t round = 0;
  MemberMask others = 0;  ///< mismatch: members already in the sum
};

}  // namespace iswitch::datapath
