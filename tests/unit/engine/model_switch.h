// A switch in the plainest form that protocol.md allows, for one job at a root: maps
// instead of tables, one datagram at a time. Written apart from switchd, so that the engine is
// compared with the text and not with its sibling.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "wire/control.h"

namespace iswitch::model {

struct Datagram {
  std::size_t to = 0;  ///< endpoint: index of an agent
  std::vector<std::uint8_t> bytes;
  bool data = false;
  bool congested = false;  ///< Congestion Experienced
};

struct Result {
  std::uint32_t round = 0;
  std::uint32_t tag = 0;
  std::vector<std::uint8_t> bytes;
};
struct Open {
  std::uint32_t round = 0;
  std::uint32_t tag = 0;
  std::vector<float> sum;
  std::uint64_t members = 0;
  unsigned former = 0;  ///< parts of members whose place was given up; they count
  std::uint16_t workers = 0;
  bool congested = false;
};

class Switch {
 public:
  struct Config {
    std::uint16_t job = 7;
    std::uint16_t members = 0;
    std::uint32_t slots = 0;
    std::uint32_t segment_bytes = 0;
    std::uint32_t base_round = 0;
    std::uint16_t shards = 1;
    std::uint16_t threshold = 0;  ///< 0: number of members
    std::uint16_t history = 1;
    wire::Mode mode = wire::Mode::sync;
    std::uint64_t elements = 0;  ///< asynchronous: of the members' vectors (the agents' business)
  };
  /// Address of endpoint i, which tags cover.
  static wire::Ipv4 ip_of(std::size_t endpoint) {
    return {0x0A4D'0001 + static_cast<std::uint32_t>(endpoint)};
  }
  static constexpr std::uint16_t port = 40000;

  explicit Switch(const Config& config) : config_(config), base_round_(config.base_round) {}

  /// Handles one datagram that arrived on port base + shard; `out` gets what it sends.
  void receive(std::size_t from, const std::vector<std::uint8_t>& bytes, std::uint16_t shard,
               bool congested, std::vector<Datagram>& out);
  /// Operator's acts.
  void reset(std::vector<Datagram>& out);
  void halt(bool halted, std::vector<Datagram>& out);
  void evict(std::uint16_t member);
  void force_everything(std::vector<Datagram>& out);

  std::uint64_t contributions = 0;
  std::uint64_t accepted = 0;
  std::uint64_t ahead = 0;        ///< must stay 0: one contribution outstanding per slot
  std::uint64_t wrong_shard = 0;  ///< must stay 0
  std::uint64_t mismatches = 0;
  std::uint64_t stale = 0;  ///< asynchronous: pushes of another incarnation or before base_round
  std::uint64_t duplicates = 0;

 private:
  struct Member {
    std::size_t endpoint = 0;
    std::uint32_t incarnation = 0;
  };
  struct Slot {
    std::map<std::uint16_t, std::uint32_t> accepted;  // asynchronous: last push number by member
    std::optional<Open> open;
    std::vector<Result> kept;  // newest last
    std::uint32_t last = 0;    // meaningful when used
    bool used = false;
  };

  bool running() const { return members_.size() >= config_.members || was_running_; }
  std::uint16_t threshold() const;
  wire::ReplyBody describe(wire::Status status, std::uint16_t member) const;
  void reply(std::size_t to, const wire::Header& request, const wire::ReplyBody& body,
             std::vector<Datagram>& out);
  void unasked(std::size_t to, const wire::ReplyBody& body, std::vector<Datagram>& out);
  void control(std::size_t from, const wire::Message& message, std::vector<Datagram>& out);
  void join(std::size_t from, const wire::Message& message, std::vector<Datagram>& out);
  void contribution(std::size_t from, const wire::Message& message, std::uint16_t shard,
                    bool congested, std::vector<Datagram>& out);
  void push(std::size_t from, std::uint16_t member, const wire::Message& message, bool congested,
            std::vector<Datagram>& out);
  void add_payload(Open& open, std::uint16_t member, const wire::Message& message, bool congested);
  /// Its place is empty or somebody else's: what it sent stays in the sums, its bit does not.
  void forget(std::uint16_t member);
  void complete(std::uint32_t segment, Slot& slot, bool partial, std::vector<Datagram>& out);
  std::optional<std::uint16_t> member_at(std::size_t endpoint) const;

  Config config_;
  std::uint32_t base_round_;
  std::uint32_t highest_ = 0;
  bool highest_known_ = false;
  bool halted_ = false;
  bool was_running_ = false;
  std::map<std::uint16_t, Member> members_;
  std::map<std::uint32_t, Slot> slots_;
  std::map<std::size_t, std::uint64_t> last_nonce_;
  std::uint64_t nonce_ = 9'000'000;
};

}  // namespace iswitch::model
