// The operations under way, in the order of submission, and the completions not yet taken.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "agent/engine/engine.h"

namespace iswitch::agent {

struct Operation {
  OperationId id = 0;
  std::uint64_t index = 0;  ///< in Operations
  Request request;
  Time submitted = 0;
  std::uint32_t tag = 0;
  // Where it lies in the stream; known once it has been cut.
  std::uint64_t first = 0;     ///< position of its first segment
  std::uint64_t segments = 0;  ///< 0: not cut yet
  std::uint64_t done = 0;
  bool finished = false;
  bool partial = false;
  std::uint32_t smallest_workers = 0;
  Error error;  ///< found while other segments are still under way (root_missing)

  /// When to ask the switch who is missing, at the latest.
  Time inquiry() const;
};

class Operations {
 public:
  explicit Operations(Statistics& statistics) : statistics_(statistics) {}

  OperationId next_id() { return next_id_++; }

  Operation& add(OperationId id, const Request& request, Time now);
  /// Ends an operation that was never added.
  void complete_at_once(OperationId id, Error error);

  bool empty() const { return queue_.empty(); }
  /// Index of the oldest and one past that of the newest; indices grow by one and never repeat.
  std::uint64_t begin() const { return first_index_; }
  std::uint64_t end() const { return first_index_ + queue_.size(); }
  Operation& at(std::uint64_t index) { return queue_[index - first_index_]; }

  /// Cuts everything that has not been cut, behind `next_position`; gives the position after the
  /// last.
  std::uint64_t cut(std::uint64_t next_position, std::uint32_t segment_bytes);
  /// The operation whose segment lies at `position`; null when none does.
  Operation* covering(std::uint64_t position);

  /// One more segment has its result; the last one completes the operation.
  void segment_done(Operation& operation, std::uint32_t workers, bool partial);

  /// This one ends with `error`, the others go on.
  void fail_one(std::uint64_t index, const Error& error);
  /// Everything ends: the operation `culprit` with `error`, the others with `others`.
  void fail_all(OperationId culprit, const Error& error, const Error& others);
  void fail_all(const Error& error) { fail_all(0, error, error); }
  /// Failures by fail_all() whose completion has not been taken: who submits now cannot know of
  /// them.
  bool failure_untaken() const { return failures_untaken_ != 0; }

  /// First deadline and first inquiry() of all that is under way; may be early, never late.
  Time earliest_deadline() const { return earliest_deadline_; }
  Time earliest_inquiry() const { return earliest_inquiry_; }
  /// The operation whose deadline has passed; null when none has. Makes the two times above exact.
  Operation* overdue(Time now);

  std::optional<Completion> take();

 private:
  struct Ended {
    Completion completion;
    bool by_failure = false;
  };
  void note_times(const Operation& operation);
  void forget_finished();

  Statistics& statistics_;
  std::deque<Operation> queue_;
  std::uint64_t first_index_ = 0;
  std::uint64_t uncut_ = 0;  // index of the first that is not cut
  OperationId next_id_ = 1;
  std::deque<Ended> ended_;
  std::uint64_t failures_untaken_ = 0;
  Time earliest_deadline_ = never;
  Time earliest_inquiry_ = never;
};

}  // namespace iswitch::agent
