"""Batches without their padding: tokens one after another, and what it takes to go there and back."""

from dataclasses import dataclass

import numpy as np

from paddle_nezha._paddle import Tensor, paddle


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

    def packed(self, x: Tensor) -> Tensor:
        """[B, L, ...] to [tokens, ...]."""
        return paddle.gather(paddle.flatten(x, 0, 1), self.index)

    def padded(self, x: Tensor) -> Tensor:
        """[tokens, ...] to [B, L, ...], with zeros where there is no token."""
        zeros = paddle.zeros([self.batch * self.length, *x.shape[1:]], x.dtype)
        return paddle.scatter(zeros, self.index, x).reshape([self.batch, self.length, *x.shape[1:]])

    def first(self, x: Tensor) -> Tensor:
        """[tokens, ...] to [B, ...]: each row's first token."""
        return paddle.gather(x, self.starts[:-1].astype("int64"))
