// Prepared contributions out of a net_null port, and the check of what comes back. net_null hands
// out whatever its pool's buffers hold, so the gradients are written into them once and a receive
// callback writes the headers: real ones, with UDP checksums. All of it runs on the lcore under
// test.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "switchd/datapath/datapath.h"
#include "wire/checksum.h"
#include "wire/frame.h"

namespace iswitch::bench {

struct FeedConfig {
  datapath::SwitchAddress address;
  unsigned jobs = 1;  ///< with ids from first_job, all with the same members
  wire::JobId first_job = 1;
  unsigned members = 4;
  std::uint32_t segment_bytes = 1440;
  std::uint32_t slots = 1024;  ///< of a job; of all shards
  std::uint16_t shard = 0;     ///< whose segments these are, of address.rules.ports
  std::uint32_t base_round = 1;
  bool udp_checksum = true;
};

class Feed {
 public:
  /// Members send blocks of so many segments in turn, as workers with a window do.
  static constexpr std::uint32_t block = 16;
  /// Bursts between two samples of progress().
  static constexpr std::uint64_t sample_interval = 64;

  explicit Feed(const FeedConfig& config);

  datapath::MemberSpec member(unsigned index) const;

  /// Writes the gradient into every buffer of the pool. Buffer i holds pattern x (1 + i mod 4).
  void fill(rte_mempool* pool);

  /// Makes `count` received buffers the next contributions.
  void generate(rte_mbuf** burst, unsigned count);
  /// Looks at what is sent: results must be the sums of what was generated.
  void check(rte_mbuf* const* burst, unsigned count);

  /// Processor time of the thread that generates, and what it had generated then; sampled now and
  /// then, so that a machine shared with others gives figures of its own share. Any thread.
  struct Progress {
    std::int64_t cpu_nanoseconds = 0;
    std::uint64_t generated = 0;
  };
  Progress progress() const;

  // Read when the lcore has stopped.
  std::uint64_t generated() const { return generated_; }
  std::uint64_t results() const { return results_; }
  std::uint64_t wrong() const { return wrong_; }
  std::uint64_t checked_whole() const { return checked_whole_; }

 private:
  static constexpr unsigned scales = 4;

  std::uint16_t shards() const { return std::max<std::uint16_t>(config_.address.rules.ports, 1); }
  void write_contribution(rte_mbuf* frame);
  void advance();
  bool is_right(const rte_mbuf* frame);
  bool whole_is_right(const rte_mbuf* frame, const float* payload, float scale);

  FeedConfig config_;
  struct Template {
    std::array<std::uint8_t, wire::payload_offset> bytes{};
    wire::PartialSum udp_sum =
        0;  ///< pseudo header, UDP and iSwitch header; job, round and segment zero
  };
  std::vector<Template> templates_;
  std::vector<float> pattern_;
  std::array<wire::PartialSum, scales> payload_sums_{};

  // The next contribution.
  unsigned job_ = 0;  // from 0
  unsigned member_ = 0;
  std::uint32_t slots_;      // of the shard
  std::uint32_t first_ = 0;  // slot of the block
  std::uint32_t place_ = 0;  // within the block
  std::uint32_t round_;
  std::vector<float> expected_;  // by job and slot: the sum of its contributions' scales

  std::atomic<std::int64_t> cpu_nanoseconds_{0};
  std::atomic<std::uint64_t> generated_then_{0};
  std::uint64_t bursts_ = 0;
  std::uint64_t generated_ = 0;
  std::uint64_t results_ = 0;
  std::uint64_t wrong_ = 0;
  std::uint64_t checked_whole_ = 0;
};

}  // namespace iswitch::bench
