// One thread a worker: several workers share a machine, and these networks are too small to split.
#pragma once

namespace iswitch::rl {

/// Before the first tensor is made.
void use_one_thread();

}  // namespace iswitch::rl
