// What must hold in every run, whatever the network does. Everything found goes to
// World::violations under one of the property names below.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "tools/sim/gradient.h"
#include "tools/sim/host_node.h"
#include "tools/sim/link.h"
#include "tools/sim/switch_node.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

namespace property {
inline constexpr const char* exact_sum = "exact sum";
inline constexpr const char* same_bits = "same bits";
inline constexpr const char* deadline = "deadline";
inline constexpr const char* outstanding = "outstanding";
inline constexpr const char* counters = "counters";
inline constexpr const char* recovery = "recovery";
inline constexpr const char* meeting = "meeting";  ///< a barrier let somebody through early
inline constexpr const char* agreement =
    "agreement";  ///< a result though ranks disagree on the operation
inline constexpr const char* honest = "honest";  ///< what a completion says about itself
}  // namespace property

/// How strictly a job's results are judged.
struct JobRules {
  unsigned ranks = 0;
  /// Nobody leaves, is evicted or forced, and the threshold is the number of members: every sum is
  /// full.
  bool full = true;
};

/// How an operation ended at one worker.
struct Ending {
  const Operation& operation;
  const agent::Completion& completion;
  unsigned rank = 0;
  wire::MemberId member = wire::no_member;
  std::span<const float> output;
  Time deadline = never;
  Time slack = 0;  ///< how late the host may have noticed
};

class Checks {
 public:
  explicit Checks(World& world) : world_(world) {}

  void set_rules(std::uint16_t job, const JobRules& rules) { rules_[job] = rules; }

  void submitted(const Operation& operation, unsigned rank, wire::MemberId member);
  /// Somebody takes this operation for another one: nobody may get a result of it. Only for jobs
  /// whose sums are full.
  void mistaken(const Operation& operation, unsigned rank);
  /// It failed at once and never was part of the stream.
  void withdrawn(const Operation& operation, unsigned rank);
  void ended(const Ending& ending);

  std::uint64_t completed() const { return completed_; }
  std::uint64_t failed() const { return failed_; }
  /// By agent::ErrorCode.
  const std::map<unsigned, std::uint64_t>& failures() const { return failures_; }
  std::uint64_t elements_checked() const { return elements_checked_; }

  /// Once nothing is under way: what nodes and links counted fits together.
  void counters(const SwitchNode& node, std::span<const std::unique_ptr<Link>> into) const;
  void counters(const HostNode& node, const Link& into) const;

 private:
  using Stream = std::pair<std::uint16_t, std::uint32_t>;  // job, base round
  struct Outcome {
    std::uint64_t submitted_by = 0;  // ranks, the first 64
    unsigned submitters = 0;
    std::uint64_t mistaken_by = 0;  // ranks
    bool known = false;             // somebody has the result
    std::uint64_t bits = 0;
    bool partial = false;
    std::uint32_t smallest = 0;
    unsigned rank = 0;
  };
  struct StreamState {
    std::map<std::uint32_t, Outcome> operations;
    std::map<wire::MemberId, unsigned> ranks;  // who had this member id
  };

  void judge(const Ending& ending, Outcome& outcome);
  void judge_vector(const Ending& ending, const JobRules& rules);
  bool judge_element(const Ending& ending, const JobRules& rules, std::uint32_t element,
                     std::uint32_t& ranks);
  void wrong(const Ending& ending, const char* what, const std::string& text);

  World& world_;
  std::map<std::uint16_t, JobRules> rules_;
  std::map<Stream, StreamState> streams_;
  std::uint64_t completed_ = 0, failed_ = 0, elements_checked_ = 0;
  std::map<unsigned, std::uint64_t> failures_;
};

}  // namespace iswitch::sim
