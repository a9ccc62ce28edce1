// What must hold in an asynchronous job, whatever the network does: each push's data is in exactly
// one update at most once, updates come once and in order, and replicas are bit-identical at the
// same update numbers.
//
// How a sum tells who is in it: element e of a push is zero but where e mod ranks is the pusher's
// rank; there it is a whole number that depends on job, rank, push and element. So each element of
// an update shows one rank's push, or the sum of several of that rank's (a refilled place).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/engine/engine.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

/// What people want to know of an asynchronous job.
struct AsyncFigures {
  std::uint64_t pushes = 0, completed = 0, failed = 0;
  std::uint64_t stale_dropped = 0;  ///< gradients computed on weights that were too old
  std::uint64_t updates = 0;        ///< applied, at all workers
  std::uint64_t catch_ups = 0;      ///< weights taken from a peer
  std::vector<Time> times;          ///< of completed pushes
  std::map<std::uint32_t, std::uint64_t> staleness;  ///< pushes by the age of their weights
  std::map<unsigned, std::uint64_t> errors;          ///< failed pushes by agent::ErrorCode
};

class AsyncChecks {
 public:
  /// `number`: among the run's jobs.
  AsyncChecks(World& world, std::uint16_t job, unsigned number, unsigned ranks,
              std::uint32_t elements, std::uint32_t segment_elements);

  /// Nothing but switches' restarts happens to the job: no push may fail, but for those of which
  /// nobody can know whether they are in an update (only where there are several switches, or it is
  /// a worker's first, whose bit may be a predecessor's), those of a worker that fell behind, and
  /// those that meet a switch's restart while such a one is on its way back: the job starts afresh.
  void expect_unbroken(bool several_switches) {
    unbroken_ = true;
    several_switches_ = several_switches;
  }

  bool unbroken() const { return unbroken_; }

  /// The weights that all start from at this base round.
  void epoch(std::uint32_t base_round, std::span<const float> weights);
  bool has_epoch(std::uint32_t base_round) const { return epochs_.count(base_round) != 0; }
  std::span<const float> start_of(std::uint32_t base_round) const {
    return epochs_.at(base_round).start;
  }
  std::uint32_t segments() const { return segments_; }

  /// A new push of a rank: its serial number, and its gradient in `out`.
  std::uint32_t pushed(unsigned rank, std::span<float> out);
  /// Whether `gradient` is what pushed() wrote.
  bool unchanged(unsigned rank, std::uint32_t serial, std::span<const float> gradient) const;
  struct Ending {
    unsigned rank = 0;
    std::uint32_t serial = 0;
    const agent::Error& error;
    std::uint32_t base_round = 0;
    Time submitted = 0, deadline = never, slack = 0;
    bool stopped = false;  ///< nobody pushes any more, so that a sum may lack others for ever
  };
  void ended(const Ending& ending);

  /// A worker has taken weights with these updates in them.
  void resumed(unsigned rank, const agent::UpdateNumbers& numbers);
  /// A worker has applied an update; `weights`: the segment's afterwards.
  void applied(unsigned rank, std::uint32_t base_round, const agent::Update& update,
               std::span<const float> weights);

  /// Nothing is under way any more: all that was acknowledged has been in some update.
  void quiet(std::uint32_t base_round);
  /// Replicas when all have the same updates: the weights of one.
  void compare(unsigned rank, std::uint32_t base_round, std::span<const float> weights);

  AsyncFigures& figures() { return figures_; }
  const AsyncFigures& figures() const { return figures_; }

 private:
  struct Record {               // of an update of a segment
    std::uint64_t values = 0;   // hash
    std::uint64_t weights = 0;  // hash of the segment's weights afterwards
    std::uint16_t workers = 0;
    bool partial = false;
    Time seen = 0;  // first
  };
  struct Epoch {
    std::vector<float> start;
    std::vector<float> reference;              // with all updates that somebody has applied
    std::vector<std::vector<Record>> updates;  // by segment
  };
  struct Push {
    bool acknowledged = false;
    std::uint32_t base_round = 0;      // when it was acknowledged
    std::vector<std::uint64_t> where;  // by segment: the update it is in, + 1; 0: none
    std::uint32_t place = 0;           ///< the first serial that could be of the same place
  };

  float value(unsigned rank, std::uint32_t serial, std::uint64_t element) const;
  void first_seen(Epoch& epoch, std::uint32_t base_round, const agent::Update& update);
  /// The segment's updates from this one on were lost with a switch, and with those who had them:
  /// they are summed anew. Whoever goes on with the old ones has other weights from then on.
  void forget(Epoch& epoch, std::uint32_t base_round, const agent::Update& update);
  /// Whether these pushes of a rank, and no others, are in the update.
  bool is_sum_of(const agent::Update& update, unsigned rank, std::uint64_t first,
                 const std::vector<std::uint32_t>& serials) const;
  /// Adds `more` pushes to `found`, of those that are in no update, so that they make the update.
  bool find_among(const std::vector<std::uint32_t>& serials, const agent::Update& update,
                  unsigned rank, std::uint64_t first, float sum,
                  std::vector<std::uint32_t>& found) const;
  std::size_t places(unsigned rank, std::uint32_t segment) const;
  bool find_many_parts(const agent::Update& update, unsigned rank, std::uint64_t first, float sum,
                       std::vector<std::uint32_t>& found) const;
  bool find_parts(const agent::Update& update, unsigned rank, std::uint64_t first, unsigned more,
                  float left, std::size_t oldest, std::size_t below,
                  std::vector<std::uint32_t>& found) const;
  /// The rank's pushes in the update, as far as the segment shows the rank.
  bool decode(std::uint32_t base_round, const agent::Update& update, unsigned rank,
              std::uint64_t first, std::optional<unsigned>& parts);
  bool someone_is_behind() const;
  std::string explain(unsigned rank, const agent::Update& update, std::uint64_t element,
                      float value) const;
  void wrong(const char* property, unsigned rank, const std::string& text);

  World& world_;
  std::uint16_t job_;
  unsigned number_;
  unsigned ranks_;
  std::uint32_t elements_;
  std::uint32_t segment_elements_;
  std::uint32_t segments_;
  std::map<std::uint32_t, Epoch> epochs_;
  std::vector<std::vector<Push>> pushes_;        // by rank and serial
  std::vector<std::uint32_t> places_;            ///< by rank: Push::place of the next one
  std::vector<agent::UpdateNumbers> positions_;  // by rank: what it has applied
  AsyncFigures figures_;
  bool unbroken_ = false, several_switches_ = false;
  std::vector<bool> behind_;            // by rank: it lost its place as `gone`, until it resumes
  std::optional<Time> someone_behind_;  // the last time that somebody was
  unsigned wrong_sums_ = 0;
};

}  // namespace iswitch::sim
