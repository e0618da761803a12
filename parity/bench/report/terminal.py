"""The report at the terminal; the figures last, where the eye is."""

from typing import Optional

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from parity.bench.report import tables
from parity.bench.result import Bench
from parity.report.terminal import plain

_STYLES = {"met": "green", "MISSED": "bold red", "MET": "bold green", "MEASURED": "bold"}


def show(bench: Bench, console: Optional[Console] = None) -> None:
    """Print what each engine did, what was left out and why, the promised figures, and the verdict."""
    console = console or Console()
    console.print(plain(tables.conditions(bench), console, "bold"))
    versions = ", ".join(f"{name} {value}" for name, value in bench.environment.items())
    console.print(plain(versions, console, "dim"))
    for table in (*tables.speeds(bench), tables.memory(bench), tables.accuracy(bench)):
        _print(table, console)
    for engine in bench.engines:
        if engine.why:
            console.print(plain(f"left out: {engine.name}: {engine.why}", console))
    for note in bench.notes:
        console.print(plain(f"note: {note}", console))
    _print(tables.figures(bench), console)
    if bench.stopped:
        console.print(plain(f"The run was {bench.stopped}; this is what was measured by then.", console, "bold"))
    word, sentence = tables.headline(bench)
    console.print()
    console.print(Text.assemble((word, _STYLES.get(word, "bold red")), "  ", sentence))


def _print(table: "Optional[tables.Table]", console: Console) -> None:
    if table is None:
        return
    console.print()
    console.print(plain(table.title, console, "bold"))
    if table.remark:
        console.print(plain(table.remark, console, "dim"))
    shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    shown.add_column(table.header[0], overflow="fold")
    for name in table.header[1:]:
        words = name in ("met?", "")
        shown.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in table.rows:
        shown.add_row(*(plain(text, console, _STYLES.get(text, "")) for text in row))
    console.print(shown)
