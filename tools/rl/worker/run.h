// One worker, from joining to its last line.
#pragma once

#include "tools/rl/core/failure.h"
#include "tools/rl/worker/options.h"

namespace iswitch::rl {

/// Runs until the time or the iterations are over or stop_soon() was called on any worker. Rows and
/// the summary go to stdout.
Failure run_worker(WorkerOptions options);

/// All workers stop together at the end of an iteration. Safe in a signal handler.
void stop_soon();

}  // namespace iswitch::rl
