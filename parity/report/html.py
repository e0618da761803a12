"""The report as one HTML page that asks nothing of the network: page.html, with this run written into it."""

import json
import math
from html import escape
from pathlib import Path
from typing import Optional, Union

from parity.report import summary
from parity.result import Report, Row

_PAGE = Path(__file__).with_name("page.html")


def render(report: Report) -> str:
    word, reason = summary.verdict(report)
    pieces = {
        "title": escape(f"{word} - parity of {report.subject}"),
        "state": "passed" if report.passed else "failed",
        "word": escape(word),
        "reason": escape(reason),
        "subject": escape(report.subject),
        "failure": _failure(report),
        "numbers": "".join(_numbers(question, found) for question, found in summary.families(report).items()),
        "notes": _notes(report),
        "environment": _environment(report),
        "data": _script_json(data(report)),
    }
    page = _PAGE.read_text(encoding="utf-8")
    for name, text in pieces.items():  # nothing written in can hold a marker: every "<" of a report is escaped
        page = page.replace(f"<!--{name}-->", text)
    return page


# What the script reads a row as. Empty places at its end are left out.
COLUMNS = ("stage", "error", "limit", "passed", "place", "samples", "why", "torch", "ratio", "more")
_DIGITS = 3  # the page shows two; parity.json has them all


def data(report: Report) -> "dict[str, object]":
    """What the page's script draws from. Texts and limits that repeat are kept once; rows refer to them by number."""
    texts: dict[str, int] = {}
    limits: dict[tuple[object, str], int] = {}
    groups: dict[tuple[int, ...], list[list[object]]] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    for row in report.rows:
        key = tuple(text(t) for t in (row.question, row.case, row.head, row.dtype, row.form))
        limit = limits.setdefault((_json_number(row.limit), summary.limit_text(row)), len(limits))
        error, torch, ratio = (_short(x, row) for x in (row.error, row.torch_error, row.ratio))
        cells: list[object] = [
            text(row.stage),
            error,
            limit,
            int(row.passed),
            list(row.worst.index) if row.worst else None,
        ]
        cells += [row.samples, text(row.why), torch, ratio, None if row.passed else text(_more(report, row))]
        while cells[-1] is None:
            cells.pop()
        groups.setdefault(key, []).append(cells)
    stages = summary.forward_order(row.stage for row in report.rows)
    families = summary.forward_order(map(summary.family, stages))
    questions = {text(row.question): row.question for row in report.rows}
    return {
        "stages": [text(stage) for stage in stages],
        "family": {text(stage): text(summary.family(stage)) for stage in stages},
        "families": [text(name) for name in families],
        "questions": {number: summary.QUESTIONS.get(name, (name, "")) for number, name in questions.items()},
        "limits": list(limits),
        "groups": [[*key, rows] for key, rows in groups.items()],
        "texts": list(texts),
    }


def _more(report: Report, row: Row) -> str:
    """What is said of a row that parts, beside its place and its reason."""
    parts = []
    if row.worst is not None:
        values = f"Paddle {row.worst.paddle!r}, truth {row.worst.truth!r}"
        parts.append(values if row.worst.torch is None else f"{values}, PyTorch {row.worst.torch!r}")
    return "\n".join([*parts, f"run it again: {summary.rerun(report, row)}"])


def _short(value: Optional[float], row: Row) -> "Union[float, str, None]":
    """Rounded, unless the row parts: its numbers may be beyond the limit by less than the rounding."""
    if value is None or not row.passed:
        return _json_number(value)
    return _json_number(float(f"{value:.{_DIGITS}g}"))


def _json_number(value: Optional[float]) -> "Union[float, str, None]":
    if value is None or math.isfinite(value):
        return value
    return str(value)  # JSON has no such numbers; the script reads these three words


def _script_json(value: object) -> str:
    """JSON that no parser takes for the end of a script or the start of a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _failure(report: Report) -> str:
    facts = summary.first_failure(report)
    if not facts:
        return ""
    lines = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in facts)
    return f'<section class="card failure"><h2>The first stage that parts</h2><dl>{lines}</dl></section>'


def _numbers(question: str, families: "list[summary.Family]") -> str:
    names, lines = summary.table(families)
    header = "".join(f'<th scope="col">{escape(name)}</th>' for name in (*names, ""))
    body = []
    for family, (name, *numbers) in zip(families, lines):
        mark = f"{family.failed:,} part" if family.failed else "ok"
        cells = "".join(f"<td>{escape(text)}</td>" for text in (*numbers, mark))
        state = ' class="part"' if family.failed else ""
        body.append(f'<tr{state}><th scope="row">{escape(name)}</th>{cells}</tr>')
    remarks = "".join(f'<p class="soft">{escape(note)}</p>' for note in summary.allowances(families))
    return (
        f"<h3>{escape(summary.title(question))}</h3><div class=wide><table class=numbers>"
        f"<thead><tr>{header}</tr></thead><tbody>{''.join(body)}</tbody></table></div>{remarks}"
    )


def _notes(report: Report) -> str:
    if not report.notes:
        return ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return f"<section><h2>Notes</h2><ul>{notes}</ul></section>"


def _environment(report: Report) -> str:
    facts = {
        **report.environment,
        "run": f"{report.created}{' (quick)' if report.quick else ''}",
        "took": f"{report.seconds:,.1f} s",
        "command": report.command,
    }
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
