"""Joining a job, and what a member may do."""

import collections
import ctypes
import os
import threading
import weakref

from . import _library
from ._values import milliseconds, whole
from ._vectors import vector_of
from .errors import BadArgument, Error
from .handle import Handle, Operation
from .updates import AsynchronousMember

U16, U32 = 0xFFFF, 0xFFFF_FFFF


def join(switch=None, *, job=1, rank=None, size=None, key_file=None, local_address=None, local_port=0, join_timeout=30.0,
         operation_timeout=30.0, window_bytes=0, ecn=False, caller_driven=False, member=None, async_elements=0,
         device=None, resume_within=10.0):
    """Joins a job, waits until it runs, and gives the Agent: to be used in a with statement, whose end leaves.

    switch             IPv4 of the switch, or "IPv4:port"; None: ISWITCH_SWITCH of the environment
    job                job id
    rank               this worker's number in the whole job, or ANY_RANK; None: RANK of the environment, any if that is not set
    size               members that the job must have; None: WORLD_SIZE of the environment, not looked at if that is not set, nor
                       where `member` is given: then the switch has a part of the job only
    key_file           the job's key, mode 0600; None: ISWITCH_KEY_FILE of the environment, no key if that is not set
    local_address      IPv4 to bind; None: what the route gives
    local_port         UDP port to bind, 0: any. A fixed one lets a restarted worker take its place at once
    join_timeout       seconds until the job runs
    operation_timeout  seconds, the default deadline of operations
    resume_within      seconds for which operations wait for a switch that has lost this member's place or has gone (it restarts, or a
                       standby takes its address over), and go on then as if nothing had been; 0: they fail at once
    window_bytes       most gradient bytes in flight; 0: what buffers and slots allow
    ecn                ask the network for congestion marks
    member             wanted member id at the switch, or ANY_MEMBER, where that is not the rank: behind a leaf switch of a larger job
    async_elements     above 0: the job is asynchronous (push, next), and this the length of its vector in floats
    device             a DPDK device that this process takes for itself, by which no kernel is on the way, such as
                       "net_memif0,socket=/run/iswitch/memif.sock,id=2"; needs local_address. None: ISWITCH_DEVICE of the environment,
                       kernel UDP if that is not set
    caller_driven      no thread of the library's: the agent moves in wait() and progress() alone

    Raises BadArgument, Refused, SwitchGone, NotJoined, SystemFailure, LibraryUnusable, each with a text that says what to do.
    """
    switch = switch or os.environ.get("ISWITCH_SWITCH")
    if not switch:
        raise BadArgument("no switch is named: pass switch='10.77.0.254', or set ISWITCH_SWITCH")
    rank = _from_environment("rank", rank, "RANK", _library.ANY_RANK, most=U16 - 1, least=_library.ANY_RANK)
    size = _from_environment("size", size, "WORLD_SIZE", None, most=U16, least=1)
    key_file = key_file or os.environ.get("ISWITCH_KEY_FILE")
    device = device or os.environ.get("ISWITCH_DEVICE")
    options = _library.Options(
        switch_address=os.fsencode(switch), job=whole("job", job, U16), rank=rank,
        key_file=os.fsencode(key_file) if key_file else None,
        local_address=os.fsencode(local_address) if local_address else None,
        local_port=whole("local_port", local_port, U16),
        join_timeout_ms=milliseconds("join_timeout", join_timeout, U32),
        operation_timeout_ms=milliseconds("operation_timeout", operation_timeout, U32),
        window_bytes=whole("window_bytes", window_bytes, U32), ecn=bool(ecn), caller_driven=bool(caller_driven),
        member=_library.MEMBER_IS_RANK if member is None else whole("member", member, U16 - 1, _library.ANY_MEMBER),
        async_elements=whole("async_elements", async_elements, U32 * 16), device=os.fsencode(device) if device else None,
        resume_within_ms=milliseconds("resume_within", resume_within, U32))
    library = _library.load()
    agent = Agent(library, _join(library, options), whole_job=member is None)
    if size is not None and agent.whole_job and agent.size_expected != size:
        agent.close()
        raise BadArgument(f"job {job} at {switch} has {agent.size_expected} members, not the {size} of size or WORLD_SIZE")
    return agent


def _from_environment(name, given, variable, default, most, least):
    if given is not None:
        return whole(name, given, most, least)
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        return whole(f"{variable} in the environment", int(text), most, least)
    except ValueError:
        raise BadArgument(f"{variable} in the environment is {text!r}, and must be a whole number in {least}..{most}") from None


def _join(library, options):
    """The library's agent. On a thread of its own, so that Ctrl-C ends the wait for other ranks; whoever gives up meanwhile
    leaves when the join is through."""
    outcome, given_up, lock = [], [], threading.Lock()

    def work():
        pointer = ctypes.c_void_p()
        try:
            _library.checked(library.iswitch_agent_join, ctypes.byref(options), ctypes.byref(pointer))
            result = pointer.value
        except Error as error:
            result = error
        with lock:
            outcome.append(result)
            unwanted = bool(given_up)
        if unwanted and not isinstance(result, Error):
            library.iswitch_agent_free(result)

    thread = threading.Thread(target=work, name="iswitch-join", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        with lock:
            given_up.append(True)
            joined = [result for result in outcome if not isinstance(result, Error)]
        for pointer in joined:
            library.iswitch_agent_free(pointer)
        raise
    if isinstance(outcome[0], Error):
        raise outcome[0]
    return outcome[0]


class Agent(AsynchronousMember):
    """A membership in a job, made by join(). May be used from several threads.

    Starting an operation takes vectors of float32, contiguous and in host memory: torch tensors, numpy arrays, anything with the
    buffer protocol; any shape, and the same number of elements on all ranks. They must not be written (an output: not read
    either) until the operation is done, and are kept alive until then, also when the Handle is dropped.

    `timeout` is the operation's own deadline in seconds (None: the agent's operation_timeout). `tag` (32 bits) must be equal on
    all ranks; where they disagree on it or on the operation all get Mismatch instead of a wrong sum.
    """

    def __init__(self, library, pointer, whole_job):
        super().__init__()
        self._library = library
        self._pointer = pointer
        self.whole_job = whole_job  # whether `size` members are all there are: not behind one of several switches
        self._in_flight = collections.deque()
        self._lock = threading.Lock()  # two threads must not both take away the oldest
        # Also at the interpreter's exit: the library's thread must not write into memory that is gone.
        self._finalizer = weakref.finalize(self, _free, library, pointer, self._in_flight)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<iswitch.Agent rank {self.rank} of {self.size}>"

    # ---- operations

    def all_reduce(self, input, output=None, *, op="sum", timeout=None, tag=0):
        """Sums (op="sum") or averages (op="mean") elementwise over all members; gives a Handle.

        In place unless `output` is given, which holds as many elements as `input` and is the same memory or disjoint."""
        if op not in _library.REDUCTIONS:
            raise BadArgument(f"op is {op!r}, and must be 'sum' or 'mean'")
        target = input if output is None else output
        to = vector_of(target, "input" if output is None else "output", writable=True)
        source = to if output is None else vector_of(input, "input", writable=False)
        if source.count != to.count:
            raise BadArgument(f"input has {source.count} elements and output {to.count}; they must have the same number")
        return self._start(self._library.iswitch_all_reduce_start, (source.address, to.address, to.count, _library.REDUCTIONS[op]),
                           (source, to), target, timeout, tag)

    def broadcast(self, data, root=0, *, timeout=None, tag=0):
        """Fills `data` on all members with that of member `root`; gives a Handle."""
        vector = vector_of(data, "data", writable=True)
        return self._start(self._library.iswitch_broadcast_start, (vector.address, vector.count, whole("root", root, U16 - 1)),
                           (vector,), data, timeout, tag)

    def barrier(self, *, timeout=None, tag=0):
        """Done when all members have called it; gives a Handle."""
        return self._start(self._library.iswitch_barrier_start, (), (), None, timeout, tag)

    def _start(self, function, arguments, vectors, output, timeout, tag):
        options = _library.OperationOptions(timeout_ms=-1 if timeout is None else milliseconds("timeout", timeout),
                                            tag=whole("tag", tag, U32))
        pointer = ctypes.c_void_p()
        _library.checked(function, self._pointer, *arguments, ctypes.byref(options), ctypes.byref(pointer))
        operation = Operation(self._library, pointer.value, vectors)
        self._in_flight.append(operation)
        self._release_done()
        return Handle(self, operation, output)

    def _release_done(self):
        """Operations end about in order, and all within their deadlines: it is enough to look at the oldest."""
        done = []  # let go of without the lock: what dies with them may be anybody's
        with self._lock:
            while self._in_flight and self._in_flight[0].done():
                done.append(self._in_flight.popleft())

    def progress(self, seconds=0.0):
        """Caller-driven agents: moves what can be moved, waiting at most `seconds` for more."""
        self._library.iswitch_agent_progress(self._pointer, milliseconds("seconds", seconds) * 1000)

    # ---- membership

    @property
    def rank(self):
        """This worker's number in the whole job."""
        return self._library.iswitch_agent_rank(self._pointer)

    @property
    def member(self):
        """This member's id at its switch."""
        return self._library.iswitch_agent_member(self._pointer)

    @property
    def size(self):
        """Members now, of this switch."""
        return self._library.iswitch_agent_size(self._pointer)

    @property
    def size_expected(self):
        """Members of this switch that the job is made for."""
        return self._library.iswitch_agent_size_expected(self._pointer)

    @property
    def segment_bytes(self):
        """Gradient bytes a packet."""
        return self._library.iswitch_agent_segment_bytes(self._pointer)

    def statistics(self):
        """Counters and estimates since the join, by the names of iswitch_statistics."""
        filled = _library.Statistics()
        self._library.iswitch_agent_statistics(self._pointer, ctypes.byref(filled))
        return {name: getattr(filled, name) for name, _ in _library.Statistics._fields_ if name != "size"}

    def leave(self):
        """Ends the membership. Operations under way and later ones fail with Closed. Raises what the leaving failed with."""
        _library.checked(self._library.iswitch_agent_leave, self._pointer)

    def close(self):
        """Leaves, if it has not left yet; whether the switch has heard it does not matter here. What a with statement does."""
        try:
            self.leave()
        except Error:
            pass


def _free(library, pointer, in_flight):
    library.iswitch_agent_free(pointer)  # ends what was under way
    in_flight.clear()
