"""What a run of training looked like."""

import argparse
from pathlib import Path
from typing import Any

from paddle_nezha.commands.shared import COULD_NOT, DONE, add_json, command, fail, print_json
from paddle_nezha.training.report import PAGE, read_run, summary, write_report


def add(commands: Any) -> None:
    one = command(
        commands,
        "report",
        _report,
        "draw a run's curves, or several runs' over one another, as one HTML page",
        "paddle-nezha report ./run",
        "paddle-nezha report ./run-a ./run-b --out compared.html",
    )
    one.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder: the `output` of its settings")
    one.add_argument("--out", metavar="FILE", help=f"the page (default: RUN/{PAGE}; needed for several runs)")
    add_json(one)


def _report(options: argparse.Namespace) -> int:
    if options.out is None and len(options.runs) > 1:
        return fail("several runs make one page: say with --out FILE where it goes", COULD_NOT, options.json)
    runs = [read_run(folder) for folder in options.runs]
    page = write_report(runs, options.out or Path(options.runs[0]) / PAGE)
    if options.json:
        print_json({"report": str(page), "runs": [summary(run) for run in runs]})
        return DONE
    for run in runs:
        print(f"{run.folder}  {run.state}")
        if not run.is_finished:
            print("  the command that started it goes on from its last checkpoint; then draw it anew")
    print(f"drawn  {page}")
    return DONE
