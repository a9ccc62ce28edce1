// A process that forks leaves its child a copy of the agent without the agent's thread, possibly
// with a lock held, and with the agent's descriptors. The child must not use the copy; here it
// learns that it is one, and gives up the descriptors, so that a child which outlives its parent
// does not keep the member's UDP port from the restarted worker.
#pragma once

#include <cstdint>

namespace iswitch::agent {

/// Differs between a process and the children that it forks.
std::uint32_t fork_generation();

/// Children forked from now on close `fd`. False: no room, and nothing changes.
bool close_in_children(int fd);
void forget_in_children(int fd);

}  // namespace iswitch::agent
