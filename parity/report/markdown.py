"""The report as Markdown for a CI summary: the verdict, the maxima by stage family, the rows that fail."""

import html
import re

from parity.report import summary
from parity.result import Report

SHOWN_FAILURES = 50  # a summary page is read, not searched; every row is in parity.json and parity.html


def render(report: Report) -> str:
    word, reason = summary.verdict(report)
    parts = [f"## Parity: {word}", f"{prose(reason)}.", f"Judged: {prose(report.subject)}"]
    facts = summary.first_failure(report)
    if facts:
        parts += [
            "### The first stage that parts",
            table(["", ""], [[label, code(text)] for label, text in facts]),
        ]
    parts += _failures(report)
    for question, families in summary.families(report).items():
        parts += [f"### {prose(summary.title(question))}"]
        if question in summary.QUESTIONS:
            parts.append(prose(summary.QUESTIONS[question][1]))
        header, lines = summary.table(families)
        marks = [f"**{family.failed:,} part**" if family.failed else "ok" for family in families]
        parts.append(table([*header, ""], [[code(line[0]), *line[1:], mark] for line, mark in zip(lines, marks)]))
        parts += map(prose, summary.allowances(families))
    if report.notes:
        parts += ["### Notes", "\n".join(f"- {prose(note)}" for note in report.notes)]
    environment = [[prose(name), prose(value)] for name, value in report.environment.items()]
    parts += ["### Environment", table(["", ""], [*environment, ["command", code(report.command)]])]
    return "\n\n".join(parts) + "\n"


def _failures(report: Report) -> "list[str]":
    failed = summary.failures(report)
    if not failed:
        return []
    lines = [
        [
            code(row.stage),
            code(row.case),
            code(row.head),
            f"{row.dtype}, {row.form}",
            summary.measured_text(row),
        ]
        for row in failed[:SHOWN_FAILURES]
    ]
    parts = [
        f"### {len(failed):,} beyond the limit",
        table(["stage", "case", "head", "form", "measured"], lines),
    ]
    if len(failed) > SHOWN_FAILURES:
        parts.append(f"… and {len(failed) - SHOWN_FAILURES:,} more, in parity.html and parity.json.")
    return parts


def table(header: "list[str]", lines: "list[list[str]]") -> str:
    """Cells come escaped. The first column holds names, the others numbers or short texts."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def code(text: str) -> str:
    """A code span that survives backticks, bars (which end a table cell even in code) and line breaks."""
    text = _line(text).replace("|", "\\|")
    if not text.strip():
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def prose(text: str) -> str:
    """Text that is no markup: HTML as entities, Markdown's own signs behind a backslash, one line."""
    text = html.escape(_line(text), quote=False)
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)


def _line(text: str) -> str:
    return summary.visible(re.sub(r"\s+", " ", text))
