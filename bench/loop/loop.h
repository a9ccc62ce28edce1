// switchd's own packet loop on a net_null port, set up for one case of a benchmark: a prepared
// feed, an lcore, a port, jobs. It runs in slices, between which the same lcore can be asked what
// single parts of the work cost on the same memory, so that a machine shared with others disturbs
// all alike. Times are processor time of the lcore's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/loop/feed.h"
#include "switchd/dataplane/eal.h"
#include "switchd/dataplane/lcore.h"
#include "switchd/dataplane/pools.h"
#include "switchd/dataplane/port.h"
#include "switchd/memory_plan.h"

namespace iswitch::bench {

struct Case {
  unsigned members = 4;
  std::uint32_t segment_bytes = 1440;
  std::uint32_t slots = 1024;
  unsigned jobs = 1;
  bool chained = true;
  unsigned lcores = 1;
};

/// What a case takes of memory.
switchd::MemoryPlan plan_of(const Case& one);

/// EAL for cases up to this size, one at a time. `huge_pages` asks for them, and tells whether
/// enough were free. Null and a line in `error` when it cannot be.
std::unique_ptr<switchd::Eal> start_eal(const char* name, std::uint64_t largest_case,
                                        unsigned lcores, bool& huge_pages, std::string& error);

/// Runs `work(argument)` on an lcore of EAL and sleeps until it has ended.
bool run_on(unsigned lcore, int (*work)(void*), void* argument);

/// A stretch of running, all lcores together.
struct Slice {
  double contributions = 0;
  double nanoseconds = 0;  ///< of processor time
  double per_contribution() const { return contributions > 0 ? nanoseconds / contributions : 0; }
};

class Loop {
 public:
  /// Null and a line in `error` when it cannot be. `number` makes device names different.
  static std::unique_ptr<Loop> create(const Case& one, unsigned number, std::string& error);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// The whole loop.
  Slice run(double seconds);
  /// The same under a clock: TSC cycles a contribution, by switchd::LoopStage.
  std::vector<double> run_stages(double seconds);

  // What parts of it cost alone on the first lcore, on the same memory and in the same order.

  /// Receive, the feed's headers, free; and without the headers.
  Slice run_feed(double seconds);
  Slice run_receive(double seconds);
  /// The floats' additions, with the pipeline's kernels: the first contribution opens a sum.
  Slice run_additions(double seconds);
  /// The sum of each payload's words.
  Slice run_checksums(double seconds);

  /// Empty when every contribution was summed and every result came out right.
  std::string verify() const;
  std::uint64_t results() const;

 private:
  Loop(const Case& one);
  std::string set_up(unsigned number);
  bool start_jobs();
  bool order(const datapath::Order& what);
  bool order(switchd::Lcore& lcore, const datapath::Order& what);
  template <class Work>
  Slice run_work(double seconds, Work& work);

  /// One lcore, on receive and transmit queues of its own of the one port.
  struct Unit {
    explicit Unit(const FeedConfig& config) : feed(config) {}
    Feed feed;
    switchd::StageClock stages;
    std::unique_ptr<switchd::Lcore> lcore;
    Feed::Progress from;
  };
  std::string set_up_lcore(unsigned shard);

  const Case case_;
  switchd::Pools pools_;
  switchd::Pool received_;
  std::unique_ptr<switchd::Port> port_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::uint64_t orders_ = 0;
};

}  // namespace iswitch::bench
