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
    for (
        name,
        text,
    ) in pieces.items():  # nothing written in can hold a marker: every "<" of a report is escaped
        page = page.replace(f"<!--{name}-->", text)
    return page


def data(report: Report) -> "dict[str, object]":
    """What the page's script draws from. Texts that repeat are kept once; rows refer to them by number."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    rows = [
        [
            *(text(t) for t in (row.question, row.case, row.head, row.dtype, row.form, row.stage)),
            text(summary.family(row.stage)),
            *(_json_number(x) for x in (row.error, row.torch_error, row.ratio, row.limit, summary.margin(row))),
            int(row.passed),
            text(summary.limit_text(row)),
            text(_details(report, row)),
        ]
        for row in report.rows
    ]
    stages = summary.forward_order(row.stage for row in report.rows)
    families = summary.forward_order(map(summary.family, stages))
    questions = {text(row.question): row.question for row in report.rows}
    return {
        "texts": list(texts),
        "stages": [texts[stage] for stage in stages],
        "families": [texts[name] for name in families],
        "questions": {number: summary.QUESTIONS.get(name, (name, "")) for number, name in questions.items()},
        "rows": rows,
    }


def _details(report: Report, row: Row) -> str:
    parts = [row.why] if row.why else []
    if row.worst is not None:
        values = f"worst at {list(row.worst.index)}: Paddle {row.worst.paddle!r}, truth {row.worst.truth!r}"
        parts.append(values if row.worst.torch is None else f"{values}, PyTorch {row.worst.torch!r}")
    if not row.passed:
        parts.append(f"run it again: {summary.rerun(report, row)}")
    return "\n".join([*parts, f"samples: {row.samples}"])


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
    return (
        f"<h3>{escape(summary.title(question))}</h3><div class=wide><table class=numbers>"
        f"<thead><tr>{header}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _notes(report: Report) -> str:
    if not report.notes:
        return ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return f"<section><h2>Notes</h2><ul>{notes}</ul></section>"


def _environment(report: Report) -> str:
    facts = {
        **report.environment,
        "run": report.created,
        "took": f"{report.seconds:,.1f} s",
        "command": report.command,
    }
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
