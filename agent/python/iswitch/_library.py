"""libiswitch-agent.so by ctypes: where it is found, and the declarations of iswitch.h that the module uses.

Calls made through ctypes.CDLL release the interpreter's lock, so other threads run while one waits for the switch.
"""

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

from .errors import LibraryUnusable, make

ABI_VERSION = 0
SONAME = f"libiswitch-agent.so.{ABI_VERSION}"
ERROR_SIZE = 1024

ANY_RANK = ANY_MEMBER = -1
MEMBER_IS_RANK = -2
REDUCTIONS = {"sum": 0, "mean": 1}
PENDING, EVENT = 100, 101


class Sized(ctypes.Structure):
    """A struct that begins with its own size, by which the library knows how much of it the caller knows."""

    def __init__(self, **values):
        super().__init__(size=ctypes.sizeof(type(self)), **values)


class Options(Sized):
    _fields_ = [("size", c_size_t), ("switch_address", c_char_p), ("local_address", c_char_p), ("key_file", c_char_p),
                ("rank", c_int32), ("job", c_uint16), ("local_port", c_uint16), ("join_timeout_ms", c_uint32),
                ("operation_timeout_ms", c_uint32), ("window_bytes", c_uint32), ("ecn", c_uint8), ("caller_driven", c_uint8),
                ("member", c_int32), ("async_elements", c_uint64), ("device", c_char_p), ("resume_within_ms", c_uint32)]


class OperationOptions(Sized):
    _fields_ = [("size", c_size_t), ("timeout_ms", c_int64), ("tag", c_uint32)]


class Statistics(Sized):
    _fields_ = [("size", c_size_t), *((name, c_uint64) for name in (
        "contributions_sent", "retransmissions", "results", "duplicate_results", "gradient_bytes_sent",
        "gradient_bytes_received", "operations_done", "operations_failed", "resets", "send_calls", "receive_calls",
        "smoothed_rtt_ns", "retransmit_timeout_ns", "ecn_marks")), ("window_bytes", c_uint32), ("updates", c_uint64), ("helps", c_uint64),
        ("resumes", c_uint64)]


class Update(Sized):
    _fields_ = [("size", c_size_t), ("values", c_void_p), ("capacity", c_size_t), ("count", c_size_t), ("first", c_uint64),
                ("segment", c_uint32), ("number", c_uint32), ("workers", c_uint16), ("partial", c_uint8)]


class Event(Sized):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("base_round", c_uint32), ("untouched", c_uint8)]


# Vectors are passed as addresses, agents and operations are opaque.
_AGENT = _OPERATION = _FLOATS = c_void_p
_ERROR = (c_char_p, c_size_t)
_START = (POINTER(OperationOptions), POINTER(_OPERATION), *_ERROR)

DECLARATIONS = {
    "iswitch_version": (c_char_p, ()),
    "iswitch_abi_version": (c_int, ()),
    "iswitch_agent_join": (c_int, (POINTER(Options), POINTER(_AGENT), *_ERROR)),
    "iswitch_agent_leave": (c_int, (_AGENT, *_ERROR)),
    "iswitch_agent_free": (None, (_AGENT,)),
    "iswitch_agent_rank": (c_uint16, (_AGENT,)),
    "iswitch_agent_member": (c_uint16, (_AGENT,)),
    "iswitch_agent_size": (c_uint16, (_AGENT,)),
    "iswitch_agent_size_expected": (c_uint16, (_AGENT,)),
    "iswitch_agent_segment_bytes": (c_uint32, (_AGENT,)),
    "iswitch_agent_progress": (None, (_AGENT, c_uint64)),
    "iswitch_agent_statistics": (c_int, (_AGENT, POINTER(Statistics))),
    "iswitch_all_reduce_start": (c_int, (_AGENT, _FLOATS, _FLOATS, c_size_t, c_int, *_START)),
    "iswitch_broadcast_start": (c_int, (_AGENT, _FLOATS, c_size_t, c_uint16, *_START)),
    "iswitch_barrier_start": (c_int, (_AGENT, *_START)),
    "iswitch_push_start": (c_int, (_AGENT, _FLOATS, c_size_t, *_START)),
    "iswitch_request_reset": (None, (_AGENT,)),
    "iswitch_next": (c_int, (_AGENT, c_int64, POINTER(Update), POINTER(Event), *_ERROR)),
    "iswitch_numbers": (c_size_t, (_AGENT, POINTER(c_uint32), POINTER(c_uint32), c_size_t)),
    "iswitch_resume": (c_int, (_AGENT, c_uint32, POINTER(c_uint32), c_size_t, *_ERROR)),
    "iswitch_operation_done": (c_int, (_OPERATION,)),
    "iswitch_operation_wait": (c_int, (_OPERATION, c_int64, *_ERROR)),
    "iswitch_operation_missing": (c_size_t, (_OPERATION, POINTER(c_uint16), c_size_t)),
    "iswitch_operation_partial": (c_int, (_OPERATION,)),
    "iswitch_operation_smallest_workers": (c_uint32, (_OPERATION,)),
    "iswitch_operation_free": (None, (_OPERATION,)),
}


def candidates():
    """Where the library may be, best first: (how that is known, what to load)."""
    named = os.environ.get("ISWITCH_LIBRARY")
    if named:
        return [("ISWITCH_LIBRARY", named)]  # what was asked for, or nothing
    found = []
    try:
        from ._installed import LIBRARY  # written by meson install
        found.append(("installed with this module", LIBRARY))
    except ImportError:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        if os.path.isfile(os.path.join(root, "agent", "include", "iswitch.h")):
            # Other build directories are for ISWITCH_LIBRARY to name: a sanitizer's library would end this process.
            found.append(("built in this tree", os.path.join(root, "build", "release", "agent", SONAME)))
    return [*found, ("the loader's search path", SONAME)]


def open_library():
    tried = []
    for how, name in candidates():
        if os.sep in name and not os.path.isfile(name):
            tried.append(f"{name} ({how}): no such file")
            continue
        try:
            return name, ctypes.CDLL(name)
        except OSError as problem:
            tried.append(f"{name} ({how}): {problem}")
    raise LibraryUnusable("libiswitch-agent.so cannot be loaded; build it, or set ISWITCH_LIBRARY to its file. Tried: "
                          + "; ".join(tried))


@functools.lru_cache(maxsize=None)
def load():
    """The library with its functions declared. Raises LibraryUnusable."""
    name, library = open_library()
    try:
        version = library.iswitch_abi_version
    except AttributeError:
        raise LibraryUnusable(f"{name} has no iswitch_abi_version: it is no iSwitch library, or one older than this module; "
                              "install both from one build") from None
    if version() != ABI_VERSION:
        raise LibraryUnusable(f"{name} has ABI version {version()}, this module needs {ABI_VERSION}; install both from one build")
    for function, (result, arguments) in DECLARATIONS.items():
        try:
            bound = getattr(library, function)
        except AttributeError:
            raise LibraryUnusable(f"{name} has no {function}: it is older than this module; install both from one build") from None
        bound.restype, bound.argtypes = result, arguments
    return library


def checked(function, *arguments):
    """Calls a function whose last two parameters take an error text; raises what it reports."""
    text = ctypes.create_string_buffer(ERROR_SIZE)
    code = function(*arguments, text, ERROR_SIZE)
    if code != 0:
        raise make(code, text.value.decode("utf-8", "replace"))
