"""Gradients of torch's DistributedDataParallel through the switch.

    torch.distributed.init_process_group("gloo")           # RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    with iswitch.join("10.77.0.254") as agent:
        model = DistributedDataParallel(net)
        model.register_comm_hook(iswitch.ddp.State(agent), iswitch.ddp.hook)
        ...                                                # the training loop as ever

DDP cannot be without a process group: its constructor compares the models' shapes and broadcasts rank 0's weights and buffers
through it, its first backward pass agrees on the buckets, and buffers (batch norm) are broadcast at each forward pass unless
broadcast_buffers=False. A gloo group does for that; it needs a TCP way between the hosts (behind the switch there is one; where
the host's name does not resolve to the right address set GLOO_SOCKET_IFNAME). The gradients go through the switch alone.

What a bucket's exchange fails with (iswitch.TimedOut, JobReset, ...) is raised by loss.backward(), once all of that pass's
exchanges are over; gradients that were not averaged are NaN then, so that a step made in spite of it is seen. Nothing waits
beyond the operations' deadlines. A rank cannot know whether the others finished a step that failed here: go on from weights made
equal anew, for instance by Agent.broadcast from one rank.
"""

import queue
import threading
import weakref

import torch
import torch.distributed as dist

from .errors import BadArgument, Error

# An exchange under way has its deadline; an exit does not wait for that.
END_SECONDS = 5


class State:
    """What the hook needs: `state` of register_comm_hook(). One for each DDP model, all of which must go through their backward
    passes in the same order on all ranks, as their operations share the job's order.

    `timeout`: deadline of a bucket's exchange in seconds, other ranks' computing included; None: the agent's operation_timeout.
    """

    def __init__(self, agent, timeout=None):
        if dist.is_initialized() and agent.whole_job and dist.get_world_size() != agent.size_expected:
            raise BadArgument(f"the process group has {dist.get_world_size()} ranks and the job {agent.size_expected} members; the "
                              "mean of the gradients needs them to be the same")
        self.agent = agent
        self.timeout = timeout
        self._pass = None
        self._exchanges = queue.SimpleQueue()
        thread = threading.Thread(target=_complete, args=(self._exchanges,), name="iswitch-ddp", daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._exchanges, thread)  # also at the interpreter's exit

    def _pass_of(self, bucket):
        """The backward pass that a bucket belongs to. DDP launches a pass's buckets in order, from index 0."""
        if self._pass is None or bucket.index() == 0:
            if self._pass is not None:
                self._pass.drain()
            self._pass = _Pass()
        return self._pass


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: the mean of a bucket over all members, in place; several buckets may be in flight."""
    backward = state._pass_of(bucket)
    gradients = bucket.buffer()
    exchange = _Exchange(backward, gradients)
    # An exception that left this function would pass through torch's reducer in the middle of its work.
    try:
        if backward.failure is None:
            exchange.handle = state.agent.all_reduce(gradients, op="mean", timeout=state.timeout, tag=bucket.index())
            backward.handles.append(exchange.handle)
    except Exception as failure:
        backward.fail(failure)
    state._exchanges.put(exchange)
    return exchange.future


class _Pass:
    """One backward pass: its exchanges, and the first failure among them."""

    def __init__(self):
        self.handles = []
        self.failure = None
        self._lock = threading.Lock()
        # torch turns an exception inside a future into a RuntimeError of its own. So the futures of a pass that failed carry NaN,
        # and the failure itself is raised at the end of the pass by a callback that runs after DDP's: queued by a callback that
        # was queued before DDP's or, in a static graph's first pass, is run after it.
        try:
            _at_end_of_backward(lambda: _at_end_of_backward(self._raise_failure))
            self.raises_at_end = True
        except RuntimeError:  # no backward pass is running: DDP's join() calls the hook by itself
            self.raises_at_end = False

    def fail(self, failure):
        with self._lock:
            if self.failure is None:
                self.failure = failure

    def drain(self):
        """Waits until nothing writes into the pass's buckets any more (all have ended unless the pass was broken off)."""
        for handle in self.handles:
            try:
                handle.wait()
            except Error:
                pass

    def _raise_failure(self):
        if self.failure is not None:
            raise self.failure


def _at_end_of_backward(callback):
    torch.autograd.Variable._execution_engine.queue_callback(callback)


class _Exchange:
    """One bucket on its way; `future` is what DDP waits for."""

    def __init__(self, backward, gradients):
        self._pass = backward
        self._gradients = gradients
        self._over = torch.futures.Future()
        self.handle = None  # none where the pass had failed already
        self.future = self._over.then(self._result)

    def complete(self):
        try:
            if self.handle is not None:
                self.handle.wait()
        except Exception as failure:  # whatever it is: DDP waits for the future without a deadline
            self._pass.fail(failure)
        self._over.set_result(None)

    def _result(self, _):
        failure = self._pass.failure
        if failure is not None:
            if not self._pass.raises_at_end:
                raise failure
            self._gradients.fill_(float("nan"))
        return self._gradients


def _complete(exchanges):
    """The State's thread: futures are completed in the order in which the exchanges were started."""
    while True:
        exchange = exchanges.get()
        if exchange is None:
            return
        exchange.complete()
        del exchange  # its gradients are not the thread's to keep until the next one comes


def _end(exchanges, thread):
    """Ends a State's thread. Were it inside of torch when the interpreter ends, the interpreter would stop it there, in the
    middle of C++ code, and that aborts the process."""
    exchanges.put(None)
    if thread is not threading.current_thread():  # which may be the one that lets go of the State
        thread.join(END_SECONDS)
