"""Texts into batches of about equal cost. Which texts share a batch follows from the texts and the settings alone, so
that a run that goes on after a stop computes the same numbers. Needs no Paddle."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, TypeVar

import numpy as np

from .lines import Line

Item = TypeVar("Item")

# Tokens of a batch, padding included. Larger ones gained nothing on a processor, for widths of 256 and of 768.
TOKENS_PER_BATCH = 4096
# A window is read, sorted by length, computed and written before the next: this many batches of one-character tokens,
# enough for the lengths in a batch to be alike, and little enough to compute again after a stop.
_BATCHES_PER_WINDOW = 32
_LINES_PER_WINDOW = 8192


def characters(line: Line) -> int:
    return len(line.text)


def windows(
    lines: "Iterable[Item]",
    tokens_per_batch: int,
    size: "Callable[[Item], int]" = characters,  # type: ignore[assignment]
) -> "Iterator[list[Item]]":
    """Lines, or other items of so many characters, in their order, as many at a time as are computed together."""
    window: "list[Item]" = []
    gathered = 0
    for line in lines:
        window.append(line)
        gathered += size(line)
        if gathered >= _BATCHES_PER_WINDOW * tokens_per_batch or len(window) == _LINES_PER_WINDOW:
            yield window
            window, gathered = [], 0
    if window:
        yield window


def batches(lengths: "Sequence[int]", tokens_per_batch: int) -> "list[list[int]]":
    """Rows of about the same length together, the longest first.

    Args:
        lengths: tokens of each row.
        tokens_per_batch: rows times the longest of them are at most this; a longer row is a batch of its own.

    Returns:
        The rows' indices, each in one batch.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])  # stable: equal ones stay in order
    found: "list[list[int]]" = []
    for row in order:
        if found and (len(found[-1]) + 1) * lengths[found[-1][0]] <= tokens_per_batch:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def padded(rows: "Sequence[Sequence[int]]", pad_id: int) -> "tuple[np.ndarray, np.ndarray]":
    """Ids and attention mask, int64 [B, L], with the padding behind each row."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, "int64")
    ids[mask] = np.concatenate([np.asarray(row, "int64") for row in rows])
    return ids, mask.astype("int64")
