"""What became of each planted fault, at the terminal."""

from typing import Any, Optional

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.report import summary
from parity.report.terminal import plain


def show(findings: "list[Any]", console: Optional[Console] = None) -> None:
    """Print every `parity.faults.Finding`, and how many of each kind were caught and placed."""
    console = console or Console()
    for kind in dict.fromkeys(finding.fault.kind for finding in findings):
        mine = [finding for finding in findings if finding.fault.kind == kind]
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for title, ratio in ((f"{kind} faults", 3), ("seen first at", 3)):
            table.add_column(title, overflow="fold", ratio=ratio)
        table.add_column("error", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for finding in mine:
            seen = finding.seen_stage or "not caught"
            if not finding.placed:
                seen += f", not at {finding.fault.stage}"
            mark = Text("ok", "green") if finding.placed else Text("MISSED", "bold red")
            table.add_row(
                plain(finding.fault.what, console),
                plain(seen, console),
                summary.number(finding.error),
                mark,
                end_section=False,
            )
        console.print(table)
        console.print()
    placed = sum(finding.placed for finding in findings)
    caught = sum(finding.caught for finding in findings)
    word = Text("ALL SEEN", "bold green") if placed == len(findings) else Text("MISSED", "bold red")
    console.print(
        Text.assemble(word, f"  {len(findings)} faults planted, {caught} caught, {placed} at the right stage")
    )
