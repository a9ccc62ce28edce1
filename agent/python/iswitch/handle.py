"""An operation under way: what may be asked of it, and what it keeps alive."""

import ctypes
import time

from . import _library
from ._values import milliseconds
from .errors import Pending, TimedOut, make

# Between two of them Python looks for signals: a wait ends at once on Ctrl-C.
WAIT_SLICE_MS = 100


class Operation:
    """Owns the library's operation, and the vectors that the library reads and writes until it is done.

    Held by its Handle and, until it is done, by its Agent: so a Handle may be dropped without waiting."""

    __slots__ = ("_free", "_library", "pointer", "vectors")

    def __init__(self, library, pointer, vectors):
        self._library = library
        self._free = library.iswitch_operation_free
        self.pointer = pointer
        self.vectors = vectors

    def done(self):
        return self._library.iswitch_operation_done(self.pointer) != 0

    def wait(self, timeout_ms):
        """(code, text) of the outcome, or of PENDING."""
        text = ctypes.create_string_buffer(_library.ERROR_SIZE)
        code = self._library.iswitch_operation_wait(self.pointer, timeout_ms, text, _library.ERROR_SIZE)
        return code, text.value.decode("utf-8", "replace")

    def missing(self):
        count = self._library.iswitch_operation_missing(self.pointer, None, 0)
        members = (ctypes.c_uint16 * count)()
        self._library.iswitch_operation_missing(self.pointer, members, count)
        return list(members)

    def partial(self):
        return self._library.iswitch_operation_partial(self.pointer) != 0

    def smallest_workers(self):
        return self._library.iswitch_operation_smallest_workers(self.pointer)

    def __del__(self):
        self._free(self.pointer)


class Handle:
    """An operation under way or done. Dropping it does not cancel. May be used from several threads."""

    def __init__(self, agent, operation, output):
        self._agent = agent  # an agent that nobody holds any more leaves
        self._operation = operation
        self._output = output

    @property
    def done(self):
        """Whether it is done, well or not."""
        return self._operation.done()

    def wait(self, timeout=None):
        """Waits until the operation is done, at most `timeout` seconds (None: as its own deadline allows), and gives the output:
        the tensor or array that holds the result (None for a barrier).

        Raises Pending when it is not done within `timeout`, and what the operation failed with: TimedOut, JobReset, SwitchGone,
        Halted, Mismatch, Gone, Closed, RootMissing. After a failure the output's contents are undefined."""
        end = None if timeout is None else time.monotonic() + milliseconds("timeout", timeout) / 1000
        while True:
            left = WAIT_SLICE_MS
            if end is not None:
                left = min(left, max(0, round((end - time.monotonic()) * 1000)))
            code, text = self._operation.wait(left)
            if code == 0:
                return self._output
            if code != _library.PENDING:
                raise self._failure(code, text)
            if end is not None and time.monotonic() >= end:
                raise Pending(f"the operation is not done within {timeout} s; its own deadline may be later")

    def _failure(self, code, text):
        if code == TimedOut.code:
            return TimedOut(text, self._operation.missing())
        return make(code, text)

    @property
    def partial(self):
        """Whether some segment was summed before its threshold was met (forced). Raises as wait() does if it failed; waits."""
        self.wait()
        return self._operation.partial()

    @property
    def smallest_workers(self):
        """Fewest workers in any segment's sum; a mean divides by each segment's own number. Waits, and raises as wait() does."""
        self.wait()
        return self._operation.smallest_workers()
