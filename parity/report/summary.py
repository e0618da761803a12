"""What the terminal and the files say in common: stages gathered into families, their maxima, the words."""

import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from parity.result import ARITHMETIC, FORMULA, OUTSIDE, OUTSIDE_ARITHMETIC, TRAINING, Report, Row
from parity.stages import RATIO_LIMIT

# For people: what each question asks, and what the numbers under it mean.
QUESTIONS = {
    FORMULA: (
        "Is it the same formula?",
        "Both in float64; PyTorch is the truth. The limit is on Paddle's error.",
    ),
    ARITHMETIC: (
        "Is the arithmetic as good?",
        "Each framework's error against the float64 truth. The ratio is Paddle's over PyTorch's, the "
        "geometric mean over the samples; where there is one, the limit is on it. Ratio, limit and margin are of the "
        "row nearest its limit.",
    ),
    TRAINING: (
        "Does training stay together?",
        "The loss and every parameter over the optimizer's steps: in float64 against PyTorch, the truth; in "
        "float32 each framework's distance from the float64 run, and the ratio of the two.",
    ),
    OUTSIDE: (
        "Does an outside implementation agree?",
        "The PyTorch reference (under Paddle's column) against one that nobody here wrote, both in float64.",
    ),
    OUTSIDE_ARITHMETIC: (
        "Is the arithmetic as good as an outside implementation's?",
        "Paddle's error and the other's (under PyTorch's column) against the float64 truth, and their ratio.",
    ),
}

_PARTS = ("query", "key", "value", "scores", "probs", "context", "attention_output", "ffn", "output")
_BEFORE = ("table", "rows", "mask", "embeddings")
_AFTER = ("pooler", "mlm.transform", "mlm.logits", "nsp.logits", "classifier.logits", "loss")
_LAYER = re.compile(r"layer\.(\d+|\*)\.(.+)")


def title(question: str) -> str:
    return QUESTIONS.get(question, (question, ""))[0]


def family(stage: str) -> str:
    """The stage without its layer: `layer.7.query` is `layer.*.query`, and the gradients of every layer's
    `attention.query.weight` and `.bias` are `grad: attention.query`."""
    kind, colon, parameter = stage.partition(":")
    if not colon:
        return re.sub(r"^layer\.\d+\.", "layer.*.", stage)
    parameter = re.sub(r"^(.*\.)?encoder\.layer\.\d+\.|^nezha\.|^cls\.", "", parameter)
    parameter = re.sub(r"^embeddings\.(\w+_embeddings)", r"\1", parameter)
    return f"{kind}: {re.sub(r'[.](weight|bias)$', '', parameter)}"


def forward_order(stages: Iterable[str]) -> "list[str]":
    """Distinct stages or families in the order of the forward, layer by layer; then gradients, parameters.

    Heads have different stages, so the order in which a run meets them is not enough; it decides only
    between stages this list does not know.
    """

    def position(stage: str) -> "tuple[int, int, int]":
        if ":" in stage:
            return (3, 0, 0)
        if stage in _BEFORE:
            return (0, 0, _BEFORE.index(stage))
        layer = _LAYER.fullmatch(stage)
        if layer:
            number, part = layer.groups()
            rank = _PARTS.index(part) if part in _PARTS else len(_PARTS)
            return (1, 0 if number == "*" else int(number), rank)
        return (2, 0, _AFTER.index(stage) if stage in _AFTER else len(_AFTER))

    return sorted(dict.fromkeys(stages), key=position)


def size(value: Optional[float]) -> float:
    """A key to sort errors by, in which NaN is the worst."""
    return -1.0 if value is None else math.inf if math.isnan(value) else value


def margin(row: Row) -> float:
    """How many times the measured number fits into its limit: below 1 it is beyond; NaN fits no limit."""
    measured = row.error if row.ratio is None else row.ratio
    if math.isnan(measured) or math.isnan(row.limit):
        return 0.0
    if measured == 0:
        return math.inf
    return row.limit / measured if math.isfinite(measured) else 0.0


@dataclass(frozen=True)
class Family:
    """Rows of one question whose stages differ in the layer alone.

    Args:
        worst: the row with Paddle's largest error.
        torch_error: PyTorch's own largest error, None where PyTorch is the truth.
        tightest: the row closest to its limit, a failed one first; ratio, limit and margin shown are all its own, since
            the rows of a family may have different limits.
    """

    name: str
    rows: "tuple[Row, ...]"

    @property
    def failed(self) -> int:
        return sum(not row.passed for row in self.rows)

    @property
    def worst(self) -> Row:
        return max(self.rows, key=lambda row: size(row.error))

    @property
    def torch_error(self) -> Optional[float]:
        return _largest(row.torch_error for row in self.rows)

    @property
    def tightest(self) -> Row:
        return min(self.rows, key=lambda row: (row.passed, margin(row)))

    def cells(self) -> "tuple[str, str, str, str, str, str, str]":
        """Stage, rows, Paddle's worst error, PyTorch's, and the tightest row's ratio, limit and margin."""
        limit, room = limit_text(self.tightest), margin_text(margin(self.tightest))
        worst, torch_error = number(self.worst.error), number(self.torch_error)
        return self.name, f"{len(self.rows):,}", worst, torch_error, ratio_text(self.tightest.ratio), limit, room


_HEADER = ("stage", "rows", "Paddle", "PyTorch", "ratio", "limit", "margin")
_OPTIONAL = ("PyTorch", "ratio")


def table(found: "list[Family]") -> "tuple[list[str], list[list[str]]]":
    """Header and lines of a question's table. Columns without a number are left out: where PyTorch is the
    truth it has no error of its own."""
    lines = [one.cells() for one in found]
    kept = [i for i, name in enumerate(_HEADER) if name not in _OPTIONAL or any(line[i] != "-" for line in lines)]
    return [_HEADER[i] for i in kept], [[line[i] for i in kept] for line in lines]


def _largest(values: "Iterable[Optional[float]]") -> Optional[float]:
    known = [value for value in values if value is not None]
    return max(known, key=size) if known else None


def families(report: Report) -> "dict[str, list[Family]]":
    """For each question, in the order judged, its families in the order of the forward."""
    gathered: dict[str, dict[str, list[Row]]] = {}
    for row in report.rows:
        gathered.setdefault(row.question, {}).setdefault(family(row.stage), []).append(row)
    return {
        question: [Family(name, tuple(by_name[name])) for name in forward_order(by_name)]
        for question, by_name in gathered.items()
    }


def allowances(found_families: "Iterable[Family]") -> "list[str]":
    """What is said under a table of rows whose ratio may exceed RATIO_LIMIT: how many, why, and the worst of them."""
    rows = (row for one in found_families for row in one.rows)
    found = [row for row in rows if row.ratio is not None and row.passed and RATIO_LIMIT < row.limit < math.inf]
    if not found:
        return []
    worst = max(found, key=lambda row: size(row.ratio))
    return [
        f"{plural(len(found), 'row')} may exceed {RATIO_LIMIT:g}x: {worst.why}; the worst is {ratio_text(worst.ratio)} "
        f"of {limit_text(worst)}, at {worst.stage} ({worst.case}, {worst.head})."
    ]


def failures(report: Report) -> "list[Row]":
    return [row for row in report.rows if not row.passed]


def verdict(report: Report) -> "tuple[str, str]":
    """One word, and one line of what it stands on."""
    judged = sum(map(is_judged, report.rows))
    if not report.rows:
        return "NOTHING JUDGED", "no stage was compared, so nothing is shown to be equal"
    cases = len({row.case for row in report.rows})
    heads = len({row.head for row in report.rows})
    reported = reported_text(len(report.rows) - judged)
    over = f"{plural(cases, 'case')}, {plural(heads, 'head')}, {report.seconds:,.0f} s"
    over = f"a quick run of {over}" if report.quick else over
    if report.passed:
        return "EQUAL", f"{plural(judged, 'stage')} judged{reported}, all within their limits ({over})"
    failed = len(failures(report))
    return "PARTS", f"{failed:,} of {plural(judged, 'stage')} judged{reported} beyond the limit ({over})"


def is_judged(row: Row) -> bool:
    """An infinite limit says: reported, not judged. Such a row fails only on what is no number."""
    return math.isfinite(row.limit)


def reported_text(count: int) -> str:
    """What is added to a number of judged stages."""
    return f" ({count:,} more only reported)" if count else ""


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def first_failure(report: Report) -> "list[tuple[str, str]]":
    """Label and text of everything known about the first stage that parts; empty when all pass."""
    row = report.first_failure
    if row is None:
        return []
    facts = [
        ("stage", row.stage),
        ("case", row.case),
        ("head", row.head),
        ("asked", f"{title(row.question)} ({row.dtype}, {row.form} attention)"),
    ]
    if row.worst is not None:
        facts += [("where", str(list(row.worst.index))), ("Paddle", repr(row.worst.paddle))]
        if row.worst.torch is not None:
            facts.append(("PyTorch", repr(row.worst.torch)))
        facts.append(("truth", repr(row.worst.truth)))
    facts.append(("measured", measured_text(row)))
    facts += [(label, text) for label, text in (("why", row.why), ("likely cause", report.cause)) if text]
    facts.append(("run it again", rerun(report, row)))
    return facts


def measured_text(row: Row) -> str:
    """The numbers of one row in a sentence."""
    text = f"error {number(row.error)}"
    if row.torch_error is not None:
        text += f", PyTorch's own {number(row.torch_error)}"
    if row.ratio is not None:
        text += f", ratio {ratio_text(row.ratio)}"
    return f"{text}; limit {limit_text(row)}"


def rerun(report: Report, row: Row) -> str:
    """The command that judges this case and stage alone: the run's own, narrowed, so its checkpoint stays."""
    try:
        words = shlex.split(report.command)
    except ValueError:  # a quote that does not close: the command is only shown, so start from the plain one
        words = []
    if words[:4] != ["python", "-m", "parity", "run"]:
        words = ["python", "-m", "parity", "run"]
    replaced = ("--case", "--stage", "--report")
    kept = [
        word
        for before, word in zip([""] + words, words)
        if before not in replaced and word not in replaced and not word.startswith(tuple(f"{r}=" for r in replaced))
    ]
    return shlex.join([*kept, "--case", row.case, "--stage", row.stage])


def visible(text: str) -> str:
    """`text` with its control characters spelled out: no terminal obeys them and no file carries them on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def number(value: Optional[float]) -> str:
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return "0" if value == 0 else f"{value:.1e}"


def ratio_text(value: Optional[float]) -> str:
    if value is None or not math.isfinite(value) or value >= 1000:
        return number(value)
    return f"{value:.2f}"


def limit_text(row: Row) -> str:
    """`1e-10` for an error, `1.5x` for a ratio, `exact` for zero, `none` where a row is only reported."""
    if math.isinf(row.limit):
        return "none"
    if row.ratio is not None:
        return f"{row.limit:.2g}x"
    return "exact" if row.limit == 0 else number(row.limit).replace(".0e", "e")


def margin_text(value: float) -> str:
    """Two digits: `1.4x` inside the limit, `39x over` beyond it, `-` where there is nothing to divide by."""
    if math.isinf(value):
        return "-"
    if value == 0:
        return "over"
    if value < 1:
        return f"{_times(1 / value)} over"
    return _times(value)


def _times(value: float) -> str:
    if value >= 1e6:
        return ">1e6x"
    return f"{float(f'{value:.2g}'):,.0f}x" if value >= 10 else f"{value:.2g}x"
