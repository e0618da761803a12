"""The figures that were promised, and how they are computed from what was measured. Pure functions, no framework."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from parity.bench.plan import ANCHOR, ATTENTION, ATTENTION_TRAINING, BASE_SIZES, BY_NAME, FORWARD, TRAINING, Case
from parity.bench.result import Accuracy, Bench, Cell, Figure
from parity.bench.tuning import NOT_TUNED

# A figure needs so many pairs: with fewer the median still follows a neighbour's load on the machine.
LEAST_PAIRS = 9
# Of the processors that an engine of several threads needs, so much must be free for its figure to be judged.
_FREE_SHARE = 0.9
# Half a unit in the last place of float32 on the scale of 1: an error below it is luck.
_HALF_ULP = 2.0**-25


@dataclass(frozen=True)
class Promise:
    """A ratio of times. `over` and `under` name engines, the first measured one counts.

    Args:
        bounds: what the ratio must be, by (B, L); B = 0 is any.
        padded: the numerator is the padded batch of the same shape.
        several: at shapes of more than one text alone.
    """

    number: int
    title: str
    task: str
    over: "tuple[str, ...]"
    under: "tuple[str, ...]"
    sense: str
    bounds: "Mapping[tuple[int, int], float]"
    padded: bool = False
    several: bool = False

    def bound(self, case: Case) -> Optional[float]:
        return self.bounds.get((case.batch, case.length), self.bounds.get((0, case.length)))

    def asked_at(self, case: Case, anywhere: bool) -> bool:
        fits = not self.several or case.batch > 1
        return fits and not case.padded and (anywhere or self.bound(case) is not None)


PROMISES = (
    Promise(
        1, "whole model forward / same engine without the relative part", FORWARD,
        ("ours",), ("bound",), "<=", {(0, 128): 1.05, (0, 512): 1.05},
    ),
    Promise(
        2, "whole model forward / Paddle's plain BERT, both tuned", FORWARD,
        ("ours",), ("bert",), "<=", {(8, 128): 0.75, (1, 512): 0.75, (8, 512): 0.66},
    ),
    Promise(
        3, "training step / Paddle's plain BERT, both tuned", TRAINING,
        ("ours",), ("bert",), "<=", {(8, 128): 0.85, (1, 512): 0.90, (8, 512): 0.85},
    ),
    Promise(
        4, "attention alone / same operator without the relative part", ATTENTION,
        ("ours",), ("bound",), "<=", {(0, 128): 1.50, (0, 512): 1.20, (0, 2048): 1.08},
    ),
    Promise(
        5, "published arithmetic, stock Paddle / ours in Paddle Inference", FORWARD,
        ("paddlenlp", "published-stock"), ("ours-inference",), ">=", {(8, 128): 6.5, (1, 512): 10.0, (8, 512): 6.5},
    ),
    Promise(
        7, "padded batch, 56 % real tokens / full batch", FORWARD,
        ("ours",), ("ours",), "<=", {(0, 128): 0.58, (0, 512): 0.58}, padded=True, several=True,
    ),
    Promise(
        8, "attention alone, one thread / two threads", ATTENTION,
        ("ours",), ("ours-2-threads",), ">=", {(8, 512): 1.85},
    ),
    Promise(
        9, "attention alone, AVX2 form / AVX-512 form", ATTENTION,
        ("ours-avx2",), ("ours",), "<=", {(0, 128): 2.2, (0, 512): 2.2, (0, 2048): 2.2},
    ),
    Promise(
        11, "tokens/s, ours in Paddle Inference / BERT in OpenVINO", FORWARD,
        ("bert-openvino",), ("ours-inference",), ">=", {(8, 128): 1.00},
    ),
)  # fmt: skip
# 6: MB at this shape, by task.
MEMORY_SHAPE = Case(1, 2048)
MEMORY_BOUNDS = {ATTENTION: 11.0, ATTENTION_TRAINING: 40.0}
# 10: our error over that of the published arithmetic: geometric mean of outputs, of gradients, and the worst of all.
ACCURACY_BOUNDS = {"outputs": 1.1, "gradients": 1.6, "worst": 4.0}
ACCURACY_YARDSTICK = "published"


def promised(task: str) -> "list[str]":
    """The engines that the figures of a task read, in their order."""
    names = (name for p in PROMISES if p.task == task for name in (*p.over, *p.under))
    return list(dict.fromkeys(names))


# ---- numbers


def median(values: "Sequence[float]") -> Optional[float]:
    return statistics.median(values) if values else None


def pair_ratios(over: "Mapping[int, float]", under: "Mapping[int, float]") -> "list[float]":
    """The ratio in each round that both have; neighbours in time share what else the machine was doing."""
    return [over[round_] / under[round_] for round_ in sorted(over) if under.get(round_, 0.0) > 0.0]


def cell_ratios(over: Optional[Cell], under: Optional[Cell]) -> "tuple[list[float], str]":
    """Ratios of two cells, and the clock: the processors' where both are alone on one, else the wall's."""
    if over is None or under is None:
        return [], ""
    clock = "cpu" if over.clock == under.clock == "cpu" else "wall"
    return pair_ratios(over.times(clock), under.times(clock)), clock


def times_anchor(bench: Bench, cell: Cell) -> Optional[float]:
    """A cell's time over ours at the same task and shape, median of the rounds they share."""
    if cell.engine == ANCHOR:
        return None
    return median(cell_ratios(cell, bench.cell(ANCHOR, cell.task, cell.case))[0])


def geometric_mean(values: "Iterable[float]") -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def error_ratio(ours: float, theirs: float) -> float:
    return (ours + _HALF_ULP) / (theirs + _HALF_ULP)


# ---- the rows


def figures(bench: Bench, whats: "Sequence[str]", cases: "Sequence[Case]", engines: "Sequence[str]") -> "list[Figure]":
    """Every promised figure that this run was asked for, measured or with the reason why not.

    Args:
        whats: names of `plan.WHATS` and their tasks.
        engines: those that were asked for; a figure of others is none of this run's.
    """
    rows = []
    for promise in PROMISES:
        if promise.task in whats and set(promise.over) & set(engines) and set(promise.under) & set(engines):
            rows += [_ratio(bench, promise, case, engines) for case in cases if promise.asked_at(case, bench.quick)]
    if "memory" in whats and ANCHOR in engines:
        rows += _memory(bench)
    if "accuracy" in whats and {ANCHOR, ACCURACY_YARDSTICK} <= set(engines):
        rows += _accuracy(bench)
    return sorted(rows, key=lambda row: row.number)


def _ratio(bench: Bench, promise: Promise, case: Case, asked: "Sequence[str]") -> Figure:
    row = Figure(promise.number, promise.title, case.name, promise.sense, promise.bound(case))
    over_case = Case(case.batch, case.length, True) if promise.padded else case
    reasons: list[str] = []
    for over in promise.over:
        for under in promise.under:
            cells = bench.cell(over, promise.task, over_case), bench.cell(under, promise.task, case)
            ratios, clock = cell_ratios(*cells)
            if ratios:
                row.measured, row.low, row.high = statistics.median(ratios), min(ratios), max(ratios)
                row.pairs, row.clock = len(ratios), clock
                row.why = _doubt(bench, promise, (over, under))
                return _judged(row, row.why or _too_few(row))
            absent = zip((over, under), cells)
            reasons += [_absence(bench, name, cell) for name, cell in absent if name in asked]
    return _unmeasured(row, reasons)


def _unmeasured(row: Figure, reasons: "Iterable[str]") -> Figure:
    row.why = "not measured: " + ("; ".join(dict.fromkeys(filter(None, reasons))) or "no pairs")
    return row


def _absence(bench: Bench, name: str, cell: Optional[Cell]) -> str:
    if cell is not None and cell.rounds:
        return ""
    facts = next((engine for engine in bench.engines if engine.name == name), None)
    if facts is not None and facts.why:
        return f"{name} was left out"  # the list of engines says why
    return f"{name}: {cell.why}" if cell is not None and cell.why else f"{name} was not reached"


def _too_few(row: Figure) -> str:
    return f"{row.pairs} pairs, a figure needs {LEAST_PAIRS}" if row.pairs < LEAST_PAIRS else ""


def _doubt(bench: Bench, promise: Promise, names: "tuple[str, str]") -> str:
    """Why what was measured is not what was promised, so that the bound says nothing about it."""
    avx512 = bench.environment.get("avx512")
    if bench.quick or bench.setting.sizes | {"max_position_embeddings": 0} != _base_sizes():
        return "not base size"
    if bench.setting.threads != 1:
        return "promised for one thread"
    if bench.setting.dropout:
        return "promised without dropout"
    if avx512 != "yes":
        return "promised for processors with AVX-512" if avx512 == "no" else "AVX-512 or not is unknown"
    for engine in bench.engines:
        free = engine.free_processors
        if engine.name in names and free is not None and free < _FREE_SHARE * engine.threads:
            return f"others used the machine: {free:.1f} of {engine.threads} processors were free"
        if engine.name in names and BY_NAME[engine.name].tuned and engine.facts.get("tuning", "").startswith(NOT_TUNED):
            return f"{engine.name} is {NOT_TUNED}"
    return ""


def _base_sizes() -> "dict[str, int]":
    return {**BASE_SIZES, "max_position_embeddings": 0}


def _judged(row: Figure, doubt: str) -> Figure:
    if doubt:
        row.why = doubt
    elif row.bound is not None and row.measured is not None:
        row.met = row.measured <= row.bound if row.sense == "<=" else row.measured >= row.bound
    return row


def _memory(bench: Bench) -> "list[Figure]":
    rows = []
    for task, bound in MEMORY_BOUNDS.items():
        case = MEMORY_SHAPE
        if bench.quick:
            case = max((row.case for row in bench.memory if row.task == task), default=MEMORY_SHAPE)
        found = next((m for m in bench.memory if (m.engine, m.task, m.case) == (ANCHOR, task, case)), None)
        words = "forward" if task == ATTENTION else "forward and backward"
        row = Figure(6, f"peak memory of attention, {words}", case.name, "<=", bound, unit="MB")
        if found is None or found.peak_mb is None:
            rows.append(_unmeasured(row, [found.why if found else f"{ANCHOR} was not read at {case.name}"]))
            continue
        row.measured, row.pairs = found.peak_mb, 1
        rows.append(_judged(row, "not base size" if bench.quick else ""))
    return rows


def accuracy_ratios(
    rows: "Iterable[Accuracy]", engine: str, yardstick: str = ACCURACY_YARDSTICK
) -> "dict[str, list[float]]":
    """An engine's errors over the yardstick's, one for each length and scale that both have."""
    by = {(row.engine, row.length, row.scale): row for row in rows if row.output_error is not None}
    found: dict[str, list[float]] = {"outputs": [], "gradients": []}
    for (name, length, scale), row in by.items():
        other = by.get((yardstick, length, scale))
        if name != engine or other is None:
            continue
        for kind, ours, theirs in (
            ("outputs", row.output_error, other.output_error),
            ("gradients", row.gradient_error, other.gradient_error),
        ):
            if ours is not None and theirs is not None:
                found[kind].append(error_ratio(ours, theirs))
    return found


def _accuracy(bench: Bench) -> "list[Figure]":
    ratios = accuracy_ratios(bench.accuracy, ANCHOR)
    every = ratios["outputs"] + ratios["gradients"]
    wanted: "dict[str, tuple[str, list[float], Callable[[list[float]], float]]]" = {
        "outputs": ("outputs, geometric mean", ratios["outputs"], geometric_mean),
        "gradients": ("gradients, geometric mean", ratios["gradients"], geometric_mean),
        "worst": ("the worst of all", every, max),
    }
    rows = []
    for kind, (words, values, reduce) in wanted.items():
        title = f"error against float64 / that of the published arithmetic: {words}"
        row = Figure(10, title, f"{len(values)} inputs", "<=", ACCURACY_BOUNDS[kind])
        if not values:
            reasons = [row.why for row in bench.accuracy]
            missing = [name for name in (ANCHOR, ACCURACY_YARDSTICK) if name not in {r.engine for r in bench.accuracy}]
            rows.append(_unmeasured(row, [*reasons, *(_absence(bench, name, None) for name in missing)]))
            continue
        row.measured, row.low, row.high, row.pairs = reduce(values), min(values), max(values), len(values)
        rows.append(_judged(row, "fewer inputs than promised" if bench.quick else ""))
    return rows
