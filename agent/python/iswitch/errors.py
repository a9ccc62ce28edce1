"""What can go wrong, a class each. `str(error)` is the library's line: what happened, where, what to do."""


class Error(Exception):
    """Any failure of iSwitch. `code` is the ISWITCH_ERROR_... of iswitch.h, or None for those that the module finds itself."""

    code = None


class NotJoined(Error):
    """No membership: it was not reached, or has been given up."""

    code = 1


class Refused(Error):
    """The switch refused the Join."""

    code = 2


class TimedOut(Error):
    """The operation's deadline passed. `missing`: ids of the members that had not contributed, as far as the switch could tell.

    The operation is over: unlike after Pending, waiting again only tells the same."""

    code = 3

    def __init__(self, text, missing=()):
        super().__init__(text)
        self.missing = tuple(missing)


class JobReset(Error):
    """A member joined a running job, a member or an operator reset it, or it could not go on after a restart of its switch: what was
    under way is lost, the next operations start anew on all ranks."""

    code = 4


class SwitchGone(Error):
    """The switch said that it ends, or does not answer."""

    code = 5


class Halted(Error):
    """The job is halted, and the operation's deadline passed."""

    code = 6


class Mismatch(Error):
    """The ranks disagree about the operation: its kind, length, root or tag."""

    code = 7


class Gone(Error):
    """The result is no longer kept: this member fell too far behind."""

    code = 8


class BadArgument(Error, ValueError):
    """The call cannot be right: an option, or a vector that is not what the switch sums."""

    code = 9


class Closed(Error):
    """The agent has left, or belongs to the process that this one was forked from."""

    code = 10


class SystemFailure(Error):
    """The machine refused something: a socket, memory."""

    code = 11


class RootMissing(Error):
    """A broadcast that was forced to its end lacks the root's data."""

    code = 12


class InDoubt(Error):
    """An asynchronous push whose acknowledgement got lost with a switch that restarted: it may be in the sums or not. Nothing else is
    lost, and the next push goes its usual way."""

    code = 13


class Pending(Error, TimeoutError):
    """`wait(timeout)`: not done within that time. No failure: the operation goes on, and may be waited for again."""

    code = 100


class LibraryUnusable(Error):
    """libiswitch-agent.so was not found, or is not the one this module was written for."""


BY_CODE = {kind.code: kind for kind in (NotJoined, Refused, TimedOut, JobReset, SwitchGone, Halted, Mismatch, Gone, BadArgument,
                                        Closed, SystemFailure, RootMissing, InDoubt, Pending)}


def make(code, text):
    """The exception for a code of the library; an Error where a newer library has one that this module does not know."""
    kind = BY_CODE.get(code)
    if kind is not None:
        return kind(text)
    error = Error(text)
    error.code = code
    return error
