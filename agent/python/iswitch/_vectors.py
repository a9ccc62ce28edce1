"""The memory of a torch tensor, a numpy array or any object with the buffer protocol, as the library takes it.

torch is never imported here: who passes a tensor has imported it. numpy arrays come in by the buffer protocol.
"""

import ctypes
import sys

from .errors import BadArgument

FLOAT_BYTES = 4


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C interface. Read-only objects have an address by this way alone."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


class _Export:
    """Holds an object's buffer: as long as this lives, the object neither frees nor moves it."""

    def __init__(self, owner, release=_release_buffer):
        self._view = _PyBuffer()
        self._release = None
        _get_buffer(owner, ctypes.byref(self._view), 0)
        self._release = release
        self.address = self._view.buf

    def __del__(self):
        if self._release is not None:
            self._release(ctypes.byref(self._view))


class Vector:
    """`count` floats at `address`, which stay there as long as this object lives."""

    __slots__ = ("address", "count", "_keep")

    def __init__(self, address, count, keep):
        self.address = address
        self.count = count
        self._keep = keep


def vector_of(given, name, writable):
    """A Vector over the memory of `given`, called `name` in errors. Raises BadArgument naming what to do."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return _of_tensor(torch, given, name)
    return _of_buffer(given, name, writable)


def _of_tensor(torch, tensor, name):
    if tensor.device.type != "cpu":
        raise BadArgument(f"{name} is a tensor on {tensor.device}; the switch sums from the host's memory: pass {name}.cpu()")
    if tensor.layout != torch.strided:
        raise BadArgument(f"{name} is a tensor of layout {tensor.layout}; pass {name}.to_dense()")
    if tensor.dtype != torch.float32:
        raise BadArgument(f"{name} is a tensor of {tensor.dtype}; the switch sums float32: pass {name}.float()")
    if not tensor.is_contiguous():
        raise BadArgument(f"{name} is a tensor with strides {tuple(tensor.stride())} that is not contiguous; pass {name}.contiguous()")
    if tensor.is_neg():
        raise BadArgument(f"{name} is a tensor whose sign is only noted, not in its memory; pass {name}.resolve_neg()")
    return Vector(tensor.data_ptr(), tensor.numel(), tensor)


def _of_buffer(given, name, writable):
    try:
        view = memoryview(given)
    except TypeError:
        raise BadArgument(f"{name} is a {type(given).__name__}; pass a torch tensor, a numpy array or another object with the "
                          "buffer protocol") from None
    except (BufferError, ValueError) as problem:  # what numpy cannot say by the buffer protocol
        raise BadArgument(f"{name}: {problem}; pass float32 values, contiguous") from None
    if view.format not in ("f", "@f", "=f") and not (view.format == "<f" and sys.byteorder == "little"):
        raise BadArgument(f"{name} holds items of format {view.format!r}; the switch sums float32, format 'f': pass "
                          f"{name}.astype('float32') of a numpy array, memoryview({name}).cast('f') of raw bytes")
    if not view.c_contiguous:
        raise BadArgument(f"{name} is not contiguous (strides {view.strides}); pass numpy.ascontiguousarray({name})")
    if writable and view.readonly:
        raise BadArgument(f"{name} is read-only, and the result goes there; pass a copy, or another output")
    export = _Export(view)
    return Vector(export.address, view.nbytes // FLOAT_BYTES, export)
