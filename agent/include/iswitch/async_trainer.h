// A training loop over an asynchronous job, as in the iSwitch paper: one thread computes gradients
// on a copy of the weights and pushes them unless they are stale, another takes the updates and
// applies them. Weights on all workers take the same steps in the same order, so they are the same
// bits whenever no update is under way.
//
//   AsyncTrainer trainer(agent, initial_weights, {.apply = step, .fetch = from_a_peer});
//   auto error = trainer.run([&](std::span<const float> weights, std::span<float> gradient) {
//     ...                              // on this thread
//     return more_to_do;
//   });
//
// Counting. A *whole update* k is update base_round + k of every segment; it is applied once all
// its slices are there, each divided by its own number of workers. Segments may be a few updates
// apart for a moment, so slices wait for the others (UpdateAssembler). *Version* is how many whole
// updates the weights contain since base_round: the smallest count over the segments. A gradient
// that was computed on version v is, at version w, w - v updates old.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "iswitch/agent.h"

namespace iswitch {

/// A slice that waits for the others of its whole update; already divided by its workers.
struct PendingSlice {
  std::uint32_t segment = 0;
  std::uint32_t number = 0;
  std::vector<float> values;
};

/// Whole updates from slices.
class ISWITCH_API UpdateAssembler {
 public:
  /// A vector of `elements` floats whose segments have `segment_elements`.
  UpdateAssembler(std::size_t elements, std::size_t segment_elements);

  /// As a member is after numbers() or a peer's numbers: `version` whole updates are contained, and
  /// `pending` slices of later ones are there. False when they do not fit together.
  bool restart(const UpdateNumbers& numbers, std::uint64_t version,
               std::vector<PendingSlice> pending);
  /// The next slice of its segment; false when it is not.
  bool add(const SliceUpdate& slice);
  /// The next whole update's means into `mean` (of all elements), if all its slices are there.
  bool take(std::span<float> mean);

  const UpdateNumbers& numbers() const { return numbers_; }  ///< of the slices added
  std::uint64_t version() const { return version_; }         ///< whole updates taken
  std::vector<PendingSlice> pending() const;

 private:
  struct Whole {
    std::size_t slices = 0;
    std::vector<float> values;
    std::vector<bool> there;  // by segment
  };
  std::size_t segment_size(std::uint32_t segment) const;
  Whole& whole(std::uint32_t number);

  std::size_t elements_, segment_elements_, segments_;
  UpdateNumbers numbers_;
  std::uint64_t version_ = 0;
  std::uint32_t next_ = 0;                  // number of the next whole update
  std::map<std::uint32_t, Whole> waiting_;  // by distance from base_round, so that numbers may wrap
};

/// Everything that a member needs to go on from another's weights.
struct TrainerSnapshot {
  UpdateNumbers numbers;
  std::uint64_t version = 0;
  std::vector<float> weights;
  std::vector<float> optimiser;  ///< what AsyncTrainerCallbacks::save_optimiser gave
  std::vector<PendingSlice> pending;

  /// Bytes for a peer, and back; nothing when they are not a snapshot.
  ISWITCH_API std::vector<std::uint8_t> encode() const;
  ISWITCH_API static std::optional<TrainerSnapshot> decode(std::span<const std::uint8_t> bytes);
};

enum class CatchUp : std::uint8_t {
  start,   ///< the trainer begins
  joined,  ///< as MemberEventKind
  gone,
  reset
};

/// A peer's snapshot, or none: this member's own weights are the ones from which all go on (the
/// first member at the start, the one chosen after a Reset).
using Fetched = std::optional<TrainerSnapshot>;

struct AsyncTrainerCallbacks {
  /// One optimiser step, on the trainer's thread, while nobody else sees the weights. Equal inputs
  /// must give equal bits on all workers.
  std::function<void(std::span<float> weights, std::span<const float> mean_gradient)> apply{};
  /// The optimiser's state, if it has any; on the trainer's thread or that of snapshot(), never
  /// along with apply.
  std::function<std::vector<float>()> save_optimiser{};
  std::function<void(std::span<const float>)> load_optimiser{};
  /// Weights from a peer, on the trainer's thread; called again while it gives an error, until
  /// catch_up_timeout. `base_round` is that which the snapshot must have. Without a callback every
  /// worker keeps its own weights at the start, and an event ends the training.
  std::function<Expected<Fetched>(CatchUp why, std::uint32_t base_round)> fetch{};
};

struct AsyncTrainerOptions {
  unsigned max_staleness = 3;     ///< S: older gradients are dropped
  unsigned pushes_in_flight = 1;  ///< more of them hide the network, and make gradients older
  /// A push that is not summed in that time fails. With a threshold below the number of members
  /// give the job a force_after_ms: segments group different workers' pushes, so that workers may
  /// wait for each other in a circle.
  std::chrono::milliseconds push_timeout{30'000};
  std::chrono::milliseconds catch_up_timeout{30'000};
  std::chrono::milliseconds catch_up_retry{20};  ///< between two calls of fetch
  /// Nobody has had weights with an update that is gone for so long: the job is Reset, and all go
  /// on from one worker's weights.
  std::chrono::milliseconds reset_after{2'000};
};

struct AsyncTrainerStatistics {
  std::uint64_t pushed = 0;              ///< gradients sent
  std::uint64_t dropped = 0;             ///< too old, or while this member was catching up
  std::uint64_t failed = 0;              ///< pushes that ended with an error
  std::uint64_t applied = 0;             ///< whole updates
  std::uint64_t catch_ups = 0;           ///< snapshots taken, but for the start
  std::vector<std::uint64_t> staleness;  ///< [n]: gradients that were n updates old when done
};

class ISWITCH_API AsyncTrainer {
 public:
  /// `agent` joined an asynchronous job with weights.size() elements, has not been asked for
  /// updates, and outlives the trainer. Begins to take updates at once.
  AsyncTrainer(Agent& agent, std::vector<float> weights, AsyncTrainerCallbacks callbacks,
               const AsyncTrainerOptions& options = {});
  /// Stops; pushes under way are given up.
  ~AsyncTrainer();
  AsyncTrainer(const AsyncTrainer&) = delete;
  AsyncTrainer& operator=(const AsyncTrainer&) = delete;

  /// Computes and pushes until `compute` gives false or the training fails.
  AgentError run(const std::function<bool(std::span<const float> weights,
                                          std::span<float> gradient)>& compute);

  // The same by hand, from one thread.

  /// Copies the newest weights, waiting while this member catches up.
  AgentError read_weights(std::span<float> weights);
  /// Pushes a gradient computed on what read_weights() gave last, unless it is too old: false in
  /// that case. Waits while `pushes_in_flight` are under way; a push that failed as its deadline
  /// passed is told here.
  Expected<bool> push(std::span<const float> gradient);
  /// Waits until the pushes under way have ended; true when all have.
  bool wait_for_pushes(std::chrono::milliseconds time);
  /// They end at once; parts of them may be summed yet.
  void give_up_pushes();

  // From any thread.

  /// For a peer; nothing while this member has no weights of its own to give (it catches up).
  std::optional<TrainerSnapshot> snapshot() const;
  UpdateNumbers numbers() const;  ///< of the updates in the weights and the pending slices
  std::uint64_t version() const;
  std::vector<float> weights() const;
  AsyncTrainerStatistics statistics() const;
  /// Why the training ended; no error while it goes on.
  AgentError failure() const;

 private:
  struct __attribute__((visibility("hidden"))) State;
  std::unique_ptr<State> state_;
};

}  // namespace iswitch
