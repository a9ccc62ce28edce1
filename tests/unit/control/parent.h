// A parent switch for a child on the bench, written a second time and plainly: it answers what it
// is asked when told to, and makes its orders by hand.
#pragma once

#include <optional>
#include <vector>

#include "tests/unit/control/harness.h"

namespace control_test {

inline constexpr wire::Ipv4 parent_ip{0x0A4D00FD};
inline constexpr datapath::PortId parent_port = 7;
inline constexpr std::uint32_t parent_base = 5000;

control::ParentConfig parent_config();

class Parent {
 public:
  explicit Parent(Bench& bench);

  // What its job is like; the test changes it as it likes.
  JobState state = JobState::running;
  std::uint32_t base = parent_base;
  wire::ReplyBody terms;  ///< shape alone: mode, data type, slots, segment_bytes, shards, history
  bool answers = true;
  bool knows_job = true;
  /// Overrides, by action.
  std::map<Action, Status> statuses;
  std::vector<std::uint8_t> key;
  wire::Endpoint endpoint;
  MemberId next_id = 3;

  // Who the child is to it.
  struct Row {
    MemberId id = 0;
    std::uint32_t incarnation = 0;
  };
  std::optional<Row> row;
  int joins = 0, resets = 0, leaves = 0;

  /// An ARP reply.
  void show_address();
  /// Answers everything that has come since the last time, until nothing more comes.
  void pump();
  /// Time goes on in steps of `step`, answering in between.
  void pass(Time time, Time step = 50 * millisecond);
  /// Restarts: knows nobody.
  void forget() {
    row.reset();
    last_nonce_ = 0;
  }
  void evict() { row.reset(); }

  /// Everything the child sent to it, requests and replies.
  std::vector<Sent> got(std::size_t from = 0) const;
  std::vector<Sent> got(Action action, std::size_t from = 0) const;

  // By hand.
  void reply(const Sent& request, Status status, const wire::ReplyBody& body);
  void reply(const Sent& request, Status status = Status::ok) {
    reply(request, status, describe());
  }
  wire::ReplyBody describe() const;
  /// Makes an order with a fresh nonce; the child's answer, if one came at once.
  wire::ControlHeader next_header(Action action);
  std::optional<Sent> order(Action action);
  std::optional<Sent> order_reset(std::uint32_t base_round);
  std::optional<Sent> order_help(std::uint32_t segment, std::uint32_t round);
  std::optional<Sent> deliver_order(const wire::ControlHeader& header,
                                    const wire::ControlDatagram& datagram);
  /// What it said, to say again.
  wire::ControlDatagram unasked(Status status, std::uint64_t missing = 0);
  wire::Client client() const { return {key, endpoint.ip, endpoint.udp_port}; }
  /// A frame from it, or from where `as` says.
  void deliver(const wire::ControlDatagram& datagram);
  /// Instead of delivering at once.
  std::function<void(const wire::ControlDatagram&)> carry;
  /// Answers one request of the child's.
  void answer(const Sent& request);
  datapath::PortId ingress = parent_port;

 private:
  Bench& bench_;
  std::size_t answered_ = 0;
  std::uint64_t last_nonce_ = 0;  ///< of the last guarded request
  std::uint64_t nonce_ = 1'000'000;
  std::uint32_t request_id_ = 50;
};

/// A child switch with a parent that answers. Two members (or those of `config`).
struct ChildRig {
  explicit ChildRig(const JobConfig& config = job_config(), std::uint16_t shards = 1);
  void members_join();
  /// After the place at the parent was lost: they were told so, and join again.
  void members_come_back();
  /// Until the job runs.
  void run();
  control::ParentView view() const { return *bench.view().parent; }
  const FakeDatapath::Shard& shard() { return bench.datapath.shard(0); }

  Bench bench;
  Parent parent;
  std::vector<Client> members;
};

}  // namespace control_test
