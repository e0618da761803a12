"""Two checkpoints of any format and dialect, tensor by tensor under our names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Optional

import numpy as np

from .described import by_our_names
from .errors import PathLike
from .opening import open_checkpoint
from .stored import Stored

_PIECE = 1 << 20  # numbers compared at a time


@dataclass(frozen=True)
class Difference:
    """One tensor that is not the same on both sides.

    Args:
        name: ours, without prefix; a tensor that means no parameter has its own.
        kind: "only in A", "only in B", "shape", "dtype" (the same values in another precision) or "values".
        told: the difference in words.
        largest: the largest absolute difference of two numbers; None where there is none to take, infinity where a
            number stands beside one that is not finite.
    """

    name: str
    kind: str
    told: str
    largest: Optional[float] = None


@dataclass
class Comparison:
    """What two checkpoints share and where they part. `dialects` are those of A and B."""

    dialects: "tuple[str, str]"
    equal: "list[str]" = field(default_factory=list)
    differences: "list[Difference]" = field(default_factory=list)


def compare_checkpoints(
    a: PathLike, b: PathLike, *, dialect_a: Optional[str] = None, dialect_b: Optional[str] = None
) -> Comparison:
    """Compares every tensor, one pair in memory at a time. Configs are not looked at, nor needed.

    A tied decoder counts once, with the word embeddings, be it in a file or left out of it; position tables and index
    buffers do not count. bfloat16 is compared as the float32 of its value.

    Args:
        a, b: folders or weight files, as for `open_checkpoint`.
        dialect_a, dialect_b: whose names they bear; None detects it.

    Returns:
        Equal means equal bytes, so that of equal checkpoints `verify` gives equal digests.

    Raises:
        CheckpointError: one of the two cannot be read, or contradicts itself.
        FileNotFoundError: nothing is there.
    """
    with open_checkpoint(a) as opened_a, open_checkpoint(b) as opened_b:
        one, other = by_our_names(opened_a, dialect_a), by_our_names(opened_b, dialect_b)
        comparison = Comparison((one.dialect, other.dialect))
        for name, difference in differences(one.tensors, other.tensors):
            if difference is None:
                comparison.equal.append(name)
            else:
                comparison.differences.append(difference)
        return comparison


def differences(a: "Mapping[str, Stored]", b: "Mapping[str, Stored]") -> "Iterator[tuple[str, Optional[Difference]]]":
    """Each name of either side, and what differs, None where nothing does."""
    for name in (*a, *(name for name in b if name not in a)):
        if name not in b:
            yield name, Difference(name, "only in A", f"only in A: {_looks(a[name])}")
        elif name not in a:
            yield name, Difference(name, "only in B", f"only in B: {_looks(b[name])}")
        elif a[name].shape != b[name].shape:
            yield name, Difference(name, "shape", f"shape {list(a[name].shape)} in A, {list(b[name].shape)} in B")
        else:
            yield name, _difference(name, a[name].read(), b[name].read())


def _difference(name: str, a: np.ndarray, b: np.ndarray) -> Optional[Difference]:
    one, other = a.reshape(-1), b.reshape(-1)
    if one.dtype == other.dtype and all(x.tobytes() == y.tobytes() for x, y in _pieces(one, other)):
        return None
    differing, largest, place = 0, 0.0, 0
    for number, (x, y) in enumerate(_pieces(one, other)):
        gaps = _gaps(x, y)
        differing += int(np.count_nonzero(gaps))
        if gaps.max() > largest:
            largest, place = float(gaps.max()), number * _PIECE + int(gaps.argmax())
    if differing == 0 and one.dtype != other.dtype:
        return Difference(name, "dtype", f"the same values, {one.dtype} in A and {other.dtype} in B", 0.0)
    if differing == 0:
        return Difference(name, "values", "the same values, but other bytes: a zero's sign, or another NaN", 0.0)
    where = [int(index) for index in np.unravel_index(place, a.shape)]
    return Difference(
        name,
        "values",
        f"{differing} of {one.size} numbers differ, by at most {largest:.3g} at {where}: {one[place]:.9g} in A, "
        f"{other[place]:.9g} in B",
        largest,
    )


def _pieces(one: np.ndarray, other: np.ndarray) -> "Iterator[tuple[np.ndarray, np.ndarray]]":
    for begin in range(0, one.size, _PIECE):
        yield one[begin : begin + _PIECE], other[begin : begin + _PIECE]


def _gaps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Absolute differences; infinity where only one of the two is a number, or two infinities differ."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.abs(x - y)
    alike = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(alike, 0.0, np.where(np.isnan(gaps), np.inf, gaps))


def _looks(tensor: Stored) -> str:
    return f"{list(tensor.shape)} of {tensor.dtype}"
