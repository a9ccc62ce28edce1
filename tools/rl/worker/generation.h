// How workers come to the same state, at the start and whenever the job was reset.
//
// A generation begins with one sum in which each worker tells, in its own place, how many updates
// it has made; the one with most (the lowest rank among equals) broadcasts its whole state, and all
// load it: the sender too, so that nothing depends on who sent. Experience under way is given up.
// So a restarted worker, which has made none, takes the others' state, and a worker that missed the
// last update before a reset catches up.
#pragma once

#include "tools/rl/algorithms/algorithm.h"
#include "tools/rl/core/failure.h"
#include "tools/rl/exchanges/exchange.h"

namespace iswitch::rl {

Failure begin_generation(Exchange& exchange, Algorithm& algorithm);

/// Compares the weights' digests of all workers; `equal` is the same on every worker. One that has
/// left the job does not count.
Failure compare_weights(Exchange& exchange, const Algorithm& algorithm, bool& equal);

}  // namespace iswitch::rl
