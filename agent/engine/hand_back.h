// Results on their way back to a switch that has restarted (protocol.md section 9): each is sent
// again until a result of its slot comes that is not older, within a window and with time-outs like
// contributions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "agent/engine/engine.h"
#include "agent/engine/in_flight.h"
#include "agent/engine/kept.h"

namespace iswitch::agent {

class HandBack {
 public:
  /// What is said of a slot, at most once each: a kept result, or (asynchronous) that there is
  /// none.
  struct Item {
    std::uint32_t slot = 0;
    std::uint32_t round = 0;  ///< on the wire, in the switch's new life
    const KeptResult* kept = nullptr;
    bool done = false;
  };

  HandBack(const EngineOptions& options, const KeptResults& kept, Statistics& statistics)
      : options_(options), kept_(kept), statistics_(statistics), in_flight_(options, statistics) {}

  void begin(std::vector<Item> items, const wire::ReplyBody& job, Time now);
  void stop();
  /// Something has not been answered yet.
  bool active() const { return left_ != 0; }
  void pause() { in_flight_.pause(); }
  void resume(Time now) { in_flight_.resume(now); }
  bool paused() const { return in_flight_.paused(); }

  /// A result of this slot came. True when it is the first one that answers what was handed back
  /// there. To be told before the result is kept.
  bool answered(std::uint32_t slot, std::uint32_t round, bool marked, Time now);
  /// The switch asked for this one: it goes again at once.
  void resend(std::uint32_t slot);
  /// Somebody asked for an update that is kept here: it goes once, the asker asks again. Not before
  /// what is handed back of the slot is answered.
  void once(std::uint32_t slot, std::uint64_t number, std::uint32_t round);

  bool ready() const;
  bool transmit(Outgoing& out, Time now);
  void tick(Time now) {
    if (active()) in_flight_.tick(now);
  }
  Time next_deadline() const { return active() ? in_flight_.next_deadline() : never; }

 private:
  static constexpr std::size_t most_once = 32;
  static constexpr std::uint32_t none = UINT32_MAX;
  struct Once {
    std::uint32_t slot = 0;
    std::uint32_t round = 0;
    std::uint64_t number = 0;
  };

  bool fresh_may_go() const;
  void skip_done(Time now);
  void write(std::uint32_t slot, std::uint32_t round, const KeptResult* kept, Outgoing& out);

  const EngineOptions& options_;
  const KeptResults& kept_;
  Statistics& statistics_;
  InFlight in_flight_;  // a position is an index in items_
  std::vector<Item> items_;
  std::vector<std::uint32_t> index_;  // by slot: its item, or none
  std::uint32_t left_ = 0;
  std::uint32_t segment_bytes_ = 0;
  std::uint16_t shards_ = 1;
  std::array<Once, most_once> once_{};
  std::size_t once_head_ = 0;
  std::size_t once_count_ = 0;
};

}  // namespace iswitch::agent
