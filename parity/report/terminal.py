"""The report at the terminal, in 80 columns, with or without colour; the verdict last, where the eye is."""

from typing import Optional

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from parity.report import summary
from parity.result import Report

_FAILED = "bold red"
_PASSED = "bold green"


def show(report: Report, console: Optional[Console] = None) -> None:
    """Print what was judged, each question's maxima by stage family, the first that parts, the verdict."""
    console = console or Console()
    console.print(plain(report.subject, console, "bold"))
    environment = ", ".join(f"{name} {value}" for name, value in report.environment.items())
    console.print(plain(environment, console, "dim"))
    for question, families in summary.families(report).items():
        console.print()
        console.print(plain(summary.title(question), console, "bold"))
        if question in summary.QUESTIONS:
            console.print(plain(summary.QUESTIONS[question][1], console, "dim"))
        console.print(_table(families, console))
        for note in summary.allowances(families):
            console.print(Padding(plain(note, console, "dim"), (0, 0, 0, 2)))
    if report.notes:
        console.print()
    for note in report.notes:
        console.print(Padding(plain(f"note: {note}", console), (0, 0, 0, 2)))
    facts = summary.first_failure(report)
    if facts:
        console.print()
        console.print(_first_failure(facts, console))
    word, reason = summary.verdict(report)
    console.print()
    console.print(Text.assemble((word, _PASSED if report.passed else _FAILED), "  ", reason))


def _table(families: "list[summary.Family]", console: Console) -> Table:
    header, lines = summary.table(families)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(header[0], overflow="fold", ratio=1)
    for name in header[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for family, line in zip(families, lines):
        mark = Text(f"{family.failed:,} part", _FAILED) if family.failed else Text("ok", "green")
        table.add_row(*(plain(text, console) for text in line), mark)
    return table


def _first_failure(facts: "list[tuple[str, str]]", console: Console) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(Text(label, "bold"), plain(text, console))
    return Panel(grid, title=Text("The first stage that parts", _FAILED), title_align="left", border_style="red")


def plain(text: str, console: Console, style: str = "") -> Text:
    """`text` without markup, and without what the terminal would obey or cannot encode."""
    encoding = console.encoding
    return Text(summary.visible(text).encode(encoding, "backslashreplace").decode(encoding), style)
