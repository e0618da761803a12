"""What the NumPy names in a pickle build: arrays known by shape and dtype, their bytes still in the file."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Optional, Union

import numpy as np

from .errors import CheckpointError
from .files import Form, Span
from .pickles import AllowList, Global, Refused, Stateful

# Fixed-size numbers only: no objects, records, strings or dates.
_CODES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
_ORDERS = frozenset("<>|=")
_MAX_AXES = 32

Data = Union[bytes, Span]


class StoredDtype(Stateful):
    """`numpy.dtype(code, False, True)` and, after its state, the dtype with its byte order."""

    def __init__(self, arguments: tuple) -> None:
        code = arguments[0] if arguments else None
        if type(code) is not str or code not in _CODES:
            shown = ascii(code[:40]) if type(code) is str else f"a {type(code).__name__}"
            raise Refused(f"an array of dtype {shown}; only plain numbers are read")
        self._code = code
        self.value: Optional[np.dtype] = None

    def set_state(self, state: Any) -> None:
        if self.value is not None:
            raise Refused("a dtype that is described twice")
        # (version, byte order, sub-array, names, fields, size, alignment, flags)
        plain = type(state) is tuple and len(state) == 8 and type(state[1]) is str and state[1] in _ORDERS
        if not plain or any(part is not None for part in state[2:5]):
            raise Refused("a dtype with fields or sub-arrays; only plain numbers are read")
        self.value = np.dtype(state[1] + self._code)


class StoredArray(Stateful):
    """An array left in its file: `shape` and `dtype` are known, `read` copies the bytes once.

    The file has to stay open until then.
    """

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype = np.dtype(np.uint8)
        self.nbytes = 0
        self._order: Literal["C", "F"] = "C"
        self._data: Data = b""
        self.complete = False  # until the file has described the array, and not only announced it

    def set_state(self, state: Any) -> None:
        if self.complete:
            raise Refused("an array that is described twice")
        if type(state) is not tuple or len(state) != 5:
            raise Refused("an array whose description is not (version, shape, dtype, order, bytes)")
        _, shape, dtype, fortran, data = state
        self.shape = _checked_shape(shape)
        self.dtype = _checked_dtype(dtype)
        self._order = "F" if fortran == 1 else "C"
        self._data = _checked_data(data)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self._check_length()
        self.complete = True

    def _check_length(self) -> None:
        length = len(self._data) if isinstance(self._data, bytes) else self._data.length
        # A byte of 128 or more takes two in UTF-8, so a text is at most twice as long. `read` counts them.
        latin1 = isinstance(self._data, Span) and self._data.form is Form.LATIN1
        if not (self.nbytes <= length <= 2 * self.nbytes if latin1 else self.nbytes == length):
            raise Refused(f"{self._needs()} but has {length}")

    def _needs(self) -> str:
        return f"an array of shape {list(self.shape)} and dtype {self.dtype} needs {self.nbytes} bytes"

    @property
    def in_rows(self) -> bool:
        """Whether `read_rows` can be asked: the rows lie one after another in the file, and byte for byte."""
        whole = isinstance(self._data, Span) and self._data.form is not Form.LATIN1
        return whole and self._order == "C" and len(self.shape) > 1

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows from `start` to before `stop`, as `read` gives them."""
        assert isinstance(self._data, Span)
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        flat = np.empty((stop - start) * row, np.uint8)
        self._data._replace(offset=self._data.offset + start * row, length=flat.size).copy_to(flat)
        rows = flat.view(self.dtype).reshape(stop - start, *self.shape[1:])
        return np.asarray(rows, dtype=self.dtype.newbyteorder("="))

    def read(self) -> np.ndarray:
        """The array itself: C order, native byte order, writable, its memory its own."""
        flat = np.empty(self.nbytes, np.uint8)
        if isinstance(self._data, bytes):
            flat[:] = np.frombuffer(self._data, np.uint8)
        else:
            came = self._data.copy_to(flat)
            if came != self.nbytes:
                raise CheckpointError(
                    f"{self._data.source.path} is corrupt: {self._needs()} but has {came}. "
                    "Download or copy the file again."
                )
        array = flat.view(self.dtype).reshape(self.shape, order=self._order)
        return np.asarray(array, dtype=self.dtype.newbyteorder("="), order="C")


def _checked_shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if type(shape) is tuple else (None,)
    if len(sizes) > _MAX_AXES or not all(type(size) is int and size >= 0 for size in sizes):
        raise Refused(f"an array whose shape is not a tuple of at most {_MAX_AXES} sizes")
    # An axis of size 0 hides the others from the count of bytes.
    if math.prod(max(size, 1) for size in shape) >= 2**48:
        raise Refused("an array whose shape is too large for any file")
    return shape


def _checked_dtype(dtype: Any) -> np.dtype:
    if type(dtype) is not StoredDtype or dtype.value is None:
        raise Refused("an array without a complete dtype")
    return dtype.value


def _checked_data(data: Any) -> Data:
    if type(data) is str:  # a Python 2 string
        return _latin1((data, "latin1"))
    if type(data) is bytes or (type(data) is Span and data.form is not Form.TEXT):
        return data
    raise Refused(f"an array whose bytes are a {type(data).__name__}")


def _latin1(arguments: tuple) -> Data:
    """`_codecs.encode(text, "latin1")`: how protocol 2 spells bytes."""
    if len(arguments) != 2 or type(arguments[1]) is not str or arguments[1] != "latin1":
        raise Refused("_codecs.encode with an encoding other than latin1")
    text = arguments[0]
    if type(text) is Span and text.form is Form.TEXT:
        return text._replace(form=Form.LATIN1)
    try:
        if type(text) is str:
            return text.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise Refused("_codecs.encode of something that is no latin1 text")


def _announce(arguments: tuple) -> StoredArray:
    """`_reconstruct(numpy.ndarray, (0,), b"b")`: an empty array that a description follows."""
    kind = arguments[0] if arguments else None
    if len(arguments) != 3 or type(kind) is not Global or kind.name != "numpy.ndarray":
        raise Refused("_reconstruct of something other than numpy.ndarray")
    return StoredArray()


_RECONSTRUCT = "_reconstruct"
NUMPY: AllowList = {
    ("numpy.core.multiarray", _RECONSTRUCT): _announce,  # NumPy 1
    ("numpy._core.multiarray", _RECONSTRUCT): _announce,  # NumPy 2
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): StoredDtype,
    ("_codecs", "encode"): _latin1,
}


def check_writable(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuses, with all of them named, what no weight file holds."""
    wrong = [
        f"{name!r} ({getattr(array, 'dtype', type(array).__name__)})"
        for name, array in arrays.items()
        if not (isinstance(name, str) and isinstance(array, np.ndarray) and array.dtype.str[1:] in _CODES)
    ]
    if wrong:
        raise CheckpointError(f"A checkpoint holds NumPy arrays of numbers by name, but got {', '.join(wrong)}.")


def widened(bits: np.ndarray) -> np.ndarray:
    """bfloat16, given as the uint16 of its bits, as float32: the same values exactly, in the same shape."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
