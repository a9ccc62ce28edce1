// This member's pushes in an asynchronous job (protocol.md section 5): one outstanding a slot, its
// number growing slot by slot; acknowledged by the first result that has this member's bit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/engine/engine.h"
#include "agent/engine/in_flight.h"
#include "agent/engine/operations.h"
#include "agent/engine/updates.h"
#include "wire/serial.h"

namespace iswitch::agent {

class Pushes {
 public:
  Pushes(const EngineOptions& options, Operations& operations, Statistics& statistics,
         const Updates& updates);

  /// A new place at the switch: numbers start after job.base_round.
  void begin(const wire::ReplyBody& job, wire::MemberId member, Time now);
  /// The switch has restarted and the stream of updates goes on: numbers are shifted with
  /// base_round, and what is outstanding goes again, once resume() has been called.
  void go_on(const wire::ReplyBody& job, wire::MemberId member, Time now);
  /// Who is in an update of this slot is not known: what is outstanding there may be, so it does
  /// not go again, and its operation fails with `error` when all else of it is done.
  void abandon(std::uint32_t slot, const Error& error, Time now);
  /// The newest number used, on the wire; base_round where none was.
  std::uint32_t newest_number() const;
  /// What the receive buffer holds has become known. Under way it counts from the next place on.
  void fit_window(Time now);
  void stop();
  bool active() const { return active_; }
  void pause() { in_flight_.pause(); }
  void resume(Time now) { in_flight_.resume(now); }
  bool paused() const { return in_flight_.paused(); }
  /// A push was added to the operations.
  void more(Time now);

  /// Slots with an unacknowledged push.
  std::uint32_t outstanding() const { return in_flight_.flight().outstanding(); }
  /// A result came for the first time that has this member's bit.
  void acknowledge(std::uint32_t slot, std::uint32_t workers, bool partial, bool marked, Time now);
  void duplicate(Time now) { in_flight_.duplicate(now); }
  /// Congestion Experienced was seen: the next push says so.
  void echo_mark() { in_flight_.echo_mark(); }
  /// Index of the operation whose push with this number is outstanding on the slot.
  std::optional<std::uint64_t> find(std::uint32_t slot, std::uint32_t number);
  void resend(std::uint32_t slot);
  /// This operation, still there, is about to fail. What was sent of it may be summed yet, so it
  /// stays outstanding and goes again until it is acknowledged (a result that has this member's bit
  /// because of it must not acknowledge the next push), and so does the rest of it.
  void give_up(std::uint64_t operation);
  /// Of all that were added so far nothing is sent any more. Numbers go on.
  void give_up_all();

  bool ready() const;  ///< transmit() has something to give now
  bool transmit(Outgoing& out, Time now);
  void tick(Time now) {
    if (active_) in_flight_.tick(now);
  }
  Time next_deadline() const { return active_ ? in_flight_.next_deadline() : never; }
  /// After which what has not been acknowledged is sent again.
  Time first_timeout() const { return in_flight_.first_timeout(); }
  void describe(Statistics& statistics) const { in_flight_.describe(statistics); }

 private:
  /// All members send their pushes in one order, by the update that each is meant for and then by
  /// slot, and the first one in that order goes out whatever the window: else members whose windows
  /// are full of different slots would wait for each other.
  struct Turn {
    std::uint32_t update = 0;  ///< number of the newest one known before it
    std::uint32_t slot = 0;
    friend bool operator>(const Turn& a, const Turn& b) {
      return a.update != b.update ? wire::serial_newer(a.update, b.update) : a.slot > b.slot;
    }
  };
  Turn turn_of(std::uint32_t slot) const { return {updates_.newest(slot), slot}; }
  /// Slots by turn, the first one in front. Turns only get later, so what is in front is right once
  /// it is found to be up to date.
  class Queue {
   public:
    /// Empty. Takes memory for so many.
    void reset(std::size_t most);
    void put(const Turn& turn);
    void take_first();
    std::size_t size() const { return heap_.size(); }
    /// Forgets what first() would, sooner or later.
    void tidy(const Pushes& pushes, bool (Pushes::*holds)(std::uint32_t) const);
    /// The first of those for which `holds`, after forgetting the others; null when there is none.
    const Turn* first(const Pushes& pushes, bool (Pushes::*holds)(std::uint32_t) const);

   private:
    std::vector<Turn> heap_;
  };
  bool waits_to_go(std::uint32_t slot) const {
    return !in_flight_.flight().is_outstanding(slot) && next_[slot] < operations_.end();
  }
  bool is_under_way(std::uint32_t slot) const {
    return in_flight_.flight().is_outstanding(slot) && !is_out_of_window_[slot];
  }
  struct Orphan;
  Orphan* orphan_of(std::uint64_t operation);
  void take_out_of_window(std::uint32_t slot);
  void forget_orphans();
  /// The operation that goes next on this slot, finished ones passed over unless they are orphans;
  /// operations_.end() if there is none.
  std::uint64_t upcoming(std::uint32_t slot);
  bool is_sendable(std::uint32_t slot) {
    return !in_flight_.flight().is_outstanding(slot) && upcoming(slot) != operations_.end();
  }
  void find_sendable();
  /// What goes now for the first time; null when nothing does.
  const Turn* fresh() const;
  /// under_way_ is tidied at so many.
  std::size_t most_under_way() const { return 2 * std::size_t{slots_} + 16; }
  std::uint32_t bytes_of(std::uint32_t slot) const;
  std::uint32_t number_of(std::uint64_t operation) const {
    return base_round_ + 1 + static_cast<std::uint32_t>(operation - first_operation_);
  }
  void write(const Segment& segment, Outgoing& out);

  const EngineOptions& options_;
  Operations& operations_;
  const Updates& updates_;
  InFlight in_flight_;

  bool active_ = false;
  wire::MemberId member_ = wire::no_member;
  std::uint32_t base_round_ = 0;
  std::uint32_t segment_bytes_ = 0;
  std::uint32_t slots_ = 0;  ///< of the vector
  std::uint16_t shards_ = 1;
  /// A push that was sent in part when its operation failed. The rest goes too: else some slots
  /// would have had one push less than others, and members would wait for each other on different
  /// slots.
  struct Orphan {
    std::uint64_t operation = 0;
    std::vector<float> gradient;
    std::uint32_t left = 0;  ///< slots that have not acknowledged it
  };
  std::vector<Orphan> orphans_;         ///< in order
  std::uint32_t out_of_window_ = 0;     ///< outstanding slots of orphans
  std::vector<bool> is_out_of_window_;  ///< by slot
  std::uint64_t first_operation_ = 0;   ///< index of the one with number base_round + 1
  // What goes next for the first time: slots go on by themselves, so that one which waits for its
  // acknowledgement does not hold up the others.
  std::vector<std::uint64_t> next_;  ///< by slot: index of an operation
  mutable Queue to_send_;            ///< slots of which is_sendable() is true
  mutable Queue under_way_;
};

}  // namespace iswitch::agent
