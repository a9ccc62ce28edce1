"""Asynchronous jobs: members push gradients without waiting for each other, and all take the same updates in the same order."""

import ctypes
import threading
import time

from . import _library
from ._values import milliseconds, whole
from ._vectors import vector_of
from .errors import BadArgument, make
from .handle import WAIT_SLICE_MS

U32 = 0xFFFF_FFFF
EVENT_KINDS = ("joined", "gone", "reset")


class Update:
    """The sum of some members' pushes in one segment of the vector.

    values   the floats, a memoryview: torch.frombuffer(values, dtype=torch.float32) and numpy.frombuffer(values, 'f') take it
    first    element of the vector that values[0] belongs to
    segment  number of the segment; `number` counts its updates, growing by one and wrapping at 32 bits
    workers  pushes in the sum, at least 1: divide by it for the mean
    partial  whether it was forced before the threshold was met
    """

    __slots__ = ("first", "number", "partial", "segment", "values", "workers")

    def __init__(self, filled, values):
        self.values = values
        self.first, self.segment, self.number = filled.first, filled.segment, filled.number
        self.workers, self.partial = filled.workers, filled.partial != 0


class Event:
    """Why this member's weights do not follow from the updates any more. No update comes, and pushes fail, until resume().

    kind        "joined": the job was at work already when this member joined; "gone": an update was missed that the switch no
                longer keeps; "reset": the job was reset, and all take the weights of one of them
    base_round  that resume() wants
    untouched   "joined": no update has been made since base_round: resume(*numbers()) will do
    text        one line
    """

    __slots__ = ("base_round", "kind", "text", "untouched")

    def __init__(self, filled, text):
        self.kind = EVENT_KINDS[filled.kind] if filled.kind < len(EVENT_KINDS) else str(filled.kind)
        self.base_round, self.untouched, self.text = filled.base_round, filled.untouched != 0, text

    def __repr__(self):
        return f"<iswitch.Event {self.kind}: {self.text}>"


class AsynchronousMember:
    """What an Agent can do in an asynchronous job: one joined with async_elements."""

    def __init__(self):
        self._next_lock = threading.Lock()  # the library's next is for one thread at a time

    def push(self, gradient, *, timeout=None):
        """Contributes a gradient of async_elements floats; gives a Handle, done when all of it has become part of updates.

        Several may be under way. Pushes that an event overtakes fail."""
        vector = vector_of(gradient, "gradient", writable=False)
        return self._start(self._library.iswitch_push_start, (vector.address, vector.count), (vector,), None, timeout, tag=0)

    def request_reset(self):
        """Asks for a Reset of the job: pushes under way fail at all members, and all go on from one worker's weights."""
        self._library.iswitch_request_reset(self._pointer)

    def next(self, timeout=0.0):
        """Waits at most `timeout` seconds for the next Update or Event; None when neither came.

        Each update comes once, in order of its segment's numbers. They must be taken steadily: the switch keeps a few only. Raises
        what the membership failed with."""
        end = time.monotonic() + milliseconds("timeout", timeout) / 1000
        while True:
            left = max(0, round((end - time.monotonic()) * 1000))
            found = self._next(min(left, WAIT_SLICE_MS))
            if found is not None or time.monotonic() >= end:
                return found

    def _next(self, timeout_ms):
        capacity = self.segment_bytes // 4
        values = (ctypes.c_float * capacity)()
        update = _library.Update(values=ctypes.addressof(values), capacity=capacity)
        event = _library.Event()
        text = ctypes.create_string_buffer(_library.ERROR_SIZE)
        with self._next_lock:
            code = self._library.iswitch_next(self._pointer, timeout_ms, ctypes.byref(update), ctypes.byref(event), text,
                                              _library.ERROR_SIZE)
        if code == _library.PENDING:
            return None
        if code == 0:
            return Update(update, memoryview(values).cast("B").cast("f")[:update.count])
        line = text.value.decode("utf-8", "replace")
        if code == _library.EVENT:
            return Event(event, line)
        raise make(code, line)

    def numbers(self):
        """(base_round, the number of the last update taken, one a segment); between an event and resume() base_round for all."""
        base_round = ctypes.c_uint32()
        count = self._library.iswitch_numbers(self._pointer, ctypes.byref(base_round), None, 0)
        numbers = (ctypes.c_uint32 * count)()
        self._library.iswitch_numbers(self._pointer, ctypes.byref(base_round), numbers, count)
        return base_round.value, list(numbers)

    def resume(self, base_round, numbers):
        """After an event: the caller's weights contain the updates up to these numbers, one a segment (of the peer that they were
        taken from); newer ones come from now on."""
        try:
            given = [whole("a number", number, U32) for number in numbers]
        except TypeError:
            raise BadArgument(f"numbers is {numbers!r}, and must be a list of update numbers") from None
        _library.checked(self._library.iswitch_resume, self._pointer, whole("base_round", base_round, U32),
                         (ctypes.c_uint32 * len(given))(*given), len(given))
