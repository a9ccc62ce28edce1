"""Workers of an iSwitch: sums, broadcasts and barriers through the switch, on torch tensors, numpy arrays and buffers.

    import iswitch

    with iswitch.join("10.77.0.254", job=1) as agent:      # rank, switch and key also from the environment
        agent.broadcast(weights, root=0).wait()
        handle = agent.all_reduce(gradient, op="mean")     # in place; several may be in flight
        ...                                                # compute meanwhile
        handle.wait()

All ranks issue the same operations in the same order. Results are bit-identical on all ranks of one operation, not across
runs: floats are added in the order in which they arrive. Every failure is an exception, see iswitch.errors; nothing waits
without a deadline. For torch's DistributedDataParallel: iswitch.ddp. Asynchronous jobs: join(async_elements=...), Agent.push, next.
"""

from ._library import ANY_MEMBER, ANY_RANK
from .agent import Agent, join
from .errors import (BadArgument, Closed, Error, Gone, Halted, InDoubt, JobReset, LibraryUnusable, Mismatch, NotJoined, Pending, Refused,
                     RootMissing, SwitchGone, SystemFailure, TimedOut)
from .handle import Handle
from .updates import Event, Update

__all__ = ["ANY_MEMBER", "ANY_RANK", "Agent", "BadArgument", "Closed", "Error", "Event", "Gone", "Halted", "Handle", "InDoubt", "JobReset",
           "LibraryUnusable", "Mismatch", "NotJoined", "Pending", "Refused", "RootMissing", "SwitchGone", "SystemFailure", "TimedOut",
           "Update", "join"]
