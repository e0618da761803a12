"""NeZha's functional relative positions (arXiv 1909.00204, section 3.1): the table.

A pure function of two sizes, in NumPy; nothing of size L x L x D is made here or anywhere else.
"""

import numpy as np


def relative_table(max_relative_position: int, head_size: int) -> np.ndarray:
    """The sinusoid table A that serves every layer, every head, keys and values alike.

    ``A[r, 2i] = sin(r / 10000^(2i/D))`` and ``A[r, 2i+1] = cos(r / 10000^(2i/D))`` for r = 0 .. 2m.

    Args:
        max_relative_position: m.
        head_size: D, even.

    Returns:
        float64 [R, D] with R = 2m + 1. Cast it last: a table computed in float32 differs in most of its entries.
    """
    frequency = np.power(10000.0, -np.arange(0, head_size, 2) / head_size)  # [D/2]
    angle = np.arange(2 * max_relative_position + 1)[:, None] * frequency  # [R, D/2]
    table = np.empty((len(angle), head_size))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table
