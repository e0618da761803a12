"""From token counts to model rows: what is cut, where windows begin, how a row is framed and padded.

Pure functions on counts and lists; nothing here knows a vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional


class Span(NamedTuple):
    """The tokens of one row: first[first_start:first_stop] and second[second_start:second_stop]."""

    first_start: int
    first_stop: int
    second_start: int
    second_stop: int


@dataclass(frozen=True)
class Cut:
    """How a sample that does not fit becomes one row, or several.

    `advance` maps the room of a window, in tokens, to the distance between window starts; None keeps one row.
    """

    max_length: int
    strategy: str  # "longest_first", "only_first", "only_second"
    advance: Optional[Callable[[int], int]] = None


def spans(first: int, second: Optional[int], special: int, cut: Optional[Cut]) -> list[Span]:
    """Rows of a sample of `first` and `second` tokens (None: no second text), each with `special` more."""
    pair = second or 0
    if cut is None or first + pair + special <= cut.max_length:
        return [Span(0, first, 0, pair)]
    room = cut.max_length - special
    if cut.strategy == "longest_first" and second is not None:
        if cut.advance is not None:
            raise ValueError(
                "expected windows over one text of a pair, got truncation='longest_first' with "
                "return_overflowing_tokens=True; pass truncation='only_first' or 'only_second'"
            )
        keep = max(room - pair, (room + 1) // 2) if first > pair else (room + 1) // 2
        keep = min(first, keep)
        return [Span(0, keep, 0, room - keep)]
    if cut.strategy == "only_second":
        room = _room_beside(first, room, "first", "only_first", cut)
        return [Span(0, first, start, stop) for start, stop in _windows(pair, room, cut)]
    if second is not None:
        room = _room_beside(pair, room, "second", "only_second", cut)
    return [Span(start, stop, 0, pair) for start, stop in _windows(first, room, cut)]


def _room_beside(fixed: int, room: int, name: str, other: str, cut: Cut) -> int:
    if fixed >= room:
        raise ValueError(
            f"truncation={cut.strategy!r} keeps the {name} text whole, but its {fixed} tokens leave no room "
            f"in max_length={cut.max_length}; raise it, or use truncation='longest_first' or {other!r}"
        )
    return room - fixed


def _windows(count: int, room: int, cut: Cut) -> list[tuple[int, int]]:
    if cut.advance is None:
        return [(0, room)]
    step = cut.advance(room)
    starts = range(0, max(count - room, 0) + step, step)  # the first window that reaches the end is the last
    return [(start, min(start + room, count)) for start in starts]


def overlapping(stride: int) -> Callable[[int], int]:
    """Windows that share `stride` tokens with their neighbour."""

    def advance(room: int) -> int:
        if stride >= room:
            raise ValueError(
                f"expected stride (the tokens two windows share) below the {room} tokens a window holds, "
                f"got stride={stride}; lower stride or raise max_length"
            )
        return room - stride

    return advance


def stepping(stride: int) -> Callable[[int], int]:
    """Windows that begin `stride` tokens apart and never skip a token."""
    return lambda room: min(stride, room)


def frame(first: Sequence[Any], second: Optional[Sequence[Any]], begin: Sequence[Any], end: Sequence[Any]) -> list[Any]:
    """begin first end [second end], as in [CLS] A [SEP] B [SEP]."""
    row = [*begin, *first, *end]
    return row if second is None else [*row, *second, *end]


def padded_length(longest: int, max_length: Optional[int], multiple: Optional[int]) -> int:
    """The common length of padded rows: `max_length` or else the longest, rounded up to a multiple."""
    length = longest if max_length is None else max_length
    return length if multiple is None else -(-length // multiple) * multiple


def pad_rows(rows: Sequence[Sequence[Any]], length: int, value: Any, side: str) -> list[list[Any]]:
    """Each row filled up with `value`; a longer row stays as it is."""
    fills = ([value] * (length - len(row)) for row in rows)
    if side == "left":
        return [[*fill, *row] for row, fill in zip(rows, fills)]
    return [[*row, *fill] for row, fill in zip(rows, fills)]
