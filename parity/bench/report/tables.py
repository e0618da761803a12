"""What the three readable reports say in common: the tables, as texts."""

from typing import NamedTuple, Optional

from parity.bench.figures import accuracy_ratios, geometric_mean, median, times_anchor
from parity.bench.plan import ANCHOR, BY_NAME, TASKS, WHATS, Case
from parity.bench.result import Bench, Cell, Figure


class Table(NamedTuple):
    """The first column holds names, the others numbers."""

    title: str
    remark: str
    header: "list[str]"
    rows: "list[list[str]]"


def number(value: Optional[float], unit: str = "") -> str:
    """Three digits, and all of those before the point."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    if value and abs(value) < 0.1:
        text = f"{value:.2g}"
    return f"{text} {unit}" if unit and unit != "x" else text


def milliseconds(seconds: Optional[float]) -> str:
    return number(None if seconds is None else 1e3 * seconds)


def verdict(figure: Figure) -> str:
    return {True: "met", False: "MISSED", None: ""}[figure.met]


def must_be(figure: Figure) -> str:
    return "-" if figure.bound is None else f"{figure.sense} {number(figure.bound, figure.unit)}"


def headline(bench: Bench) -> "tuple[str, str]":
    """A word and a sentence on the figures."""
    judged = [figure for figure in bench.figures if figure.met is not None]
    missed = [figure for figure in judged if not figure.met]
    if not judged:
        return "MEASURED", "no figure is judged in this run"
    rest = f", {len(bench.figures) - len(judged)} not judged" if len(judged) < len(bench.figures) else ""
    if missed:
        return "MISSED", f"{len(missed)} of {len(judged)} figures are beyond what they must be{rest}"
    return "MET", f"{len(judged)} figures are all what they must be{rest}"


def conditions(bench: Bench) -> str:
    setting = bench.setting
    clock = "processor time" if setting.threads == 1 else "wall time"
    model = f"{setting.sizes['num_hidden_layers']} layers of {setting.sizes['hidden_size']}"
    return (
        f"{bench.environment.get('processor', 'unknown processor')} (AVX-512: {bench.environment.get('avx512')}), "
        f"{_plural(setting.threads, 'thread')}, {clock}; {model}, float32, dropout {setting.dropout:g}"
    )


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def figures(bench: Bench) -> "Optional[Table]":
    if not bench.figures:
        return None
    rows, before = [], ""
    for f in bench.figures:
        title = f"{f.number} {f.figure}"
        rows.append(
            ["" if title == before else title, f.at, number(f.measured, f.unit), must_be(f), verdict(f) or f.why]
        )
        before = title
    remark = "A ratio is the median of neighbouring repetitions' ratios."
    return Table("The promised figures", remark, ["figure", "at", "measured", "must be", "met?"], rows)


def shapes(bench: Bench, task: str) -> "list[Case]":
    found = {cell.case for cell in bench.cells if cell.task == task and cell.rounds}
    return sorted(found, key=lambda case: (case.length, case.batch, case.padded))


def in_order(bench: Bench, task: str) -> "list[str]":
    """Names of the engines with times, in the plan's order."""
    there = {cell.engine for cell in bench.cells if cell.task == task and cell.rounds}
    return [name for name in BY_NAME if name in there]


def speeds(bench: Bench) -> "list[Table]":
    """Tokens a second, best of the repetitions: engines by shapes, one table for each task."""
    tables = []
    for task, words in TASKS.items():
        cases = shapes(bench, task)
        if not cases:
            continue
        rows = [[name, *(_speed(bench.cell(name, task, case)) for case in cases)] for name in in_order(bench, task)]
        remark = "Tokens a second, best of the repetitions"
        remark += "; of padded batches the real tokens." if any(case.padded for case in cases) else "."
        if task in WHATS["attention"]:
            remark += " Inputs lie as each engine reads them."
        tables.append(Table(words, remark, ["engine", *(case.name for case in cases)], rows))
    return tables


def _speed(cell: Optional[Cell]) -> str:
    return "-" if cell is None or cell.tokens_per_second is None else f"{cell.tokens_per_second:,.0f}"


def every_time(bench: Bench) -> "Optional[Table]":
    rows = [
        [
            f"{cell.engine}, {cell.task}, {cell.case.name}",
            milliseconds(cell.best),
            milliseconds(median(list(cell.times().values()))),
            _speed(cell),
            number(times_anchor(bench, cell)),
            str(len(cell.rounds)),
            cell.clock,
            cell.why,
        ]
        for cell in bench.cells
    ]
    header = ["engine, task, shape", "best, ms", "median, ms", "tokens/s", f"time / {ANCHOR}", "rounds", "clock", ""]
    return Table("Every time", "", header, rows) if rows else None


def memory(bench: Bench) -> "Optional[Table]":
    rows = [
        [
            f"{row.engine}, {row.task}, {row.case.name}",
            number(row.held_mb),
            number(row.peak_mb),
            row.why,
        ]
        for row in bench.memory
    ]
    remark = (
        "Growth of the resident set in a new, untuned process with one thread, MB: of building the engine, then the "
        "peak over one call, tables of one attention included, inputs not."
    )
    return Table("Peak memory", remark, ["engine, task, shape", "built", "call", ""], rows) if rows else None


def accuracy(bench: Bench) -> "Optional[Table]":
    rows = []
    for name in dict.fromkeys(row.engine for row in bench.accuracy):
        ratios = accuracy_ratios(bench.accuracy, name)
        mine = [row for row in bench.accuracy if row.engine == name and row.output_error is not None]
        if not mine:
            rows.append([name, "-", "-", "-", "-", next(row.why for row in bench.accuracy if row.engine == name)])
            continue
        worst = [max(getattr(row, kind) for row in mine) for kind in ("output_error", "gradient_error")]
        means = [number(geometric_mean(ratios[kind])) if ratios[kind] else "-" for kind in ("outputs", "gradients")]
        rows.append([name, *(f"{error:.1e}" for error in worst), *means, ""])
    remark = (
        "Attention alone in float32 against float64: the largest error on the scale of the largest value, and its "
        "geometric mean over that of the published arithmetic. Inputs from N(0, 1), and three times as large."
    )
    header = ["engine", "outputs", "gradients", "outputs, ratio", "gradients, ratio", ""]
    return Table("Error against float64", remark, header, rows) if rows else None


def engines(bench: Bench) -> "Optional[Table]":
    rows = []
    for engine in bench.engines:
        state = f"left out: {engine.why}" if engine.why else ", ".join(f"{k} {v}" for k, v in engine.facts.items())
        rows.append([engine.name, engine.title, str(engine.threads), "tuned" if engine.tuned else "stock", state])
    return Table("Engines", "", ["engine", "", "threads", "", ""], rows) if rows else None
