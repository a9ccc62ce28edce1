// The member of an asynchronous job: what it pushes, what it gets, what it lacks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/engine/asking.h"
#include "agent/engine/engine.h"
#include "agent/engine/operations.h"
#include "agent/engine/pushes.h"
#include "agent/engine/updates.h"

namespace iswitch::agent {

struct Asynchronous {
  Asynchronous(const EngineOptions& options, Operations& operations, Statistics& statistics)
      : pushes(options, operations, statistics, updates), asking(options) {}

  enum class Phase : std::uint8_t {
    unbegun,  ///< the job has not run yet while this was a member
    probing,  ///< it ran before this member came: has anything happened? Then waiting
    waiting,  ///< for weights: an event was told, resume() is awaited
    live
  };

  // Here, and to the user, updates are numbered from the stream's origin on: a restart of the
  // switch shifts the numbers on the wire alone.
  std::uint32_t origin = 0;
  std::uint32_t shift = 0;                   ///< number on the wire = number + shift
  std::optional<std::uint32_t> told_origin;  ///< by the reply to the Join
  std::uint32_t slots = 0;                   ///< of the job, as it began
  std::uint32_t segment_bytes = 0;           ///< likewise
  std::uint32_t base_round() const { return origin + shift; }

  /// After a restart: what each slot still waits for before pushes go again.
  struct Settling {
    enum class Stage : std::uint8_t {
      unanswered,   ///< this member has said what it has; the switch has not said what there is
      catching_up,  ///< updates up to `target` are missing here
      done
    };
    std::vector<Stage> stage;           ///< by segment
    std::vector<std::uint32_t> target;  ///< by segment
    std::vector<std::uint32_t> had;     ///< by segment: the newest update from before the restart
    std::uint32_t left = 0;             ///< not done
    Time progress_at = 0;
    bool active() const { return left != 0; }
  };
  Settling settling;

  /// The switch's sums had all its members in them when it was last heard before it was lost.
  bool waited_for_all = false;

  /// By segment: a bit in a result may be that of a predecessor under this member's id, since it
  /// came to a job that ran already and none of its own pushes has been acknowledged there yet.
  std::vector<bool> bit_in_doubt;

  Phase phase = Phase::unbegun;
  bool saw_forming = false;  ///< nothing can have happened before this member was there
  Pushes pushes;
  Updates updates;
  Asking asking;
  std::optional<Event> event;
  Error why;  ///< waiting: what a push fails with
  /// Waiting since this update is gone: weights without it are no help.
  struct Gone {
    std::uint32_t segment = 0;
    std::uint32_t number = 0;
  };
  std::optional<Gone> gone;
  Time probe_at = never;
  Time probe_interval = 0;
};

}  // namespace iswitch::agent
