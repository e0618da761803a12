"""Tensors that are still in their file: shape and dtype are known, the numbers are read when asked for.

So a checkpoint is understood, and refused if need be, before its bytes are touched, and a model is filled tensor by
tensor: opening one never takes much more memory than its largest tensor beyond the result.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .arrays import widened


class Stored(Protocol):
    """One tensor of a file. The file has to stay open until the tensor is read."""

    @property
    def shape(self) -> "tuple[int, ...]": ...

    @property
    def dtype(self) -> np.dtype:
        """What `read` gives."""

    def read(self) -> np.ndarray:
        """The numbers: an array of its own, in C order and native byte order."""


_LARGE, _PIECE = 1 << 24, 1 << 21  # bytes


def pieces(tensor: Stored) -> Iterator[tuple[int, np.ndarray]]:
    """All rows of a tensor with the number of the first, a few MiB at a time where its file can be read so: the word
    table is a sixth of the model and would be in memory twice."""
    nbytes = math.prod(tensor.shape) * tensor.dtype.itemsize
    if nbytes <= _LARGE or not getattr(tensor, "in_rows", False):
        yield 0, tensor.read()
        return
    rows = tensor.shape[0]
    step = max(1, _PIECE * rows // nbytes)
    for start in range(0, rows, step):
        yield start, tensor.read_rows(start, min(start + step, rows))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Held:
    """An array that is in memory already."""

    array: np.ndarray

    @property
    def shape(self) -> "tuple[int, ...]":
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    def read(self) -> np.ndarray:
        return self.array


@dataclass(frozen=True)
class Turned:
    """A matrix that the file holds the other way round, [out, in] for [in, out]."""

    inner: Stored

    @property
    def shape(self) -> "tuple[int, ...]":
        return self.inner.shape[::-1]

    @property
    def dtype(self) -> np.dtype:
        return self.inner.dtype

    def read(self) -> np.ndarray:
        return self.inner.read().T


@dataclass(frozen=True)
class Widened:
    """bfloat16 that the file holds as the uint16 of its bits, as float32."""

    inner: Stored

    @property
    def shape(self) -> "tuple[int, ...]":
        return self.inner.shape

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def read(self) -> np.ndarray:
        return widened(self.inner.read())


def same_values(one: Stored, other: Stored) -> bool:
    """Whether two tensors are equal, by reading both unless they are one."""
    return one is other or (one.shape == other.shape and np.array_equal(one.read(), other.read()))
