// A Control on the bench: clients that make frames, a datapath that answers when it is told to, and
// a reader of what comes out that takes frames apart by their offsets in the protocol's text.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "switchd/control/control.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace control_test {

using namespace iswitch;
using control::Control;
using control::JobConfig;
using datapath::MemberId;
using wire::Action;
using wire::JobState;
using wire::Status;

inline constexpr std::uint64_t start_unix_seconds = 1'700'000'000;
inline constexpr Time start_time = 7 * second;
inline constexpr std::uint32_t first_base = static_cast<std::uint32_t>(start_unix_seconds * 65536);

datapath::SwitchAddress switch_address();
control::SwitchConfig switch_config(std::uint16_t shards);
JobConfig job_config(wire::JobId id = 1, std::uint16_t members = 2);

/// A control frame from the switch, taken apart. Making one checks everything around the message.
struct Sent {
  datapath::PortId port = 0;
  wire::Endpoint to;
  bool is_reply = false;
  Action action = Action::ping;
  wire::JobId job = 0;
  MemberId member = 0;
  std::uint32_t request_id = 0;
  std::uint64_t nonce = 0;
  std::vector<std::uint8_t> body, tag, datagram;

  // replies
  Status status() const;
  JobState state() const;
  std::uint16_t body_member() const, members_now() const, members_expected() const;
  std::uint16_t threshold() const, shards() const, history() const;
  std::uint32_t segment_bytes() const, slots() const, base_round() const;
  std::uint64_t missing() const;
  // requests
  std::uint32_t reset_base() const;
  std::uint32_t slot_segment() const, slot_round() const;
};
/// Empty text where the frame is as the protocol wants it, else what is wrong.
std::string frame_fault(const std::vector<std::uint8_t>& frame);
Sent take_apart(const control::OutFrame& frame);

/// A datapath that does what datapath.h says, one order after the other in each shard.
class FakeDatapath {
 public:
  struct Shard {
    std::deque<datapath::Order> queue;
    std::uint64_t executed = 0;  ///< number of the last order
    bool installed = false, running = false, halted = false;
    std::uint32_t base = 0;
    std::uint16_t threshold = 0;
    std::map<MemberId, datapath::MemberSpec> members;
    std::map<MemberId, std::uint64_t> put_at;  ///< number of the order
    std::uint64_t started_at = 0;
    std::set<std::uint32_t> started_bases;
    datapath::JobSpec spec;
    std::optional<datapath::ParentSpec> parent;
    /// Asynchronous: how often a place was refilled (a row that was absent or of another
    /// incarnation).
    std::map<MemberId, int> refills;
    std::uint64_t stops = 0;
  };
  explicit FakeDatapath(std::uint16_t shards) : shards_(shards) {}

  bool start_ends_halt = false;  ///< datapaths may differ in this
  bool memory = true;            ///< whether Install finds any
  /// What a Force or Replay finds in the shard that owns the segment, and who is missing.
  std::map<std::pair<std::uint32_t, std::uint32_t>, datapath::SlotState> slots;
  std::map<std::pair<std::uint32_t, std::uint32_t>, datapath::MemberMask> missing;
  std::vector<datapath::OpenSlot> open;
  std::map<std::uint16_t, std::uint32_t> highest;  ///< round by shard, where one was seen

  void take(const datapath::Order& order);
  /// Executes the oldest order of a shard and gives the answer, or nothing.
  std::optional<datapath::Answer> execute(std::uint16_t shard);
  bool idle() const;
  /// One job's state in a shard.
  Shard& shard(std::uint16_t shard, wire::JobId job = 1) { return state_[{shard, job}]; }
  std::uint16_t shards() const { return shards_; }
  std::vector<datapath::Order> log;

 private:
  datapath::Answer carry_out(const datapath::Order& order, std::uint16_t shard);
  std::uint16_t shards_;
  std::map<std::uint16_t, std::deque<datapath::Order>> queues_;
  std::map<std::pair<std::uint16_t, wire::JobId>, Shard> state_;
};

struct Client {
  wire::Endpoint endpoint;
  datapath::PortId ingress = 0;
  wire::JobId job = 1;
  std::vector<std::uint8_t> key;
  MemberId id = wire::no_member;
  std::uint32_t incarnation = 100;
  std::uint64_t nonce = 1'000;
  std::uint32_t request_id = 10;

  wire::Client as_client() const { return {key, endpoint.ip, endpoint.udp_port}; }
  wire::ControlHeader next_header(Action action);
};
/// Client number n on its own host and port.
Client client(unsigned n, wire::JobId job = 1);
wire::JoinBody join_body(const Client& client, MemberId wanted = wire::no_member);
datapath::ControlFrame frame_of(const Client& from, const wire::ControlDatagram& datagram);

class Bench {
 public:
  explicit Bench(const std::vector<JobConfig>& jobs = {job_config()}, std::uint16_t shards = 1,
                 bool answering_from_the_start = true);
  /// A switch with a parent.
  Bench(const std::vector<JobConfig>& jobs, const control::ParentConfig& parent,
        std::uint16_t shards = 1);

  Time now = start_time;
  FakeDatapath datapath;
  control::Effects effects;
  Control control;
  bool answering;                       ///< the datapath answers at once
  std::vector<Sent> sent;               ///< all, oldest first
  std::vector<control::OutFrame> arps;  ///< ARP requests, oldest first
  /// Called with every frame as it comes out.
  std::function<void(const Sent&)> on_sent;

  /// Takes what the last call of control made; with `answering`, answers until nothing is left.
  void settle();
  /// One order of one shard.
  bool answer_one(std::uint16_t shard);
  void answer_all();
  void at(Time when);  ///< moves time there and ticks

  void deliver(const Client& from, const wire::ControlDatagram& datagram);
  /// The reply to (request id, nonce), the latest, if any.
  std::optional<Sent> reply_to(const Client& from, const wire::ControlHeader& header) const;

  // Make a request with a fresh nonce; the reply that came at once, if one did.
  std::optional<Sent> join(Client& from, MemberId wanted = wire::no_member);
  std::optional<Sent> join(Client& from, const wire::JoinBody& body);
  std::optional<Sent> plain(Client& from, Action action);
  std::optional<Sent> reset(Client& from, std::uint32_t base = 0);
  std::optional<Sent> set_threshold(Client& from, std::uint16_t threshold);
  std::optional<Sent> force(Client& from, std::uint32_t segment, std::uint32_t round);
  std::optional<Sent> help(Client& from, std::uint32_t segment, std::uint32_t round);
  void member_reply(const Client& from, const Sent& request, Status status = Status::ok);
  void notice(datapath::Notice::Kind kind, const Client& about, std::uint32_t segment = 0,
              std::uint32_t round = 0, datapath::MemberMask others = 0);

  /// Joins clients 0..n-1 of `job` and requires that it runs.
  std::vector<Client> joined(unsigned n, wire::JobId job = 1,
                             const std::vector<std::uint8_t>& key = {});
  control::JobView view(wire::JobId job = 1) const;
  /// Frames sent to a client since `from` (an index into `sent`), requests or replies.
  std::vector<Sent> to(const Client& client, std::size_t from = 0) const;
  std::vector<Sent> requests_to(const Client& client, std::size_t from = 0) const;

 private:
  void collect();
};

/// An order's alternative by type, oldest first.
template <class What>
std::vector<What> orders_of(const FakeDatapath& datapath) {
  std::vector<What> found;
  for (const auto& order : datapath.log)
    if (const auto* what = std::get_if<What>(&order.what)) found.push_back(*what);
  return found;
}

}  // namespace control_test
