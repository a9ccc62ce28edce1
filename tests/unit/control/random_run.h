// Random sequences over a lossy link, everything that comes out checked: clients that repeat,
// replay and restart, members that answer late or never, shards that answer in any order, an
// operator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/control/harness.h"
#include "tests/unit/control/model.h"

namespace control_test {

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed);

  /// Broken on purpose, to see that the checkers bite. False: the frame is hidden from them.
  std::function<bool(Sent&)> tamper;
  bool members_forget = false;  ///< they answer a Reset without taking it up

  /// What was wrong, empty if nothing.
  std::vector<std::string> run(int steps);
  /// How often each kind of thing was seen: a run that meets nothing proves nothing.
  std::map<std::string, int> met;

 private:
  struct Asked {
    Model::Request request;
    wire::ControlDatagram datagram;
  };
  /// A client's program: what it asks, and what it believes as a member.
  struct Agent {
    Client client;
    std::vector<Asked> history;  ///< guarded requests, oldest first
    bool waiting = false;        ///< for the answer to the last of them
    bool member = false;
    std::uint32_t base_round = 0;
    bool halted = false;
    std::uint64_t switch_nonce = 0;
    std::deque<Sent> mailbox;
  };
  /// A request that must be answered, unless a newer one takes its place.
  struct Expectation {
    Status status = Status::ok;
    bool is_join = false;
    bool resets = false;
    std::uint32_t base_then = 0;
    int deliveries = 0;
    int replies = 0;
  };
  using RequestKey = std::tuple<PlaceKey, wire::JobId, Action, std::uint32_t, std::uint64_t>;

  std::uint64_t dice(std::uint64_t sides) { return random_() % sides; }
  bool chance(unsigned percent) { return dice(100) < percent; }
  void wrong(const std::string& what);

  void step();
  void ask_something(Agent& agent);
  void ask(Agent& agent, const Model::Request& request, const wire::ControlDatagram& datagram);
  void send(Agent& agent, const Asked& asked);
  void operator_acts();
  void read_mail(Agent& agent);
  void obey(Agent& agent, const Sent& request);
  void pass_time(Time by);

  void check(const Sent& sent);
  void check_reply(const Sent& sent);
  void check_numbers(const Sent& sent);
  void check_repetition(const Sent& sent, std::vector<Time>& times);
  void check_announced_base(const Sent& sent);
  void check_rows();
  void come_to_rest();
  void check_end();
  void check_job_at_rest(const control::JobView& view);
  void check_agents_at_rest();

  std::mt19937_64 random_;
  std::vector<JobConfig> configs_;
  std::unique_ptr<Bench> bench_;
  std::vector<Agent> agents_;
  std::map<wire::JobId, Model> models_;
  std::map<RequestKey, Expectation> expected_;
  std::vector<RequestKey> now_delivered_;  ///< the request whose delivery is going on
  std::optional<Status> now_status_;       ///< what it must be answered with at once
  int now_replies_ = 0;
  std::uint64_t newest_nonce_ = 0;
  std::map<std::uint64_t, std::vector<Time>> sent_at_;  ///< the switch's requests, by nonce
  std::map<std::uint64_t, std::vector<std::uint8_t>> sent_bytes_;
  std::map<wire::JobId, std::uint32_t> published_base_;
  int acts_begun_ = 0, acts_done_ = 0;
  bool lossy_ = true;
  std::vector<std::string> wrongs_;
};

}  // namespace control_test
