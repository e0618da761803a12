"""Two runs of the judge: has an error grown, even inside its limit?

What is noise. The same program on the same machine repeats its errors bit for bit. Another processor, thread
count or library sums in another order and draws its roundings anew. Measured on one attention block (L = 7,
N = 12, float32, 1,500 blocks, every sum reordered): beyond 4 ulp, the largest error of a stage of at least
12 numbers grew by at most 2.8x, and the worst of 8 samples by at most 3.6x. A single number (a loss, a logit)
is another matter: it may be right by luck, and 1 in 50 grew by more than 4x.
"""

import math
import re
from dataclasses import dataclass
from typing import Optional

from rich.console import Console
from rich.text import Text

from parity.report import summary
from parity.report.terminal import plain
from parity.result import Report, Row

# Beyond what reordered sums do to an error, see above.
FACTOR = 4.0
# Below this many ulp an error is a handful of roundings, and its growth says nothing.
FLOOR_ULPS = 4.0
_ULP = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Stages of a few numbers, right by luck now and then: each may be as wrong as the worst of its own case was.
_FEW_NUMBERS = re.compile(r"loss|(nsp|classifier)\.logits|\w+:(.*\.)?(classifier|seq_relationship)\.bias")

VANISHED = "vanished"
FAILED = "now fails"
ERROR_GREW = "error grew"
RATIO_GREW = "ratio grew"
SHOWN = 20  # of a kind; the first few tell the story, the reports hold the rest


@dataclass(frozen=True)
class Finding:
    """One row that became worse.

    Args:
        kind: VANISHED, FAILED, ERROR_GREW or RATIO_GREW.
        old, new: the row in both runs; `new` is None where it vanished.
        message: what happened, with both numbers.
    """

    kind: str
    old: Row
    new: Optional[Row]
    message: str


def compare(old: Report, new: Report, *, factor: float = FACTOR) -> "list[Finding]":
    """What became worse from `old` to `new`, in the order of `old`; at most one finding a row, the gravest.

    Rows are matched by question, case, head, dtype, form and stage. A finding is a row that vanished, one
    that passed and now fails, an error grown by more than `factor` beyond the noise, or a ratio grown by more
    than the square root of `factor` to above 1. New rows are no finding: nothing is there to compare with.

    Raises:
        ValueError: `factor` is below 1, or the reports have no row in common.
    """
    if not factor >= 1:
        raise ValueError(
            f"factor is how much an error may grow, at least 1, not {factor}; leave it out for {FACTOR:g}."
        )
    for name, report in (("old", old), ("new", new)):
        if not report.rows:
            raise ValueError(
                f"the {name} report has no rows to compare; make one with `python -m parity run --report FOLDER`."
            )
    before, after, floors = _by_key(old), _by_key(new), _floors(old)
    if not before.keys() & after.keys():
        raise ValueError(
            f"the two reports have nothing in common: the old one is of {_contents(old)}, the new one of "
            f"{_contents(new)}. Compare two runs of the same cases."
        )
    found = (_finding(row, after.get(key), floors, factor) for key, row in before.items())
    return [finding for finding in found if finding is not None]


def _finding(old: Row, new: Optional[Row], floors: "dict[tuple[str, ...], float]", factor: float) -> Optional[Finding]:
    if new is None:
        return Finding(VANISHED, old, None, "was judged, and no longer is")
    if old.passed and not new.passed:
        return Finding(FAILED, old, new, f"passed with {summary.measured_text(old)}; now {summary.measured_text(new)}")
    if math.isinf(new.limit):  # reported, not judged: the judge itself takes these numbers for noise
        return None
    floor = FLOOR_ULPS * _ULP.get(old.dtype, 0.0)
    if _FEW_NUMBERS.fullmatch(old.stage):
        floor = max(floor, floors[_case(old)])
    if summary.size(new.error) > factor * max(summary.size(old.error), floor):
        grown = f" ({_times(new.error / old.error)})" if old.error and math.isfinite(new.error) else ""
        numbers = f"{summary.number(old.error)} -> {summary.number(new.error)}{grown}"
        return Finding(ERROR_GREW, old, new, f"{numbers}, limit {summary.limit_text(new)}")
    return _grown_ratio(old, new, factor)


def _grown_ratio(old: Row, new: Row, factor: float) -> Optional[Finding]:
    """A ratio is a mean over the samples, so it is calmer than a largest error: its noise, as a logarithm, is
    about half. Up to 1 Paddle is no worse than PyTorch, and near exactness one ulp moves a ratio by much."""
    if old.ratio is None or new.ratio is None or new.ratio <= max(1.0, math.sqrt(factor) * old.ratio):
        return None
    theirs = f"PyTorch's own error {summary.number(old.torch_error)} -> {summary.number(new.torch_error)}"
    return Finding(
        RATIO_GREW, old, new, f"{old.ratio:.2f} -> {new.ratio:.2f}, limit {summary.limit_text(new)}; {theirs}"
    )


def _case(row: Row) -> "tuple[str, ...]":
    return row.question, row.case, row.head, row.dtype, row.form


def _by_key(report: Report) -> "dict[tuple[str, ...], Row]":
    """The rows by what they are matched by; of two with one key the worse stands."""
    rows: dict[tuple[str, ...], Row] = {}
    for row in report.rows:
        key = (*_case(row), row.stage)
        known = rows.get(key)
        if known is None or (row.passed, -summary.size(row.error)) < (
            known.passed,
            -summary.size(known.error),
        ):
            rows[key] = row
    return rows


def _contents(report: Report) -> str:
    """A few words on what a report is about."""
    cases = list(dict.fromkeys(row.case for row in report.rows))
    shown = ", ".join(cases[:3]) + (f" and {len(cases) - 3:,} more" if len(cases) > 3 else "")
    heads, dtypes = (sorted({getattr(row, name) for row in report.rows}) for name in ("head", "dtype"))
    return summary.visible(f"{report.subject} ({shown}; {', '.join(heads)}; {', '.join(dtypes)})")


def _floors(report: Report) -> "dict[tuple[str, ...], float]":
    """For each case the largest error of a passing stage."""
    worst: dict[tuple[str, ...], float] = {}
    for row in report.rows:
        worst[_case(row)] = max(worst.get(_case(row), 0.0), row.error if row.passed else 0.0)
    return worst


def _times(value: float) -> str:
    return f"{value:.1f}x" if value < 1e6 else ">1e6x"


def show_findings(findings: "list[Finding]", old: Report, new: Report, console: Optional[Console] = None) -> None:
    """Print what became worse, kind by kind, what changed in the environment, and the verdict last."""
    console = console or Console()
    for kind in (VANISHED, FAILED, ERROR_GREW, RATIO_GREW):
        lines = _lines([finding for finding in findings if finding.kind == kind])
        if lines:
            console.print(plain(f"{kind}:", console, "bold"))
        for line in lines[:SHOWN]:
            console.print(plain(f"  {line}", console))
        if len(lines) > SHOWN:
            console.print(plain(f"  ... and {len(lines) - SHOWN:,} more", console))
    for name, was, now in _differences(old, new):
        console.print(plain(f"{name} differs: {was} -> {now}", console, "dim"))
    rows = _by_key(new)
    common = [rows[key] for key in _by_key(old) if key in rows]
    judged = sum(map(summary.is_judged, common))
    compared = f"{summary.plural(judged, 'stage')} compared" + summary.reported_text(len(common) - judged)
    if findings:
        count = summary.plural(len(findings), "finding")
        console.print(Text.assemble(("WORSE", "bold red"), f"  {count}; {compared}"))
    else:
        console.print(Text.assemble(("NOT WORSE", "bold green"), f"  no error has grown; {compared}"))


def _differences(old: Report, new: Report) -> "list[tuple[str, str, str]]":
    """What else changed between two runs, beside the numbers."""
    was, now = ({**report.environment, "run": "quick" if report.quick else "whole"} for report in (old, new))
    facts = ((name, was.get(name, "not stated"), now.get(name, "not stated")) for name in dict.fromkeys([*was, *now]))
    return [fact for fact in facts if fact[1] != fact[2]]


def _lines(findings: "list[Finding]") -> "list[str]":
    """One line a finding; a case that vanished whole, or in many stages, takes one line for all of them."""
    gone: dict[str, list[str]] = {}
    lines = []
    for finding in findings:
        question, case, head, dtype, form = _case(finding.old)
        place = f"{case} [{head}, {form}] {question} {dtype}"
        if finding.kind == VANISHED:
            gone.setdefault(place, []).append(finding.old.stage)
        else:
            lines.append(f"{place} {finding.old.stage}: {finding.message}")
    lines += [f"{place}: {_few(stages)}" for place, stages in gone.items()]
    return lines


def _few(stages: "list[str]") -> str:
    return ", ".join(stages) if len(stages) <= 3 else f"{len(stages):,} stages, {stages[0]} to {stages[-1]}"
