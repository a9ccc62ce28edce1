// The jobs of a shard.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "switchd/pipeline/classify.h"
#include "switchd/pipeline/job.h"
#include "switchd/pipeline/job_stats.h"

namespace iswitch::pipeline {

inline constexpr std::uint32_t max_slots = 1u << 22;
inline constexpr std::uint64_t max_kept = 1u << 24;  ///< slots x history

/// What this datapath can run: float32 jobs within its limits.
inline bool is_supported(const datapath::JobSpec& spec) {
  return spec.data_type == wire::DataType::float32 && spec.slots >= 1 && spec.slots <= max_slots &&
         spec.history >= 1 && std::uint64_t{spec.slots} * spec.history <= max_kept &&
         spec.segment_bytes >= wire::min_segment_bytes &&
         spec.segment_bytes <= wire::max_segment_bytes &&
         spec.segment_bytes % wire::min_segment_bytes == 0;
}

template <class Handle>
class JobTable {
 public:
  JobTable() : index_(std::size_t{1} << 16, nullptr) {}

  const JobIndex& index() const { return index_; }
  /// By job id; null where there is none.
  Job<Handle>* find(wire::JobId id) const { return static_cast<Job<Handle>*>(index_[id]); }

  /// False when the id is taken, the spec not supported or memory short; nothing has changed then.
  bool install(const datapath::JobSpec& spec, const ShardPlace& place) {
    if (index_[spec.id] != nullptr || !is_supported(spec)) return false;
    try {
      auto job = std::make_unique<Job<Handle>>(spec, place.share_of(spec.slots));
      jobs_.reserve(jobs_.size() + 1);
      job->stats = &stats_.open(spec.id);
      job->place = static_cast<std::uint32_t>(jobs_.size());
      index_[spec.id] = job.get();
      jobs_.push_back(std::move(job));
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  /// The job's slots have been cleared.
  void remove(Job<Handle>& job) {
    stats_.close(*job.stats);
    index_[job.spec.id] = nullptr;
    const std::uint32_t place = job.place;
    std::swap(jobs_[place], jobs_.back());
    jobs_[place]->place = place;
    jobs_.pop_back();
  }

  std::size_t size() const { return jobs_.size(); }
  Job<Handle>& at(std::size_t place) const { return *jobs_[place]; }
  const JobStatsList& stats() const { return stats_; }

 private:
  JobIndex index_;
  std::vector<std::unique_ptr<Job<Handle>>> jobs_;
  JobStatsList stats_;
};

}  // namespace iswitch::pipeline
