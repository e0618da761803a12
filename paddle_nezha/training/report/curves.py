"""Charts of a run's numbers, or of several runs' over one another, as SVG."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

import numpy as np

from paddle_nezha.training.report.runs import TRAINING, Run, Series
from paddle_nezha.training.report.summary import means_of
from paddle_nezha.training.report.told import (
    NOT_DRAWN,
    SECTIONS,
    Metric,
    count,
    in_order,
    kind_name,
    metric,
    short,
    text,
    told,
)

AXES = ("step", "tokens")

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 240, 54, 14, 12, 30
PLOT = WIDTH - LEFT - RIGHT
_MOST_POINTS = 130_000  # at most 13 bytes each: the page stays below 2 MB
_MARGIN = 0.04  # of the height, above and below


class Curve(NamedTuple):
    """A series in a chart: x [n] by axis ("step", "tokens"), and its exponential mean if it has one."""

    run: int
    kind: str
    x: "dict[str, np.ndarray]"
    values: np.ndarray
    means: Optional[np.ndarray]
    skipped: "dict[str, np.ndarray]"


class Scale(NamedTuple):
    """Values to heights; what lies beyond is drawn on the edge, and marked."""

    low: float
    high: float
    is_logarithmic: bool

    def y(self, values: np.ndarray) -> np.ndarray:
        low, high = self.low, self.high
        if self.is_logarithmic:
            values, low, high = np.log10(np.maximum(values, low)), math.log10(low), math.log10(high)
        share = np.clip((values - low) / (high - low), 0.0, 1.0)
        return TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> "list[float]":
        if self.is_logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if len(decades) <= 3 else (1,)
            all_ticks = [step * 10.0**decade for decade in decades for step in steps]
            found = [tick for tick in all_ticks if self.low <= tick <= self.high]
            return found[:: max(1, math.ceil(len(found) / 7))]
        return _ticks(self.low, self.high, 5)


def _ticks(low: float, high: float, count: int) -> "list[float]":
    rough = (high - low) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _scale(curves: "Sequence[Curve]", known: Metric) -> Scale:
    """Around all values, but for rare spikes that would flatten the rest."""
    finite = [curve.values[np.isfinite(curve.values)] for curve in curves]
    means = [curve.means[np.isfinite(curve.means)] for curve in curves if curve.means is not None]
    values = np.concatenate([*finite, *means]) if finite else np.array([])
    positive = values[values > 0]
    is_logarithmic = known.is_logarithmic and len(positive) > 0 and bool(positive.max() > 10 * positive.min())
    if is_logarithmic:
        values = np.log10(positive)
    if not len(values):
        return Scale(0.0, 1.0, False)
    low, high = float(values.min()), float(values.max())
    within = np.percentile(values, [0.2, 99.8])
    usual = float(within[1] - within[0])
    if usual > 0 and high - low > 3 * usual:
        low, high = max(low, float(within[0]) - usual / 4), min(high, float(within[1]) + usual / 4)
    is_positive = low >= 0 and not is_logarithmic
    if high - low <= 1e-3 * max(abs(low), abs(high)):  # all but constant
        spread = 0.1 * max(abs(low), abs(high)) or 1.0
        low, high = low - spread, high + spread
    margin = _MARGIN * (high - low)
    low, high = low - margin, high + margin
    if is_positive:
        low = max(0.0, low)
    return Scale(10.0**low, 10.0**high, True) if is_logarithmic else Scale(low, high, False)


def _chart(
    axis: str, curves: "Sequence[Curve]", known: Metric, name: str, scale: Scale, high: float, columns: int
) -> str:
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick, y in zip(scale.ticks(), scale.y(np.array(scale.ticks()))):
        label = f"{tick:.4g}" if abs(tick) < 1000 else short(tick)
        label = f"{100 * tick:.4g}%" if known.form == "share" else label
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in _ticks(0.0, high, 5):
        x = LEFT + PLOT * tick / high
        parts.append(f'<path class="edge" d="M{x:.1f} {bottom}v4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{short(tick)}</text>')
    parts.append(f'<path class="edge" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>')
    # The faint ones lie below every line that is to be read.
    for curve in curves:
        if curve.means is not None:
            parts.append(_path(f"raw r{curve.run}", curve.x[axis], curve.values, scale, high, columns))
    for curve in curves:
        form = "mean" if curve.kind == TRAINING else "held"
        values = curve.values if curve.means is None else curve.means
        read = f' data-run="{curve.run}" data-kind="{text(kind_name(curve.kind))}"'
        parts.append(_path(f"{form} r{curve.run}", curve.x[axis], values, scale, high, columns, read))
        if form == "held" and len(curve.values) <= 60:
            parts.append(_dots(curve, axis, scale, high))
    parts += _marks(axis, curves, scale, high, columns)
    inverse = (
        f'data-axis="{axis}" data-x="{high:.10g}" data-y="{scale.low:.8g} {scale.high:.8g}" data-form="{known.form}"'
    )
    return (
        f'<svg class="by-{axis}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {inverse} '
        f'data-log="{int(scale.is_logarithmic)}" aria-label="{text(known.title)} ({text(name)}) by {axis}">'
        f"{''.join(part for part in parts if part)}</svg>"
    )


def _path(form: str, x: np.ndarray, values: np.ndarray, scale: Scale, high: float, columns: int, more: str = "") -> str:
    finite = np.isfinite(values)
    x, values = x[finite], values[finite]
    kept = thinned(x, values, high, columns)
    points = [f"{at:.1f} {y:.2f}" for at, y in zip(LEFT + PLOT * x[kept] / high, scale.y(values[kept]))]
    return f'<path class="{form}" d="M{"L".join(points)}"{more}/>' if points else ""


def _dots(curve: Curve, axis: str, scale: Scale, high: float) -> str:
    finite = np.isfinite(curve.values)
    places = zip(LEFT + PLOT * curve.x[axis][finite] / high, scale.y(curve.values[finite]))
    return f'<path class="dots r{curve.run}" d="{"".join(f"M{x:.1f} {y:.2f}h0" for x, y in places)}"/>'


def _marks(axis: str, curves: "Sequence[Curve]", scale: Scale, high: float, columns: int) -> "Iterator[str]":
    """Of steps that were skipped, below; of values that are none or beyond the axis, above. One for each column."""
    for curve in curves:
        skipped = curve.skipped[axis] if curve.kind == TRAINING else np.array([])
        if len(skipped):
            shapes = "".join(f"M{x} {HEIGHT - BOTTOM}v-9" for x in _places(skipped, high, columns))
            yield f'<path class="skipped" d="{shapes}"><title>{count(len(skipped), "skipped step")}</title></path>'
        outside = ~((curve.values >= scale.low) & (curve.values <= scale.high))
        if outside.any():
            shapes = "".join(f"M{x} {TOP - 8}l3.5 6h-7z" for x in _places(curve.x[axis][outside], high, columns))
            title = count(int(outside.sum()), "value") + " beyond the axis or not finite"
            yield f'<path class="beyond r{curve.run}" d="{shapes}"><title>{title}</title></path>'


def _places(x: np.ndarray, high: float, columns: int) -> "list[str]":
    column = np.unique((x / high * columns).astype("int64").clip(0, columns - 1))
    return [f"{LEFT + PLOT * (each + 0.5) / columns:.1f}" for each in column]


def thinned(x: np.ndarray, y: np.ndarray, high: float, columns: int) -> np.ndarray:
    """Which points to draw on an axis from 0 to `high`: of each of its `columns` the least and the greatest, in order.

    Args:
        x: float64 [n], ascending.
        y: float64 [n], finite.

    Returns:
        Indices, int64 [at most 2 * columns].
    """
    if len(x) <= 2 * columns:
        return np.arange(len(x))
    column = np.minimum((x / high * columns).astype("int64"), columns - 1)
    order = np.lexsort((y, column))
    ends = np.flatnonzero(np.diff(column[order]))
    return np.unique(np.concatenate([order[[0, *(ends + 1)]], order[[*ends, -1]]]))


def legend(runs: "Sequence[Run]", names: "Sequence[str]", half_life: float) -> str:
    line = '<svg viewBox="0 0 26 12"><path class="{}" d="M1 6L25 6"/></svg>'
    keys = [f'<span><i class="r{index}"></i>{text(name)}</span>' for index, name in enumerate(names)]
    keys = keys if len(runs) > 1 else []
    steps = "1 step" if half_life == 1 else f"{half_life:,.0f} steps"
    keys += [
        f"<span>{line.format('raw r0')}training, each line</span>",
        f"<span>{line.format('mean r0')}its exponential mean, half-life {steps}</span>",
        f"<span>{line.format('held r0')}held out</span>",
    ]
    if any(len(run.skipped) for run in runs):
        keys.append('<span><svg viewBox="0 0 12 12"><path class="skipped" d="M6 11v-9"/></svg>skipped steps</span>')
    keys.append('<span><svg viewBox="0 0 12 12"><path class="beyond r0" d="M6 2l4 8h-8z"/></svg>beyond the axis</span>')
    remark = ""
    if any(run.is_sampled for run in runs):
        remark = (
            '<p class="soft">Not every step was written: tokens and time of the others are taken to be those of the '
            "next one that was.</p>"
        )
    return f'<div class="legend">{"".join(keys)}</div>{remark}'


def charts(runs: "Sequence[Run]", axes: "Sequence[str]", half_life: float) -> str:
    names = in_order(dict.fromkeys(name for run in runs for _, name in run.series if name not in NOT_DRAWN))
    drawn = sum(len(run.series) for run in runs)
    # A series takes at most two points a column for itself, and two for its mean.
    columns = max(10, min(PLOT, _MOST_POINTS // (4 * len(axes) * drawn)))
    totals = [run.total("tokens") if "tokens" in axes else None for run in runs]
    high = {
        "step": float(max(each.steps[-1] for run in runs for each in run.series.values())) or 1.0,
        "tokens": float(max((total.values[-1] for total in totals if total is not None), default=1.0)) or 1.0,
    }
    sections = []
    for section in SECTIONS:
        figures = []
        for name in names:
            if metric(name).section == section:
                curves = [
                    curve
                    for i, (run, total) in enumerate(zip(runs, totals))
                    for curve in _curves(i, run, total, name, half_life)
                ]
                figures.append(_figure(name, curves, axes, high, columns))
        if figures:
            sections.append(f'<section><h2>{section}</h2><div class="panels">{"".join(figures)}</div></section>')
    return "".join(sections)


def _curves(index: int, run: Run, total: Optional[Series], name: str, half_life: float) -> "Iterator[Curve]":
    def places(steps: np.ndarray) -> "dict[str, np.ndarray]":
        if total is None:
            return {"step": steps}
        return {"step": steps, "tokens": np.interp(steps, [0.0, *total.steps], [0.0, *total.values])}

    for (kind, found), series in run.series.items():
        if found == name:
            means = means_of(kind, name, series, half_life)
            skipped = places(run.skipped)
            yield Curve(index, kind, places(series.steps), series.values, means and means.values, skipped)


def _figure(name: str, curves: "Sequence[Curve]", axes: "Sequence[str]", high: "dict[str, float]", columns: int) -> str:
    known = metric(name)
    scale = _scale(curves, known)
    last = []
    for curve in curves:
        value = curve.values[-1] if curve.means is None else curve.means[-1]
        read = f"{text(kind_name(curve.kind))} <b>{told(value, known.form)}</b>"
        last.append(
            f"<span class={'learnt' if curve.kind == TRAINING else 'measured'}><i class=r{curve.run}></i>{read}</span>"
        )
    unit = f' <span class="soft">{text(known.unit)}</span>' if known.unit else ""
    logarithmic = ' <span class="soft">(logarithmic)</span>' if scale.is_logarithmic else ""
    charts = "".join(_chart(axis, curves, known, name, scale, high[axis], columns) for axis in axes)
    return (
        f'<figure><figcaption title="{text(name)}"><b>{text(known.title)}</b>{unit}{logarithmic}</figcaption>'
        f'<p class="read">{"".join(last)}<span class="soft at">last</span></p>{charts}</figure>'
    )
