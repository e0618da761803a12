"""Batches without their padding: tokens one after another, what it takes to go there and back, and when to go."""

from dataclasses import dataclass
from typing import Optional

import numpy as np

from paddle_nezha._paddle import Tensor, is_eager_throughout, paddle, plain_python, values_can_be_read
from paddle_nezha.inputs import IGNORED_LABELS

# Padding goes by itself from this share of all positions on. Base-size layers then take 0.95 (operator) and 0.98
# (plain operations) of their time at (8, 128), and as long as before at (4, 16).
_WORTHWHILE = 1 / 16


@dataclass(frozen=True)
class Sequences:
    """Where the tokens of a batch without padding belong.

    Args:
        index: int64 [tokens], the place of each token in the flattened batch [B * L].
        starts: int32 [B + 1]; row b is the tokens starts[b] .. starts[b + 1] - 1.
        batch, length: B and L of the padded batch.
        visible: bool [B, 1, 1, L], True where there is a token.
    """

    index: Tensor
    starts: Tensor
    batch: int
    length: int
    visible: Tensor

    @classmethod
    def of(cls, real: np.ndarray) -> "Sequences":
        """
        Args:
            real: bool [B, L]. The tokens of a row follow each other without a gap, or their distances would change.
        """
        batch, length = real.shape
        starts = np.concatenate([[0], real.sum(1).cumsum()]).astype("int32")
        return cls(
            paddle.to_tensor(np.flatnonzero(real)),
            paddle.to_tensor(starts),
            batch,
            length,
            paddle.to_tensor(real[:, None, None, :]),
        )

    @property
    def columns(self) -> Tensor:
        """int64 [tokens]: the position that each token had in its row."""
        return self.index % self.length

    def packed(self, x: Tensor) -> Tensor:
        """[B, L, ...] to [tokens, ...]."""
        return paddle.gather(paddle.flatten(x, 0, 1), self.index)

    def padded(self, x: Tensor) -> Tensor:
        """[tokens, ...] to [B, L, ...], with zeros where there is no token."""
        zeros = paddle.zeros([self.batch * self.length, *x.shape[1:]], x.dtype)
        return paddle.scatter(zeros, self.index, x).reshape([self.batch, self.length, *x.shape[1:]])


def without_padding(visible: Optional[Tensor]) -> Optional[Sequences]:
    """Where the tokens of a batch belong whose padding is to be removed.

    Args:
        visible: bool [B, 1 or H, 1 or L, L] of `visible_keys`; None is all.

    Returns:
        None where there is no padding.

    Raises:
        ValueError: it cannot be removed: a traced graph, a mask of pairs, a gap between the tokens of a row.
    """
    if visible is None:
        return None
    if not is_eager_throughout():
        raise ValueError(
            "unpad=True must read the attention_mask, but a graph is being traced, where it has no values: trace "
            "without unpad, or call the model itself."
        )
    return _sequences(visible)


@plain_python
def _sequences(visible: Tensor) -> Optional[Sequences]:
    if list(visible.shape[1:3]) != [1, 1]:
        raise ValueError(
            "unpad=True needs an attention_mask [B, L], which says what is padding, but got one that says which pairs "
            "of positions see each other: leave unpad out, or pass the [B, L] mask of the padding."
        )
    real = visible.numpy()[:, 0, 0]
    if real.all():
        return None
    gaps = np.flatnonzero(_runs(real) > 1)
    if len(gaps):
        raise ValueError(
            "unpad=True needs the visible tokens of each row side by side, with padding before and behind them alone, "
            f"but row {gaps[0]} of the attention_mask has hidden ones in between: without them distances would change. "
            "Leave unpad out, or pad each text at its ends."
        )
    if not real.any():
        raise ValueError(
            "unpad=True leaves nothing to compute: the attention_mask hides every token. 1 attends, 0 does not; make "
            "it with (input_ids != pad_token_id).astype('int64')."
        )
    return Sequences.of(real)


@plain_python
def padding_goes_by_itself(mask: Optional[Tensor], first: bool, labels: Optional[Tensor]) -> bool:
    """Whether a batch has padding that can be removed, that is worth it, and that nobody reads.

    Args:
        mask: an attention mask as a model is given it, not yet checked.
        first: whether position 0 is read.
        labels: those of each token, which mark the positions that are read; None reads none.
    """
    real = _real(mask, labels)
    return (
        real is not None
        and real.mean() <= 1 - _WORTHWHILE
        and bool((_runs(real) == 1).all())
        and not _missed(real, first, labels)
    )


@plain_python
def check_padding_is_not_read(mask: Optional[Tensor], first: bool, labels: Optional[Tensor]) -> None:
    """Refuses to remove what a head reads; arguments as above, and one that does not fit is left to its own check.

    Raises:
        ValueError: position 0 is read, or a labelled one, and it is padding.
    """
    real = _real(mask, labels)
    missed = "" if real is None else _missed(real, first, labels)
    if missed:
        raise ValueError(f"unpad=True would remove what this head reads: {missed}.")


def _real(mask: Optional[Tensor], labels: Optional[Tensor]) -> Optional[np.ndarray]:
    """bool [B, L], True where a mask shows a token; None where it is no such mask or looking at it is not free."""
    given = [item for item in (mask, labels) if item is not None]
    readable = is_eager_throughout() and all(
        isinstance(item, paddle.Tensor) and values_can_be_read(item) for item in given
    )
    if mask is None or not readable:
        return None
    return mask.numpy() != 0 if len(mask.shape) == 2 and 0 not in mask.shape else None


def _runs(real: np.ndarray) -> np.ndarray:
    """Of each row, how many times a token follows what is none: [B]."""
    return real[:, 0].astype(int) + (real[:, 1:] & ~real[:, :-1]).sum(1)


def _missed(real: np.ndarray, first: bool, labels: Optional[Tensor]) -> str:
    """What would be read where there is no token, and what to do about it; "" for nothing."""
    if first and not real[:, 0].all():
        row = int(np.flatnonzero(~real[:, 0])[0])
        return f"the pooled output is made of position 0, which is padding in row {row}; pad behind the texts"
    if labels is not None and labels.size == real.size:
        labelled = ~np.isin(labels.numpy().reshape(real.shape), IGNORED_LABELS)
        if (labelled & ~real).any():
            row, column = np.argwhere(labelled & ~real)[0]
            return f"position {column} of row {row} is padding and has a label; label padding with {IGNORED_LABELS[0]}"
    return ""
