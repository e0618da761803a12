"""A run in numbers, and what both they and the curves rest on: the mean of noisy steps."""

import math
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from paddle_nezha.training.report.runs import TRAINING, Run, Series
from paddle_nezha.training.report.told import NOT_DRAWN, kind_name, metric


def summary(run: Run, half_life: Optional[float] = None) -> "dict[str, Any]":
    """A run in numbers, ready for JSON.

    `training` holds the last exponential means (of the learning rate the last value), `held_out` and other kinds the
    last values, and the best where one end is the better one. `tokens` and `hours` are of the steps alone, without
    evaluations, checkpoints and pauses.
    """
    half_life = half_life or half_life_of([run])
    tokens, seconds = run.total("tokens"), run.total("seconds")
    told: "dict[str, Any]" = {
        "run": str(run.folder),
        "kind": run.description["kind"],
        "state": run.state,
        "finished": run.is_finished,
        "step": run.step,
        "steps": run.steps,
        "skipped_steps": len(run.skipped),
        "tokens": None if tokens is None else round(tokens.values[-1]),
        "hours": None if seconds is None else float(seconds.values[-1]) / 3600,
        "tokens_per_second": None,
        "estimated": run.is_sampled,
        "half_life": half_life,
        "values": {},
    }
    if tokens is not None and seconds is not None and seconds.values[-1] > 0:
        told["tokens_per_second"] = float(tokens.values[-1] / seconds.values[-1])
    for (kind, name), series in run.series.items():
        if name in NOT_DRAWN:
            continue
        last = (means_of(kind, name, series, half_life) or series).values[-1]
        value: "dict[str, Any]" = {"last": float(last)}
        best, finite = metric(name).best, np.isfinite(series.values)
        if kind != TRAINING and best is not None and finite.any():
            values = np.where(finite, series.values, math.inf if best == "min" else -math.inf)
            index = int(values.argmin() if best == "min" else values.argmax())
            value.update(best=float(values[index]), best_step=int(series.steps[index]))
        told["values"].setdefault(kind_name(kind).replace(" ", "_"), {})[name] = value
    return told


def smoothed(series: Series, half_life: float) -> np.ndarray:
    """The exponential mean of the values so far, in which a value counts half after `half_life` steps; float64 [n].

    It begins as the first value, not as zero. Values that are no finite numbers are left out of it.
    """
    means = np.empty(len(series.values))
    total = weight = 0.0
    before = 0.0
    for index, (step, value) in enumerate(zip(series.steps.tolist(), series.values.tolist())):
        decay = 0.5 ** ((step - before) / half_life)
        total, weight, before = total * decay, weight * decay, step
        if math.isfinite(value):
            total, weight = total + value, weight + 1.0
        means[index] = total / weight if weight else math.nan
    return means


def means_of(kind: str, name: str, series: Series, half_life: float) -> Optional[Series]:
    """The exponential mean of what has one: numbers of training that differ from step to step by chance."""
    if kind != TRAINING or not metric(name).is_noisy:
        return None
    return Series(series.steps, smoothed(series, half_life))


def half_life_of(runs: "Sequence[Run]") -> float:
    """A hundredth of the longest run, to one digit."""
    steps = max(run.step for run in runs) / 100
    return max(1.0, float(f"{steps:.0e}"))
