// What is counted per job, and when each member was last heard. Written by the lcore that owns the
// pipeline, read by anybody at any time: relaxed atomics in memory that stays until the pipeline
// goes, also when the job is removed under the reader.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "switchd/pipeline/counters.h"
#include "wire/header.h"
#include "wire/units.h"

namespace iswitch::pipeline {

#define ISWITCH_PIPELINE_JOB_COUNTERS(X)                                                      \
  X(contributions) /* that match a member's row; each of these is one of the next thirteen */ \
  X(refused)       /* forming, stopped, halted or unsettled */                                \
  X(invalid)       /* wrong port, segment, data type, length or worker count, or unwanted */  \
  X(added)                                                                                    \
  X(handed_back) /* after a restart: results that members had, taken */                       \
  X(replayed)    /* answered with the kept result */                                          \
  X(passed_up)   /* its result is kept, and only the parent knows of what operation */        \
  X(duplicates)                                                                               \
  X(late)         /* its sum waits for the parent's result without it */                      \
  X(incarnations) /* asynchronous: from an earlier life of its member */                      \
  X(mismatches)                                                                               \
  X(ahead)                                                                                    \
  X(stale)                                                                                    \
  X(no_buffer)                                                                                \
  X(added_bytes)    /* of gradient, in added */                                               \
  X(results)        /* sums completed, forced ones included */                                \
  X(forced)         /* of these by FBcast or force_after */                                   \
  X(replays)        /* kept results sent again, those asked for by Help included */           \
  X(copies)         /* frames of results and replays */                                       \
  X(copied_bytes)   /* of gradient, in copies */                                              \
  X(sums_up)        /* a child's: sent to the parent for the first time */                    \
  X(sums_up_again)  /* and again */                                                           \
  X(parent_refused) /* results from the parent that were not taken, whatever for */

enum class JobCounter : std::uint8_t {
#define X(name) name,
  ISWITCH_PIPELINE_JOB_COUNTERS(X)
#undef X
      count_
};
inline constexpr std::size_t job_counter_count = static_cast<std::size_t>(JobCounter::count_);

inline constexpr std::array<const char*, job_counter_count> job_counter_names{
#define X(name) #name,
    ISWITCH_PIPELINE_JOB_COUNTERS(X)
#undef X
};

/// A job's numbers in one shard.
class JobStats {
 public:
  void add(JobCounter counter, std::uint64_t n = 1) {
    values_[static_cast<std::size_t>(counter)].add(n);
  }
  std::uint64_t get(JobCounter counter) const {
    if (counter == JobCounter::contributions) return contributions();
    return values_[static_cast<std::size_t>(counter)].get();
  }
  /// A contribution of this member was last seen then; 0 before its row was made.
  Time last_heard(wire::MemberId member) const {
    return last_heard_[member].load(std::memory_order_relaxed);
  }
  void heard(wire::MemberId member, Time now) {
    last_heard_[member].store(now, std::memory_order_relaxed);
  }

 private:
  friend class JobStatsList;
  /// Not counted apart: each ends in one of these.
  std::uint64_t contributions() const {
    std::uint64_t sum = 0;
    for (auto c = static_cast<std::size_t>(JobCounter::refused);
         c <= static_cast<std::size_t>(JobCounter::no_buffer); ++c)
      sum += values_[c].get();
    return sum;
  }
  alignas(64) std::array<Tally, job_counter_count> values_{};
  alignas(64) std::array<std::atomic<Time>, wire::max_members> last_heard_{};
};

/// Calls visit(const char* name, std::uint64_t value) for each counter of a job.
template <class Visit>
void for_each_job_counter(const JobStats& stats, Visit&& visit) {
  for (std::size_t i = 0; i < job_counter_count; ++i)
    visit(job_counter_names[i], stats.get(static_cast<JobCounter>(i)));
}

/// The stats of a pipeline's jobs. Nodes are used again for later jobs and freed at the end only,
/// so that a reader never holds a dangling one; at worst it sees a job's last numbers mixed with
/// zeros.
class JobStatsList {
 public:
  JobStatsList() = default;
  JobStatsList(const JobStatsList&) = delete;
  JobStatsList& operator=(const JobStatsList&) = delete;
  ~JobStatsList();

  /// Writer: zeroed stats for a job. May throw bad_alloc.
  JobStats& open(wire::JobId job);
  /// Writer: the job is gone.
  void close(const JobStats& stats);

  /// Any thread: visit(wire::JobId, const JobStats&) for each job.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Node* node = head_.load(std::memory_order_acquire); node != nullptr;
         node = node->next) {
      const std::int32_t job = node->job.load(std::memory_order_acquire);
      if (job != unused) visit(static_cast<wire::JobId>(job), node->stats);
    }
  }

 private:
  static constexpr std::int32_t unused = -1;
  struct Node {
    JobStats stats;
    std::atomic<std::int32_t> job{unused};
    Node* next = nullptr;  // set before the node is published, never changed
  };
  std::atomic<Node*> head_{nullptr};
};

}  // namespace iswitch::pipeline
