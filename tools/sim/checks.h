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
    "agreement";                               ///< a result though ranks disagree on the operation
inline constexpr const char* marks = "marks";  ///< congestion is not told
inline constexpr const char* replicas = "replicas";  ///< weights of an asynchronous job differ
inline constexpr const char* once =
    "once";  ///< a push or an update is missing, twice or out of order
inline constexpr const char* continuity =
    "continuity";  ///< an operation failed though nothing but switches has restarted
inline constexpr const char* idle = "idle";        ///< the engine asks to be called for nothing
inline constexpr const char* buffers = "buffers";  ///< a rule of pipeline memory (checking_pool.h)
inline constexpr const char* honest = "honest";    ///< what a completion says about itself
}  // namespace property

/// How strictly a job's results are judged.
struct JobRules {
  unsigned ranks = 0;
  /// Nobody leaves, is evicted or forced, and the threshold is the number of members: every sum is
  /// full.
  bool full = true;
  /// Nothing but switches' restarts happens to it: no operation may fail.
  bool unbroken = false;
};

/// Ranks of a job.
class RankSet {
 public:
  bool has(unsigned rank) const {
    return rank / 64 < words_.size() && (words_[rank / 64] >> rank % 64 & 1) != 0;
  }
  void add(unsigned rank) {
    if (rank / 64 >= words_.size()) words_.resize(rank / 64 + 1);
    words_[rank / 64] |= std::uint64_t{1} << rank % 64;
  }
  void remove(unsigned rank) {
    if (has(rank)) words_[rank / 64] &= ~(std::uint64_t{1} << rank % 64);
  }
  unsigned size() const;

 private:
  std::vector<std::uint64_t> words_;
};

/// Of one job, over the whole run.
struct JobFigures {
  std::uint64_t completed = 0, failed = 0;   ///< at single workers
  std::uint64_t gradient_bytes = 0;          ///< of the completed ones
  std::map<unsigned, std::uint64_t> errors;  ///< failed ones by agent::ErrorCode
  std::vector<Time> times;                   ///< from submission to completion, of each
  /// From the first worker's submission to the last one's completion: the longest of all operations
  /// that all have got through.
  Time longest_round = 0;
};

/// How an operation ended at one worker.
struct Ending {
  const Operation& operation;
  const agent::Completion& completion;
  unsigned rank = 0;
  std::span<const float> output;
  Time submitted = 0;
  Time deadline = never;
  Time slack = 0;        ///< how late the host may have noticed
  bool stopped = false;  ///< no others are begun any more, so that it may have been alone
};

class Checks {
 public:
  explicit Checks(World& world) : world_(world) {}

  void set_rules(std::uint16_t job, const JobRules& rules) { rules_[job] = rules; }

  void submitted(const Operation& operation, unsigned rank, Time now);
  /// Somebody takes this operation for another one: nobody may get a result of it. Only for jobs
  /// whose sums are full.
  void mistaken(const Operation& operation, unsigned rank);
  /// It failed at once and never was part of the stream.
  void withdrawn(const Operation& operation, unsigned rank);
  void ended(const Ending& ending);

  std::uint64_t elements_checked() const { return elements_checked_; }
  /// What people want to know of a job's operations.
  const JobFigures& figures(std::uint16_t job) { return figures_[job]; }

  /// Once nothing is under way: what nodes and links counted fits together.
  /// `delivered`: frames that links gave the node.
  void counters(const SwitchNode& node, std::uint64_t delivered) const;
  void counters(const HostNode& node, std::uint64_t delivered) const;

 private:
  using Stream = std::pair<std::uint16_t, std::uint32_t>;  // job, base round
  struct Outcome {
    RankSet submitters;
    RankSet mistaken;
    unsigned completed = 0;
    Time first_submitted = 0;
    bool known = false;  // somebody has the result
    std::uint64_t bits = 0;
    bool partial = false;
    std::uint32_t smallest = 0;
    unsigned rank = 0;
  };

  void judge(const Ending& ending, Outcome& outcome);
  void judge_vector(const Ending& ending, const JobRules& rules);
  bool judge_element(const Ending& ending, const JobRules& rules, std::uint32_t element,
                     std::uint32_t& ranks);
  Outcome& outcome(const Operation& operation) {
    return streams_[{operation.job, operation.base_round}][operation.index];
  }
  void wrong(const Ending& ending, const char* what, const std::string& text);

  World& world_;
  std::map<std::uint16_t, JobRules> rules_;
  std::map<Stream, std::map<std::uint32_t, Outcome>> streams_;
  std::map<std::uint16_t, JobFigures> figures_;
  std::uint64_t elements_checked_ = 0;
};

}  // namespace iswitch::sim
