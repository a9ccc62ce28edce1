// What the pipeline counts. A name starts with the stage that counts it. Every received frame ends
// in exactly one *terminal* counter, so that the terminal counters of a shard add up to its
// parse_received; the others count work and events beside that.
//
// One lcore writes a counter set, anybody may read it at any time: values are relaxed atomics, each
// right by itself, not a snapshot together.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "wire/header.h"

namespace iswitch::pipeline {

// X(name, terminal)
// parse_drop_* stand in the order of wire::Fault.
#define ISWITCH_PIPELINE_COUNTERS(X)                                                              \
  X(parse_received, false)                                                                        \
  X(parse_drop_truncated, true)                                                                   \
  X(parse_drop_vlan, true)                                                                        \
  X(parse_drop_ip_options, true)                                                                  \
  X(parse_drop_fragment, true)                                                                    \
  X(parse_drop_ip_checksum, true)                                                                 \
  X(parse_drop_udp_length, true)                                                                  \
  X(parse_drop_udp_checksum, true)                                                                \
  X(parse_drop_control_port, true)                                                                \
  X(parse_drop_short_header, true)                                                                \
  X(parse_drop_version, true)                                                                     \
  X(parse_drop_type, true)                                                                        \
  X(parse_drop_reserved_bits, true)                                                               \
  X(parse_drop_payload_alignment, true)                                                           \
  X(parse_drop_payload_length, true)                                                              \
  X(parse_drop_action, true)                                                                      \
  X(parse_drop_control_length, true)                                                              \
  X(parse_drop_control_fields, true)                                                              \
  X(classify_drop_unknown_job, true)      /* no job with this id */                               \
  X(classify_drop_not_a_member, true)     /* source and ingress match no row */                   \
  X(classify_drop_result, true)           /* a result, and no parent to take it from */           \
  X(classify_drop_result_source, true)    /* a result from somebody else than the parent */       \
  X(classify_drop_result_stopped, true)   /* a result while the job is stopped */                 \
  X(classify_drop_result_malformed, true) /* port, segment, type, length or no workers */         \
  X(classify_drop_wrong_port, true)       /* another shard's segment or UDP port */               \
  X(classify_drop_segment, true)          /* segment >= slots */                                  \
  X(classify_drop_data_type, true)        /* not the one agreed at Join */                        \
  X(classify_drop_length, true)           /* payload above the job's segment_bytes */             \
  X(classify_drop_workers, true)          /* a worker that does not stand for 1 */                \
  X(classify_drop_forming, true)          /* the job is forming, or stopped for a Reset */        \
  X(classify_drop_halted, true)                                                                   \
  X(aggregate_added, true)                                                                        \
  X(aggregate_handed_back, true) /* after a restart: a result that a member had is taken */       \
  X(aggregate_replayed, true)    /* its result is kept: answered with it */                       \
  X(aggregate_passed_up, true)   /* its result is kept, of what operation the parent knows */     \
  X(aggregate_drop_duplicate, true)                                                               \
  X(aggregate_drop_late, true)        /* its sum waits for the parent's result, without it */     \
  X(aggregate_drop_incarnation, true) /* asynchronous: an earlier life of its member */           \
  X(aggregate_drop_mismatch, true)    /* another operation tag or length than the sum's */        \
  X(aggregate_drop_ahead, true)                                                                   \
  X(aggregate_drop_stale, true)                                                                   \
  X(aggregate_drop_unexpected, true) /* handed back, and no such result is wanted */              \
  X(aggregate_drop_unsettled, true)  /* asynchronous: before all have said what they have */      \
  X(aggregate_drop_no_buffer, true)  /* payload memory exhausted; the sender repeats it */        \
  X(aggregate_opened, false)         /* sums begun */                                             \
  X(aggregate_completed, false)      /* sums that met their threshold */                          \
  X(aggregate_forced, false)         /* sums completed by FBcast or force_after */                \
  X(parent_taken, true)              /* results of the parent that went to the members */         \
  X(parent_answered, true)           /* kept already; sent to members whose part was passed up */ \
  X(parent_drop_again, true)         /* kept already */                                           \
  X(parent_drop_old, true)           /* too old to be kept, or from before the base round */      \
  X(parent_drop_no_buffer,                                                                        \
    true)                    /* payload memory exhausted; members repeat and so it comes again */ \
  X(deliver_results, false)  /* results sent for the first time */                                \
  X(deliver_replays, false)  /* kept results sent again to one member */                          \
  X(deliver_copies, false)   /* frames of both handed to the sink */                              \
  X(deliver_up, false)       /* sums sent to the parent for the first time */                     \
  X(deliver_up_again, false) /* sums and parts sent to the parent otherwise */                    \
  X(notice_sent, false)                                                                           \
  X(notice_coalesced, false) /* the same was said less than a millisecond ago */                  \
  X(control_passed, true)                                                                         \
  X(control_drop_full, true)                                                                      \
  X(l2_forwarded, true)                                                                           \
  X(l2_flooded, true)                                                                             \
  X(l2_drop_same_port, true)                                                                      \
  X(l2_drop_to_self, true) /* to the switch's own address, and nothing it answers */              \
  X(l2_drop_no_port, true)                                                                        \
  X(l2_drop_bad_source, true)                                                                     \
  X(l2_drop_link_local, true) /* spanning tree, pause, LLDP: never forwarded */                   \
  X(l2_drop_runt, true)                                                                           \
  X(local_arp_answered, true)                                                                     \
  X(local_echo_answered, true)                                                                    \
  X(local_drop_malformed, true)

enum class Counter : std::uint16_t {
#define X(name, terminal) name,
  ISWITCH_PIPELINE_COUNTERS(X)
#undef X
      count_
};

inline constexpr std::size_t counter_count = static_cast<std::size_t>(Counter::count_);

struct CounterInfo {
  const char* name;
  bool terminal;  ///< a received frame may end here
};

inline constexpr std::array<CounterInfo, counter_count> counter_infos{{
#define X(name, terminal) {#name, terminal},
    ISWITCH_PIPELINE_COUNTERS(X)
#undef X
}};

inline constexpr const char* counter_name(Counter counter) {
  return counter_infos[static_cast<std::size_t>(counter)].name;
}
inline constexpr bool counter_is_terminal(Counter counter) {
  return counter_infos[static_cast<std::size_t>(counter)].terminal;
}

/// The counter of a malformed frame; `fault` is not none.
inline constexpr Counter parse_drop(wire::Fault fault) {
  return static_cast<Counter>(static_cast<unsigned>(Counter::parse_drop_truncated) +
                              static_cast<unsigned>(fault) -
                              static_cast<unsigned>(wire::Fault::truncated));
}
static_assert(parse_drop(wire::Fault::vlan) == Counter::parse_drop_vlan);
static_assert(parse_drop(wire::Fault::udp_checksum) == Counter::parse_drop_udp_checksum);
static_assert(parse_drop(wire::Fault::action) == Counter::parse_drop_action);
static_assert(parse_drop(wire::Fault::count_) == Counter::classify_drop_unknown_job);

/// A number that one thread writes and any thread may read.
class Tally {
 public:
  void add(std::uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void set(std::uint64_t n) { value_.store(n, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// The counters of one shard.
class Counters {
 public:
  void add(Counter counter, std::uint64_t n = 1) {
    values_[static_cast<std::size_t>(counter)].add(n);
  }
  std::uint64_t get(Counter counter) const {
    return values_[static_cast<std::size_t>(counter)].get();
  }

 private:
  alignas(64) std::array<Tally, counter_count> values_{};
};

/// Calls visit(const char* name, std::uint64_t value, bool terminal) for each counter.
template <class Visit>
void for_each_counter(const Counters& counters, Visit&& visit) {
  for (std::size_t i = 0; i < counter_count; ++i) {
    const auto counter = static_cast<Counter>(i);
    visit(counter_infos[i].name, counters.get(counter), counter_infos[i].terminal);
  }
}

}  // namespace iswitch::pipeline
