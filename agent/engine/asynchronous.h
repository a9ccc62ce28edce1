// The member of an asynchronous job: what it pushes, what it gets, what it lacks.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/engine/asking.h"
#include "agent/engine/engine.h"
#include "agent/engine/operations.h"
#include "agent/engine/pushes.h"
#include "agent/engine/updates.h"

namespace iswitch::agent {

struct Asynchronous {
  Asynchronous(const EngineOptions& options, Operations& operations, Statistics& statistics)
      : pushes(options, operations, statistics), asking(options.max_retransmit) {}

  enum class Phase : std::uint8_t {
    unbegun,  ///< the job has not run yet while this was a member
    probing,  ///< it ran before this member came: has anything happened? Then waiting
    waiting,  ///< for weights: an event was told, resume() is awaited
    live
  };

  Phase phase = Phase::unbegun;
  bool saw_forming = false;  ///< nothing can have happened before this member was there
  Pushes pushes;
  Updates updates;
  Asking asking;
  std::optional<Event> event;
  Error why;  ///< waiting: what a push fails with
  Time probe_at = never;
  Time probe_interval = 0;
};

}  // namespace iswitch::agent
