"""The report as one HTML page without scripts that asks nothing of the network: page.html with this run written in."""

import math
from html import escape
from pathlib import Path
from typing import Optional

from parity.bench.plan import ANCHOR, BY_NAME, TASKS, Case
from parity.bench.report import tables
from parity.bench.result import Bench, Figure
from parity.report.summary import visible

_PAGE = Path(__file__).with_name("page.html")

# One panel of bars: the width of names, of bars, of the numbers behind them, and the height of a line.
_NAMES, _BARS, _NUMBERS, _LINE = 128, 260, 92, 19
# The chart of figures: the width of names, of the axis.
_LABELS, _AXIS = 520, 400


def render(bench: Bench) -> str:
    word, sentence = tables.headline(bench)
    pieces = {
        "word": _text(word),
        "state": {"MET": "passed", "MISSED": "failed"}.get(word, "measured"),
        "sentence": _text(sentence),
        "conditions": _text(tables.conditions(bench)),
        "stopped": _stopped(bench),
        "figures": _figures(bench),
        "charts": "".join(_charts(bench)),
        "tables": "".join(
            _table(each)
            for each in (tables.memory(bench), tables.accuracy(bench), tables.every_time(bench), tables.engines(bench))
            if each is not None
        ),
        "notes": _notes(bench),
        "environment": _environment(bench),
    }
    page = _PAGE.read_text(encoding="utf-8")
    for name, text in pieces.items():  # every "<" of a report is escaped, so nothing written in holds a marker
        page = page.replace(f"<!--{name}-->", text)
    return page


def _text(text: str) -> str:
    return escape(visible(text))


def _stopped(bench: Bench) -> str:
    if not bench.stopped:
        return ""
    return f'<p class="card">The run was {_text(bench.stopped)}; this is what was measured by then.</p>'


def _table(table: "tables.Table") -> str:
    header = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.header)
    body = []
    for name, *cells in table.rows:
        state = {"met": ' class="good"', "MISSED": ' class="bad"'}
        body.append(
            f'<tr><th scope="row">{_text(name)}</th>'
            + "".join(f"<td{state.get(cell, '')}>{_text(cell)}</td>" for cell in cells)
            + "</tr>"
        )
    remark = f'<p class="soft">{_text(table.remark)}</p>' if table.remark else ""
    return (
        f"<section><h2>{_text(table.title)}</h2>{remark}<div class=wide><table><thead><tr>{header}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div></section>"
    )


# ---- figures


def _figures(bench: Bench) -> str:
    table = tables.figures(bench)
    return "" if table is None else _figure_chart(bench.figures) + _table(table)


def share(figure: Figure, value: Optional[float]) -> Optional[float]:
    """How much of its bound a value takes: 1 is the bound, below is met, whichever way the bound points."""
    if value is None or figure.bound is None or value <= 0:
        return None
    return value / figure.bound if figure.sense == "<=" else figure.bound / value


def _figure_chart(figures: "list[Figure]") -> str:
    """Each figure as a dot, with the span of its pairs, on a scale on which its bound is 1."""
    shown = [figure for figure in figures if share(figure, figure.measured) is not None]
    if not shown:
        return ""
    values = [share(f, v) for f in shown for v in (f.measured, f.low, f.high)]
    spread = max(max(abs(math.log(v)) for v in values if v is not None), math.log(1.25))

    def x(value: float) -> float:
        return _LABELS + _AXIS / 2 * (1 + math.log(value) / spread)

    height = _LINE * (len(shown) + 2)
    middle = x(1.0)
    lines = [
        f'<line class="limit" x1="{middle:.1f}" x2="{middle:.1f}" y1="{_LINE}" y2="{height - 6}"/>',
        f'<text x="{middle:.1f}" y="12" text-anchor="middle">must be</text>',
        f'<text x="{_LABELS + 4}" y="12">better</text>',
        f'<text x="{_LABELS + _AXIS - 4}" y="12" text-anchor="end">worse</text>',
    ]
    for line, figure in enumerate(shown, 1):
        y = _LINE * (line + 0.5)
        state = {True: "good", False: "bad", None: "open"}[figure.met]
        low, here, high = (share(figure, v) for v in (figure.low, figure.measured, figure.high))
        label = _text(f"{figure.number} {figure.figure}, {figure.at}")
        tip = _text(
            f"{figure.figure}, {figure.at}: {tables.number(figure.measured, figure.unit)}, must be "
            f"{tables.must_be(figure)}{'; ' + figure.why if figure.why else ''}"
        )
        lines.append(f'<g><title>{tip}</title><text class="name" x="0" y="{y + 4:.1f}">{label}</text>')
        if low is not None and high is not None:
            lines.append(f'<line class="span {state}" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if here is not None:
            lines.append(f'<circle class="{state}" cx="{x(here):.1f}" cy="{y:.1f}" r="4.5"/></g>')
    return (
        '<figure><figcaption class="soft">How much of its bound each figure takes, on a logarithmic scale; the line '
        "through a dot spans the single pairs.</figcaption><div class=wide>"
        f'<svg viewBox="0 0 {_LABELS + _AXIS} {height}" style="min-width: 640px" role="img" '
        f'aria-label="figures beside their bounds">{"".join(lines)}</svg></div></figure>'
    )


# ---- speeds


def family(name: str) -> str:
    """Whose it is, which is what colours tell: ours, the engine without the relative part, BERT, or the published."""
    if name.startswith(ANCHOR):
        return "ours"
    return name.partition("-")[0] if name.startswith(("bound", "bert")) else "published"


def _charts(bench: Bench) -> "list[str]":
    charts = []
    for task, words in TASKS.items():
        panels = [_panel(bench, task, case) for case in tables.shapes(bench, task)]
        if panels:
            charts.append(f"<section><h2>{_text(words)}</h2><div class=panels>{''.join(panels)}</div></section>")
    if charts:
        legend = (
            '<p class="soft above">Tokens a second, best of the repetitions, real tokens of padded batches. Longer is '
            "faster. Each panel has its own scale.</p><p class=legend>"
            "<span><i class=ours></i>NeZha, ours</span><span><i class=bound></i>ours without the relative part</span>"
            "<span><i class=bert></i>BERT</span><span><i class=published></i>NeZha as published</span></p>"
        )
        charts.insert(0, legend)
    return charts


def _panel(bench: Bench, task: str, case: Case) -> str:
    speeds = {}
    for name in BY_NAME:
        cell = bench.cell(name, task, case)
        if cell is not None and cell.tokens_per_second:
            speeds[name] = cell.tokens_per_second
    most = max(speeds.values())
    lines = []
    for line, (name, speed) in enumerate(sorted(speeds.items(), key=lambda item: -item[1])):
        y, width = _LINE * line, max(1.0, _BARS * speed / most)
        lines.append(
            f"<g><title>{_text(BY_NAME[name].title)}: {speed:,.0f} tokens/s</title>"
            f'<text class="name" x="{_NAMES - 6}" y="{y + 13}" text-anchor="end">{_text(name)}</text>'
            f'<rect class="{family(name)}" x="{_NAMES}" y="{y + 3}" width="{width:.1f}" height="{_LINE - 6}" rx="2"/>'
            f'<text x="{_NAMES + width + 5:.1f}" y="{y + 13}">{speed:,.0f}</text></g>'
        )
    total = _NAMES + _BARS + _NUMBERS
    return (
        f"<figure><figcaption>{_text(case.name)}</figcaption>"
        f'<svg viewBox="0 0 {total} {_LINE * len(speeds)}" role="img" '
        f'aria-label="{_text(TASKS[task])} at {_text(case.name)}">{"".join(lines)}</svg></figure>'
    )


# ---- the rest


def _notes(bench: Bench) -> str:
    if not bench.notes:
        return ""
    return f"<section><h2>Notes</h2><ul>{''.join(f'<li>{_text(note)}</li>' for note in bench.notes)}</ul></section>"


def _environment(bench: Bench) -> str:
    facts = {
        **bench.environment,
        "run": f"{bench.created}{' (quick)' if bench.quick else ''}",
        "took": f"{bench.seconds:,.0f} s",
        "command": bench.command,
    }
    return "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items() if value)
