"""The same numbers for every engine, from fixed seeds, in NumPy."""

from typing import NamedTuple

import numpy as np

from parity.bench.plan import Case, Setting

SEED = 20


def ids_and_mask(case: Case, setting: Setting) -> "tuple[np.ndarray, np.ndarray]":
    """Ids and their mask of ones and zeros, int64 [B, L]. Every engine is given the mask, full batches too."""
    ids = np.random.default_rng(SEED).integers(1, setting.sizes["vocab_size"], (case.batch, case.length))
    mask = (np.arange(case.length) < np.array(case.lengths)[:, None]).astype("int64")
    return ids * mask, mask


def state_gradient(case: Case, setting: Setting) -> np.ndarray:
    """The gradient of the last hidden states that a training step begins its backward with, [B, L, N]."""
    shape = (case.batch, case.length, setting.sizes["hidden_size"])
    return np.random.default_rng(SEED + 1).standard_normal(shape, "float32")


class Heads(NamedTuple):
    """Of one attention: query, key, value and the context's gradient, [B, H, L, D]; visible, bool [B, L]."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    gradient: np.ndarray
    visible: np.ndarray


def heads(case: Case, setting: Setting, scale: float = 1.0) -> Heads:
    draw = np.random.default_rng(SEED + 2)
    shape = (case.batch, setting.sizes["num_attention_heads"], case.length, setting.head_size)
    query, key, value, gradient = (draw.standard_normal(shape, "float32") for _ in range(4))
    visible = np.arange(case.length) < np.array(case.lengths)[:, None]
    factor = np.float32(scale)
    return Heads(query * factor, key * factor, value * factor, gradient, visible)


def packed(*parts: np.ndarray) -> np.ndarray:
    """[B, H, L, D] each, side by side as one projection gives them: [B, L, parts * N]."""
    return np.concatenate([part.transpose(0, 2, 1, 3).reshape(*part.shape[::2], -1) for part in parts], -1)


def unpacked(values: np.ndarray, parts: int, heads: int) -> "list[np.ndarray]":
    """The way back: [B, L, parts * N] to [B, H, L, D] each."""
    batch, length, width = values.shape
    split = values.reshape(batch, length, parts, heads, width // parts // heads)
    return [split[:, :, part].transpose(0, 2, 1, 3) for part in range(parts)]
