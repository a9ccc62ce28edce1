// A child switch between members and a parent, by seed: links that lose, repeat and delay, a parent
// that resets, halts, falls silent, restarts with its clock behind or forgets the child, members
// that restart and ask for things. Everything the child says is checked, and at rest all three
// agree.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/control/parent.h"

namespace control_test {

class RandomChild {
 public:
  explicit RandomChild(std::uint64_t seed);

  /// What was wrong, empty if nothing.
  std::vector<std::string> run(int steps);
  std::map<std::string, int> met;

  // Broken on purpose, to see that the checkers bite.
  bool parent_forgets_resets = false;  ///< it says that it has reset, and has not told anybody else
  std::function<bool(Sent&)> tamper;   ///< of what the child says; false: hidden from the checkers

 private:
  /// A worker as the agent's engine is one, as far as this matters.
  struct Worker {
    Client client;
    bool member = false;   ///< its Join was answered
    bool running = false;  ///< and it has heard that the job runs
    std::uint32_t base = 0;
    std::uint64_t base_known = 0;  ///< nonces up to this one were used when it was learned
    bool halted = false;
    std::uint64_t switch_nonce = 0;
    std::optional<wire::ControlHeader> join;  ///< being repeated
    std::uint64_t joined_by =
        0;  ///< nonce of the last Join: what was asked before is of another life
    std::optional<wire::ControlHeader> asked;  ///< Reset, Halt or Resume, being repeated
    Time repeat_at = 0;
  };
  struct Order {
    wire::ControlHeader header;
    wire::ControlDatagram datagram;
    Time repeat_at = 0;
  };

  std::uint64_t dice(std::uint64_t sides) { return random_() % sides; }
  bool chance(unsigned percent) { return dice(100) < percent; }
  void wrong(const std::string& what) { wrongs_.push_back(what); }

  void step();
  void pass_time(Time by);
  void after_a_while(std::function<void()> what);
  void run_due();
  void on_sent(const Sent& sent);
  void parent_gets(const Sent& sent);
  void parent_acts();
  void restart_parent(std::uint32_t new_base);
  void parent_orders();
  void order(Action action);
  void start_join(Worker& worker);
  void worker_acts(Worker& worker);
  void worker_repeats(Worker& worker);
  static void learn_base(Worker& worker, std::uint32_t base);
  void worker_gets(Worker& worker, const Sent& sent);
  void check(const Sent& sent);
  void check_member_frame(const Sent& sent);
  void check_parent_frame(const Sent& sent);
  void check_datapath();
  void come_to_rest();
  void check_end();

  std::mt19937_64 random_;
  JobConfig config_;
  std::unique_ptr<Bench> bench_;
  std::unique_ptr<Parent> parent_;
  std::vector<Worker> workers_;
  std::multimap<Time, std::function<void()>> in_flight_;
  bool lossy_ = true;
  bool silent_ = false;
  int parent_life_ = 0;
  std::deque<Order> orders_;  ///< of the parent, the first is outstanding
  std::uint32_t ordered_base_ = parent_base;
  bool ordered_halted_ = false;
  std::set<std::uint32_t> bases_ = {parent_base};       ///< that the parent's job ever had
  std::map<std::uint32_t, std::set<MemberId>> places_;  ///< ids given, by incarnation
  std::set<std::uint32_t> incarnations_;                ///< that the child has joined with
  std::uint32_t incarnation_ = 0;                       ///< the latest of them
  std::map<std::uint64_t, std::vector<std::uint8_t>> parent_bytes_;
  std::uint64_t parent_nonce_ = 0;
  std::vector<std::string> wrongs_;
};

}  // namespace control_test
