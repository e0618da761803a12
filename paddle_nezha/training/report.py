"""A run's curves, or several runs' over one another, as one HTML page that needs nothing else; no Paddle.

The page draws what numbers a run wrote, whatever their names: those known here get a title, a unit and a place. Its
charts are SVG and are there without JavaScript, which adds the values under the pointer.
"""

import html
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np

from paddle_nezha._files import PathLike, listing, replaced
from paddle_nezha.training.metrics import FILE, read_metrics

DESCRIPTION = "run.json"
PAGE = "report.html"
MOST_RUNS = 6  # as many colours as can be told apart
_TRAINING = "step"
_AXES = ("step", "tokens")


class ReportError(ValueError):
    """A folder that holds no run to draw; the message says what to do."""


# ---- a run


class Series(NamedTuple):
    """One number over a run: steps and values float64 [n], by step; a value may be NaN or infinite."""

    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Run:
    """What a run wrote.

    Attributes:
        series: by kind of line ("step", "eval", ...) and name.
        skipped: the steps that changed no parameter.
        written: when it last wrote a line.
        has_model: it wrote its model, which is the last thing a run does.
    """

    folder: Path
    name: str
    description: "dict[str, Any]"
    series: "dict[tuple[str, str], Series]"
    skipped: np.ndarray
    written: datetime
    has_model: bool

    @property
    def step(self) -> int:
        """The last step written."""
        return int(max(each.steps[-1] for (kind, _), each in self.series.items() if kind == _TRAINING))

    @property
    def steps(self) -> Optional[int]:
        """How many steps it is to make; None when its settings do not say."""
        settings = self.description.get("settings")
        steps = settings.get("steps") if isinstance(settings, dict) else None
        return steps if isinstance(steps, int) and not isinstance(steps, bool) else None

    @property
    def is_finished(self) -> bool:
        return self.has_model and (self.steps is None or self.step >= self.steps)

    @property
    def state(self) -> str:
        if self.is_finished:
            return f"finished: {_count(self.step, 'step')}"
        if self.steps is None:
            return f"not finished: at step {self.step:,}"
        if self.step >= self.steps:
            return f"not finished: all {self.step:,} steps made, the model not written"
        return f"not finished: at step {self.step:,} of {self.steps:,}"

    def total(self, name: str) -> Optional[Series]:
        """The running sum of a number of each step, such as its tokens.

        A line stands for the steps since the line before it: where not every step was written, the sum is an estimate.
        """
        each = self.series.get((_TRAINING, name))
        if each is None or not np.isfinite(each.values).all():
            return None
        return Series(each.steps, np.cumsum(each.values * np.diff(each.steps, prepend=0.0)))

    @property
    def is_sampled(self) -> bool:
        """Not every step was written."""
        each = max((s for (kind, _), s in self.series.items() if kind == _TRAINING), key=lambda s: len(s.steps))
        return len(each.steps) < self.step


def read_run(folder: PathLike) -> Run:
    """Reads the folder of a run, finished or not.

    Raises:
        ReportError: it is no run's folder, or the run has made no step, or its files are damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"{folder} is no folder. Expected a run's: the `output` of its settings.")
    description = _description(folder)
    series, skipped = _series(folder)
    if not any(kind == _TRAINING for kind, _ in series):
        raise ReportError(
            f"{folder} is a run that has written no step yet: there is nothing to draw. Wait for its first steps, or "
            "start it again with its own command, and then draw it."
        )
    written = datetime.fromtimestamp((folder / FILE).stat().st_mtime)
    has_model = (folder / "model" / "config.json").exists()
    return Run(folder, folder.resolve().name, description, series, skipped, written, has_model)


def _description(folder: Path) -> "dict[str, Any]":
    path = folder / DESCRIPTION
    if not path.is_file():
        raise ReportError(
            f"{folder} is no run's folder: it has no {DESCRIPTION}; it holds {listing(folder)}. Give the folder that a "
            "run's settings name as `output`."
        )
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ReportError(f"{path} is not JSON ({error}). Start the run anew in another folder.") from error
    if not isinstance(description, dict) or not isinstance(description.get("kind"), str):
        raise ReportError(
            f"{path} describes no run: expected an object with `kind`, such as "
            '{"kind": "pretraining", "settings": {...}}. Give the folder that a run\'s settings name as `output`.'
        )
    return description


def _series(folder: Path) -> "tuple[dict[tuple[str, str], Series], np.ndarray]":
    path = folder / FILE
    found: "dict[tuple[str, str], tuple[list[float], list[float]]]" = {}
    skipped: "list[float]" = []
    try:
        for record in read_metrics(folder):
            kind, step = str(record["kind"]), float(record["step"])
            if kind == _TRAINING and record.get("updated") is False:
                skipped.append(step)
            for name, value in record.items():
                number = None if name in ("kind", "step") else _number(value)
                if number is not None:
                    steps, values = found.setdefault((kind, name), ([], []))
                    steps.append(step)
                    values.append(number)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReportError(
            f"{path} is damaged: expected a JSON object with `kind` and `step` in each line ({error!r}). Remove the "
            "lines that are none, or let the run go on from a checkpoint before them."
        ) from error
    series = {key: Series(np.array(steps), np.array(values)) for key, (steps, values) in found.items()}
    if any((np.diff(each.steps) < 0).any() for each in series.values()):
        raise ReportError(
            f"The steps in {path} go back: two processes wrote it at a time. Let one of them go on from a checkpoint, "
            "which drops what came after it."
        )
    return series, np.array(skipped)


def _number(value: Any) -> Optional[float]:
    """Of a number, or of a text that stands for one JSON has not."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return float(value) if value in ("nan", "inf", "-inf") else None


# ---- what is known of the numbers


class Metric(NamedTuple):
    """How a number is told.

    Attributes:
        form: "number", "share" (of one, told in percent) or "count".
        best: min or max; None where neither end is the better one.
        is_logarithmic: values span magnitudes, and equal ratios are equal lengths.
        is_noisy: what is to be seen is the mean of the steps.
    """

    title: str
    unit: str
    section: str
    form: str = "number"
    best: Optional[str] = None
    is_logarithmic: bool = False
    is_noisy: bool = True


_LEARNING, _OTHER, _OPTIMIZATION, _SPEED = "Learning", "More measures", "Optimization", "Speed"
_SECTIONS = (_LEARNING, _OTHER, _OPTIMIZATION, _SPEED)
_KNOWN = {
    "mlm_loss": Metric("Masked LM loss", "nats a token", _LEARNING, best="min"),
    "mlm_perplexity": Metric("Masked LM perplexity", "", _LEARNING, best="min", is_logarithmic=True),
    "mlm_accuracy": Metric("Masked LM accuracy", "of the chosen tokens", _LEARNING, "share", "max"),
    "mask_accuracy": Metric("[MASK] accuracy", "of those shown as [MASK]", _LEARNING, "share", "max"),
    "nsp_loss": Metric("Sentence pair loss", "nats a pair", _LEARNING, best="min"),
    "nsp_accuracy": Metric("Sentence pair accuracy", "of the pairs", _LEARNING, "share", "max"),
    "loss": Metric("Loss", "what is minimized", _LEARNING, best="min"),
    "accuracy": Metric("Accuracy", "", _LEARNING, "share", "max"),
    "learning_rate": Metric("Learning rate", "", _OPTIMIZATION, is_noisy=False),
    "gradient_norm": Metric("Gradient norm", "before clipping", _OPTIMIZATION, is_logarithmic=True),
    "tokens_per_second": Metric("Throughput", "tokens a second", _SPEED, "count"),
    "of_peak": Metric("Share of peak", "of a matrix product's FLOP/s", _SPEED, "share"),
    "seconds": Metric("Time of a step", "seconds", _SPEED),
}
_ENDINGS = {"loss": "min", "perplexity": "min", "accuracy": "max", "f1": "max"}
_KINDS = {"step": "training", "eval": "held out"}
_NOT_DRAWN = ("tokens",)  # an axis


def metric(name: str) -> Metric:
    """What is known of a number, or what its name tells."""
    if name in _KNOWN:
        return _KNOWN[name]
    words = name.replace("_", " ").strip() or name
    ending = words.rpartition(" ")[2].lower()
    form = "share" if ending == "accuracy" else "number"
    return Metric(words[:1].upper() + words[1:], "", _OTHER, form, _ENDINGS.get(ending), ending == "perplexity")


def _kind(kind: str) -> str:
    return _KINDS.get(kind, kind)


def _told(value: float, form: str = "number") -> str:
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "not a number")
    if form == "share":
        return f"{value:.1%}"
    size = abs(value)
    if form == "count" or size >= 1000:
        return f"{value:,.0f}"
    if size and size < 0.001:
        return f"{value:.2e}"
    return f"{value:.{1 if size >= 100 else 2 if size >= 10 else 3 if size >= 1 else 4}f}"


def _short(value: float) -> str:
    """On an axis: 2.5k, 40M."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


# ---- the summary


def summary(run: Run, half_life: Optional[float] = None) -> "dict[str, Any]":
    """A run in numbers, ready for JSON.

    `training` holds the last exponential means (of the learning rate the last value), `held_out` and other kinds the
    last values, and the best where one end is the better one. `tokens` and `hours` are of the steps alone, without
    evaluations, checkpoints and pauses.
    """
    half_life = half_life or _half_life([run])
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
        if name in _NOT_DRAWN:
            continue
        last = (_means(kind, name, series, half_life) or series).values[-1]
        value: "dict[str, Any]" = {"last": float(last)}
        best, finite = metric(name).best, np.isfinite(series.values)
        if kind != _TRAINING and best is not None and finite.any():
            values = np.where(finite, series.values, math.inf if best == "min" else -math.inf)
            index = int(values.argmin() if best == "min" else values.argmax())
            value.update(best=float(values[index]), best_step=int(series.steps[index]))
        told["values"].setdefault(_kind(kind).replace(" ", "_"), {})[name] = value
    return told


# ---- curves


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


def _means(kind: str, name: str, series: Series, half_life: float) -> Optional[Series]:
    """The exponential mean of what has one: numbers of training that differ from step to step by chance."""
    if kind != _TRAINING or not metric(name).is_noisy:
        return None
    return Series(series.steps, smoothed(series, half_life))


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


def _half_life(runs: "Sequence[Run]") -> float:
    """A hundredth of the longest run, to one digit."""
    steps = max(run.step for run in runs) / 100
    return max(1.0, float(f"{steps:.0e}"))


# ---- a chart

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 440, 240, 54, 14, 12, 30
_PLOT = _WIDTH - _LEFT - _RIGHT
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
        return _TOP + (1.0 - share) * (_HEIGHT - _TOP - _BOTTOM)

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
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for tick, y in zip(scale.ticks(), scale.y(np.array(scale.ticks()))):
        label = f"{tick:.4g}" if abs(tick) < 1000 else _short(tick)
        label = f"{100 * tick:.4g}%" if known.form == "share" else label
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in _ticks(0.0, high, 5):
        x = _LEFT + _PLOT * tick / high
        parts.append(f'<path class="edge" d="M{x:.1f} {bottom}v4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_short(tick)}</text>')
    parts.append(f'<path class="edge" d="M{_LEFT} {bottom}H{_WIDTH - _RIGHT}"/>')
    # The faint ones lie below every line that is to be read.
    for curve in curves:
        if curve.means is not None:
            parts.append(_path(f"raw r{curve.run}", curve.x[axis], curve.values, scale, high, columns))
    for curve in curves:
        form = "mean" if curve.kind == _TRAINING else "held"
        values = curve.values if curve.means is None else curve.means
        read = f' data-run="{curve.run}" data-kind="{_text(_kind(curve.kind))}"'
        parts.append(_path(f"{form} r{curve.run}", curve.x[axis], values, scale, high, columns, read))
        if form == "held" and len(curve.values) <= 60:
            parts.append(_dots(curve, axis, scale, high))
    parts += _marks(axis, curves, scale, high, columns)
    inverse = (
        f'data-axis="{axis}" data-x="{high:.10g}" data-y="{scale.low:.8g} {scale.high:.8g}" data-form="{known.form}"'
    )
    return (
        f'<svg class="by-{axis}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" {inverse} '
        f'data-log="{int(scale.is_logarithmic)}" aria-label="{_text(known.title)} ({_text(name)}) by {axis}">'
        f"{''.join(part for part in parts if part)}</svg>"
    )


def _path(form: str, x: np.ndarray, values: np.ndarray, scale: Scale, high: float, columns: int, more: str = "") -> str:
    finite = np.isfinite(values)
    x, values = x[finite], values[finite]
    kept = thinned(x, values, high, columns)
    points = [f"{at:.1f} {y:.2f}" for at, y in zip(_LEFT + _PLOT * x[kept] / high, scale.y(values[kept]))]
    return f'<path class="{form}" d="M{"L".join(points)}"{more}/>' if points else ""


def _dots(curve: Curve, axis: str, scale: Scale, high: float) -> str:
    finite = np.isfinite(curve.values)
    places = zip(_LEFT + _PLOT * curve.x[axis][finite] / high, scale.y(curve.values[finite]))
    return f'<path class="dots r{curve.run}" d="{"".join(f"M{x:.1f} {y:.2f}h0" for x, y in places)}"/>'


def _marks(axis: str, curves: "Sequence[Curve]", scale: Scale, high: float, columns: int) -> "Iterator[str]":
    """Of steps that were skipped, below; of values that are none or beyond the axis, above. One for each column."""
    for curve in curves:
        skipped = curve.skipped[axis] if curve.kind == _TRAINING else np.array([])
        if len(skipped):
            shapes = "".join(f"M{x} {_HEIGHT - _BOTTOM}v-9" for x in _places(skipped, high, columns))
            yield f'<path class="skipped" d="{shapes}"><title>{_count(len(skipped), "skipped step")}</title></path>'
        outside = ~((curve.values >= scale.low) & (curve.values <= scale.high))
        if outside.any():
            shapes = "".join(f"M{x} {_TOP - 8}l3.5 6h-7z" for x in _places(curve.x[axis][outside], high, columns))
            told = _count(int(outside.sum()), "value") + " beyond the axis or not finite"
            yield f'<path class="beyond r{curve.run}" d="{shapes}"><title>{told}</title></path>'


def _places(x: np.ndarray, high: float, columns: int) -> "list[str]":
    column = np.unique((x / high * columns).astype("int64").clip(0, columns - 1))
    return [f"{_LEFT + _PLOT * (each + 0.5) / columns:.1f}" for each in column]


# ---- the page


def write_report(runs: "Sequence[Run]", out: PathLike) -> Path:
    """Draws runs into one HTML file, and gives its path.

    Raises:
        ReportError: there are none, or more than can be told apart.
        OSError: it cannot be written.
    """
    page = render(runs)
    with replaced(out) as path:
        Path(path).write_text(page, encoding="utf-8")
    return Path(out)


def render(runs: "Sequence[Run]") -> str:
    """The page of one run, or of up to six over one another."""
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ReportError(
            f"Expected 1 to {MOST_RUNS} runs, got {len(runs)}: more colours cannot be told apart. Draw fewer at a time."
        )
    names, half_life = _names(runs), _half_life(runs)
    axes = _AXES if all(run.total("tokens") is not None for run in runs) else _AXES[:1]
    title = names[0] if len(runs) == 1 else f"{len(runs)} runs"
    switch = '<p class="soft">By step: the tokens of each are not known.</p>'
    if len(axes) > 1:
        switch = (
            '<input type="radio" name="axis" id="by-step" checked><label for="by-step">by step</label>'
            '<input type="radio" name="axis" id="by-tokens"><label for="by-tokens">by tokens seen</label>'
        )
    cards = [_card(index, run, name, half_life) for index, (run, name) in enumerate(zip(runs, names))]
    kinds = " and ".join(dict.fromkeys(str(run.description["kind"]) for run in runs))
    return (
        _HEAD.replace("<!--title-->", _text(title), 1)
        + f'<body class="{"one" if len(runs) == 1 else "several"}"><header><p class="soft">{_text(kinds)}, drawn by '
        f"paddle_nezha</p><h1>{_text(title)}</h1></header>"
        + f'<section class="runs">{"".join(cards)}</section>{switch}<main>{_legend(runs, names, half_life)}'
        f"{_charts(runs, axes, half_life)}</main>{_settings(runs, names)}<script>{_SCRIPT}</script></body></html>\n"
    )


def _names(runs: "Sequence[Run]") -> "list[str]":
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


def _card(index: int, run: Run, name: str, half_life: float) -> str:
    told = summary(run, half_life)
    about = "≈ " if told["estimated"] else ""
    word, _, rest = run.state.partition(": ")
    facts = [("steps", f"{run.step:,}" + (f" of {run.steps:,}" if run.steps else ""))]
    if told["tokens"] is not None:
        facts.append(("tokens seen", f"{about}{told['tokens']:,}"))
    if told["hours"] is not None:
        facts.append(("time in steps", f"{about}{_duration(3600 * told['hours'])}"))
    if told["tokens_per_second"] is not None:
        facts.append(("mean tokens/s", f"{told['tokens_per_second']:,.0f}"))
    facts.append(("skipped steps", f"{told['skipped_steps']:,}"))
    tiles = "".join(f"<div><dt>{_text(fact)}</dt><dd>{_text(value)}</dd></div>" for fact, value in facts)
    state = f'<b class="{"done" if run.is_finished else "open"}">{_text(word)}</b> {_text(rest)}'
    heading = f"<h2><i class=r{index}></i>{_text(name)}</h2>"
    return (
        f'<article class="card">{heading}<p>{state}; last line {run.written:%Y-%m-%d %H:%M}</p>'
        f"<dl>{tiles}</dl>{_values(told['values'])}</article>"
    )


def _values(values: "dict[str, dict[str, dict[str, float]]]") -> str:
    """Training beside the other kinds: a row for each number of learning."""
    training = values.get("training", {})
    others = {kind: found for kind, found in values.items() if kind != "training"}
    names = dict.fromkeys(name for found in (*others.values(), training) for name in found)
    names = {name: None for name in _in_order(names) if metric(name).section in (_LEARNING, _OTHER)}
    if not names:
        return ""
    heads = ["", "training, mean"]
    for kind in others:
        heads += [f"{kind.replace('_', ' ')}, last", "best", "at step"]
    rows = []
    for name in names:
        form = metric(name).form
        cells = [_told(training[name]["last"], form) if name in training else ""]
        for found in others.values():
            value = found.get(name, {})
            cells += [_told(value[key], form) if key in value else "" for key in ("last", "best")]
            cells.append(f"{value['best_step']:,}" if "best_step" in value else "")
        rows.append((metric(name).title, cells))
    head = "".join(f"<th>{_text(each)}</th>" for each in heads)
    body = "".join(f"<tr><th>{_text(t)}</th>{''.join(f'<td>{_text(c)}</td>' for c in cells)}</tr>" for t, cells in rows)
    return f'<div class="wide"><table class="numbers"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _legend(runs: "Sequence[Run]", names: "Sequence[str]", half_life: float) -> str:
    line = '<svg viewBox="0 0 26 12"><path class="{}" d="M1 6L25 6"/></svg>'
    keys = [f'<span><i class="r{index}"></i>{_text(name)}</span>' for index, name in enumerate(names)]
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


def _in_order(names: "Iterable[str]") -> "list[str]":
    known = list(_KNOWN)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def _charts(runs: "Sequence[Run]", axes: "Sequence[str]", half_life: float) -> str:
    names = _in_order(dict.fromkeys(name for run in runs for _, name in run.series if name not in _NOT_DRAWN))
    count = sum(len(run.series) for run in runs)
    # A series takes at most two points a column for itself, and two for its mean.
    columns = max(10, min(_PLOT, _MOST_POINTS // (4 * len(axes) * count)))
    totals = [run.total("tokens") if "tokens" in axes else None for run in runs]
    high = {
        "step": float(max(each.steps[-1] for run in runs for each in run.series.values())) or 1.0,
        "tokens": float(max((total.values[-1] for total in totals if total is not None), default=1.0)) or 1.0,
    }
    sections = []
    for section in _SECTIONS:
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
            means = _means(kind, name, series, half_life)
            skipped = places(run.skipped)
            yield Curve(index, kind, places(series.steps), series.values, means and means.values, skipped)


def _figure(name: str, curves: "Sequence[Curve]", axes: "Sequence[str]", high: "dict[str, float]", columns: int) -> str:
    known = metric(name)
    scale = _scale(curves, known)
    last = []
    for curve in curves:
        value = curve.values[-1] if curve.means is None else curve.means[-1]
        told = f"{_text(_kind(curve.kind))} <b>{_told(value, known.form)}</b>"
        last.append(
            f"<span class={'learnt' if curve.kind == _TRAINING else 'measured'}><i class=r{curve.run}></i>{told}</span>"
        )
    unit = f' <span class="soft">{_text(known.unit)}</span>' if known.unit else ""
    logarithmic = ' <span class="soft">(logarithmic)</span>' if scale.is_logarithmic else ""
    charts = "".join(_chart(axis, curves, known, name, scale, high[axis], columns) for axis in axes)
    return (
        f'<figure><figcaption title="{_text(name)}"><b>{_text(known.title)}</b>{unit}{logarithmic}</figcaption>'
        f'<p class="read">{"".join(last)}<span class="soft at">last</span></p>{charts}</figure>'
    )


def _settings(runs: "Sequence[Run]", names: "Sequence[str]") -> str:
    tables = []
    for title, described in (
        ("Settings", [_flat(run.description.get("settings")) for run in runs]),
        ("Facts", [_flat({k: v for k, v in run.description.items() if k != "settings"}) for run in runs]),
    ):
        rows = []
        for key in dict.fromkeys(key for each in described for key in each):
            values = [each.get(key, "") for each in described]
            differs = ' class="differs"' if len(set(values)) > 1 else ""
            cells = "".join(f"<td>{_text(value)}</td>" for value in values)
            rows.append(f"<tr{differs}><th>{_text(key)}</th>{cells}</tr>")
        heads = "".join(f"<th><i class=r{i}></i>{_text(name)}</th>" for i, name in enumerate(names))
        head = f"<thead><tr><th></th>{heads}</tr></thead>" if len(runs) > 1 else ""
        tables.append(
            f'<details open><summary>{title}</summary><div class="wide"><table>{head}<tbody>{"".join(rows)}</tbody>'
            "</table></div></details>"
        )
    return f'<section class="tables">{"".join(tables)}</section>'


def _flat(described: Any, before: str = "") -> "dict[str, str]":
    """Nested objects as dotted keys, and values as a person would write them."""
    found: "dict[str, str]" = {}
    for key, value in described.items() if isinstance(described, dict) else ():
        name = f"{before}{key}"
        if isinstance(value, dict) and value:
            # What is under `facts` is among facts already.
            found.update(_flat(value, "" if name == "facts" else f"{name}."))
        else:
            found[name] = (
                value if isinstance(value, str) else "–" if value is None else json.dumps(value, ensure_ascii=False)
            )
    return found


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02} min"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _text(value: Any) -> str:
    """Safe within HTML and its attributes, and writable as UTF-8."""
    text = str(value).encode("utf-8", "replace").decode("utf-8")
    return html.escape("".join(letter if letter >= " " or letter in "\t\n" else "\ufffd" for letter in text))


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title><!--title--></title>
<style>
:root {
  --paper: #fcfcfa; --card: #fff; --ink: #1d2327; --soft: #5d686f; --line: #dfe3e4; --faint: #eef1f1;
  --good: #1a7f4b; --bad: #c4252f; --open: #8a5a00;
  --c0: #1667c9; --c1: #c2500f; --c2: #00846a; --c3: #b3488c; --c4: #8c6d00; --c5: #4c5a66;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1b2024; --ink: #e4e8ea; --soft: #98a4ab; --line: #30383d; --faint: #262e33;
    --good: #4cc38a; --bad: #ff7b80; --open: #e3b341;
    --c0: #69acff; --c1: #ff9a5c; --c2: #41d1a8; --c3: #ec9acb; --c4: #e0c04a; --c5: #b5c1ca;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 1400px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", "PingFang SC",
    sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { margin: 0; font-size: 2.4rem; line-height: 1.15; letter-spacing: .01em; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1.25rem; overflow-wrap: anywhere; }
p { margin: .3rem 0; }
.soft { color: var(--soft); }
.r0 { --c: var(--c0); } .r1 { --c: var(--c1); } .r2 { --c: var(--c2); }
.r3 { --c: var(--c3); } .r4 { --c: var(--c4); } .r5 { --c: var(--c5); }
.one .held, .one .dots { --c: var(--c1); }
i { display: inline-block; width: .7em; height: .7em; border-radius: 50%; background: var(--c); margin-right: .4em; }
.one i { display: none; }
.done { color: var(--good); } .open { color: var(--open); }
.runs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 1rem; }
.runs { margin: 1.2rem 0 1.6rem; }
.card, figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; min-width: 0; }
.card { padding: .9rem 1.2rem 1.1rem; }
.card h2 { margin: 0; font-size: 1.1rem; }
.one .card h2 { display: none; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: .7rem 0; }
dt { color: var(--soft); font-size: .82rem; }
dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { text-align: left; padding: .22rem 1.4rem .22rem 0; border-bottom: 1px solid var(--line); }
th, td { vertical-align: baseline; }
tbody th { font-weight: 400; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.numbers { min-width: min(100%, 46rem); }
.numbers td, .numbers th + th { text-align: right; white-space: nowrap; padding: .22rem 0 .22rem 1rem; }
input[name=axis] { position: absolute; opacity: 0; }
input[name=axis] + label {
  display: inline-block; padding: .25rem .9rem; border: 1px solid var(--line); cursor: pointer; color: var(--soft);
  background: var(--card); font-size: .9rem; border-radius: 6px; margin-right: .4rem;
}
input[name=axis]:checked + label { color: var(--ink); border-color: var(--ink); font-weight: 600; }
input[name=axis]:focus-visible + label { outline: 2px solid var(--c0); outline-offset: 2px; }
svg.by-tokens, #by-tokens:checked ~ main svg.by-step { display: none; }
#by-tokens:checked ~ main svg.by-tokens { display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .85rem; color: var(--soft); margin: .9rem 0 0; }
.legend svg { display: inline-block; width: auto; height: 12px; vertical-align: -1px; margin-right: .4rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 370px), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .7rem .8rem .5rem; }
figcaption { padding-left: .3rem; }
.read { display: flex; flex-wrap: wrap; gap: 0 1rem; padding-left: .3rem; margin: 0 0 .3rem; }
.read { font-size: .85rem; min-height: 1.5em; }
.one .learnt { color: var(--c0); } .one .measured { color: var(--c1); }
.at { margin-left: auto; padding-right: .3rem; }
.several .at { order: -1; flex-basis: 100%; }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 12.5px; font-family: inherit; }
svg path { fill: none; }
.grid { stroke: var(--faint); } .edge { stroke: var(--soft); }
.raw { stroke: var(--c); opacity: .24; stroke-linejoin: round; }
.several .raw { opacity: .18; }
.mean, .held { stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.held { stroke-dasharray: 5 3.5; }
.dots { stroke: var(--c); stroke-width: 6; stroke-linecap: round; }
.skipped { stroke: var(--bad); stroke-width: 1.6; }
svg .beyond { fill: var(--c); }
.pointer { stroke: var(--ink); opacity: .45; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 0 2.5rem; }
.tables { align-items: start; }
details { margin-top: 2.2rem; min-width: 0; }
summary { cursor: pointer; font-size: 1.25rem; font-weight: 600; margin-bottom: .4rem; }
details table { width: 100%; }
details td { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .93em; }
details td { overflow-wrap: anywhere; }
.differs th { font-weight: 600; } .differs td { color: var(--open); }
@media (max-width: 600px) {
  .numbers { font-size: .8rem; }
  .numbers tbody th, .numbers th + th { white-space: normal; }
  .numbers td, .numbers th + th { padding-left: .5rem; }
  .card { padding: .8rem .8rem 1rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  input[name=axis] + label { display: none; }
  figure, .card, tr { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
</style></head>
"""

# The values are read back from the curves, whose coordinates have the digits a read-out shows.
_SCRIPT = f"""
"use strict";
const LEFT = {_LEFT}, PLOT = {_PLOT}, TOP = {_TOP}, HIGH = {_HEIGHT - _TOP - _BOTTOM}, BOTTOM = {_HEIGHT - _BOTTOM};
const charts = [...document.querySelectorAll("figure svg")].map(svg => {{
  const read = svg.parentNode.querySelector(".read");
  return {{ svg, read, kept: [...read.childNodes], axis: svg.dataset.axis, curves: null, pointer: null }};
}});
"""
_SCRIPT += """
function curves(chart) {
  chart.curves ??= [...chart.svg.querySelectorAll("path[data-kind]")].map(path => ({
    run: path.dataset.run, kind: path.dataset.kind,
    points: path.getAttribute("d").slice(1).split("L").map(point => point.split(" ").map(Number)),
  }));
  return chart.curves;
}
function value(svg, y) {
  const share = 1 - (y - TOP) / HIGH, [low, high] = svg.dataset.y.split(" ").map(Number);
  const x = svg.dataset.log === "1" ? low * (high / low) ** share : low + share * (high - low);
  if (svg.dataset.form === "share") return (100 * x).toFixed(1) + "%";
  if (Math.abs(x) >= 1000) return Math.round(x).toLocaleString("en");
  return x !== 0 && Math.abs(x) < 1e-3 ? x.toExponential(2) : x.toPrecision(4);
}
function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle; else high = middle;
  }
  return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
}
function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function show(axis, x) {
  for (const chart of charts.filter(each => each.axis === axis)) {
    const at = Math.round((x - LEFT) / PLOT * Number(chart.svg.dataset.x));
    const told = [];
    for (const curve of curves(chart)) {
      if (x > curve.points.at(-1)[0] + 2) continue;
      const span = element("span", undefined, curve.kind === "training" ? "learnt" : "measured");
      const shown = value(chart.svg, nearest(curve.points, x)[1]);
      span.append(element("i", undefined, "r" + curve.run), curve.kind + " ", element("b", shown));
      told.push(span);
    }
    told.push(element("span", `${axis} ${at.toLocaleString("en")}`, "soft at"));
    chart.read.replaceChildren(...told);
    if (!chart.pointer) {
      chart.pointer = document.createElementNS("http://www.w3.org/2000/svg", "path");
      chart.pointer.setAttribute("class", "pointer");
      chart.svg.append(chart.pointer);
    }
    chart.pointer.setAttribute("d", `M${x.toFixed(1)} ${TOP}V${BOTTOM}`);
  }
}
function hide() {
  for (const chart of charts) {
    chart.read.replaceChildren(...chart.kept);
    chart.pointer?.remove();
    chart.pointer = null;
  }
}
for (const { svg, axis } of charts) {
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    if (x < LEFT || x > LEFT + PLOT) hide(); else show(axis, x);
  });
  svg.addEventListener("pointerleave", hide);
}
"""
