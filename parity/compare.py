"""Two arrays and the truth: how far apart, on which scale, and where."""

from typing import Optional

import numpy as np

from parity.result import Worst
from parity.stages import scale_siblings, token_axes


def scale_of(stage: str, truth: "dict[str, np.ndarray]", real: np.ndarray) -> float:
    """What an error of this stage is measured by: the largest |truth| over real tokens; for a gradient or an updated
    parameter the largest of its siblings, where that is larger."""
    largest = _largest(stage, truth[stage], real)
    prefix, _, parameter = stage.partition(":")
    if parameter:
        siblings = (f"{prefix}:{name}" for name in scale_siblings(parameter))
        largest = max([largest, *(_largest(name, truth[name], real) for name in siblings if name in truth)])
    return largest


def _largest(stage: str, values: np.ndarray, real: np.ndarray) -> float:
    values = values[_kept(stage, values, real)]
    return float(np.abs(values).max()) if values.size else 0.0


def distance(
    stage: str, ours: np.ndarray, truth: np.ndarray, scale: float, real: np.ndarray
) -> "tuple[float, tuple[int, ...]]":
    """max|ours - truth| / scale over real tokens, and where that is.

    Where the truth is zero throughout, so must ours be: any difference is infinite. Pad rows count only when they are
    not finite, and so does anything else that is not.
    """
    if ours.shape != truth.shape:
        return float("inf"), ()
    if not np.isfinite(ours).all():
        bad = np.argwhere(~np.isfinite(ours))[0]
        return float("inf"), tuple(int(i) for i in bad)
    gap = np.where(_kept(stage, truth, real), np.abs(ours - truth), 0.0)
    if not gap.size:
        return 0.0, ()
    index = np.unravel_index(int(gap.argmax()), gap.shape)
    largest = float(gap[index])
    return (largest / scale if scale else (float("inf") if largest else 0.0)), tuple(int(i) for i in index)


def worst_of(
    index: "tuple[int, ...]", ours: np.ndarray, truth: np.ndarray, torch: Optional[np.ndarray] = None
) -> Worst:
    if ours.shape != truth.shape:
        return Worst((), float("nan"), float("nan"))
    return Worst(index, float(ours[index]), float(truth[index]), None if torch is None else float(torch[index]))


def _kept(stage: str, values: np.ndarray, real: np.ndarray) -> np.ndarray:
    """bool, the shape of `values`: False at pad queries, which every implementation fills as it likes."""
    axes = token_axes(stage)
    if axes == 0 or values.ndim < 2:
        return np.ones(values.shape, bool)
    keep = real[:, :, None] if axes == 1 else real[:, None, :, None]
    if values.ndim == 2:
        keep = real
    return np.broadcast_to(keep, values.shape)
