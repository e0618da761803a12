"""What a run of training looked like, and what a fine-tuned model answers."""

import argparse
from pathlib import Path
from typing import Any, Optional

from paddle_nezha.commands.shared import COULD_NOT, DONE, add_json, command, fail, print_json
from paddle_nezha.training.comparison import OF_SEEDS, shown
from paddle_nezha.training.report import (
    MOST_RUNS,
    PAGE,
    ReportError,
    Results,
    Run,
    has_steps,
    read_results,
    read_run,
    results_summary,
    seed_folders,
    summary,
    write_report,
)

_PACKAGES = {"scipy", "seqeval", "sklearn"}


def add(commands: Any) -> None:
    one = command(
        commands,
        "report",
        _report,
        "draw a run's curves, or several runs' over one another, and tell a fine-tuning's results, as one HTML page",
        "paddle-nezha report ./run",
        "paddle-nezha report ./finetuned --json",
        "paddle-nezha report ./run-a ./run-b --out compared.html",
    )
    one.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a run's folder: the `output` of its settings; of several seeds the folder that holds seed-N",
    )
    one.add_argument("--out", metavar="FILE", help=f"the page (default: RUN/{PAGE}; needed for several runs)")
    add_json(one)


def _report(options: argparse.Namespace) -> int:
    if options.out is None and len(options.runs) > 1:
        return fail("several runs make one page: say with --out FILE where it goes", COULD_NOT, options.json)
    try:
        runs, results = _read_one(options.runs[0]) if len(options.runs) == 1 else (_read_several(options.runs), None)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _PACKAGES:
            raise
        return fail(
            f"the results of a fine-tuning need {error.name}: pip install 'paddle_nezha[train]'",
            COULD_NOT,
            options.json,
        )
    page = write_report(runs[:MOST_RUNS] if results else runs, options.out or Path(options.runs[0]) / PAGE, results)
    if options.json:
        told: "dict[str, Any]" = {"report": str(page), "runs": [summary(run) for run in runs]}
        if results is not None:
            told["results"] = results_summary(results)
        print_json(told)
        return DONE
    for run in runs:
        print(f"{run.folder}  {run.state}")
        if not run.is_finished:
            goes_on = "goes on from its last checkpoint, or begins anew if it has none"
            print(f"  the command that started it {goes_on}; then draw it again")
    if results is not None:
        _print_scores(results)
    print(f"drawn  {page}")
    return DONE


def _read_one(folder: str) -> "tuple[list[Run], Optional[Results]]":
    """A run, or the seeds of one fine-tuning, those that have begun; and their results."""
    seeds = [each for each in seed_folders(folder) if has_steps(each)]
    runs = [read_run(each) for each in seeds or [Path(folder)]]
    is_finetuning = all(run.description["kind"] == "finetuning" for run in runs)
    return runs, read_results(folder) if is_finetuning else None


def _read_several(folders: "list[str]") -> "list[Run]":
    for folder in folders:
        if seed_folders(folder):
            raise ReportError(
                f"{folder} holds several seeds: report it by itself; `paddle-nezha compare` says whether two such "
                "folders differ."
            )
    return [read_run(folder) for folder in folders]


def _print_scores(results: Results) -> None:
    for split, one in results.splits.items():
        for name, score in one.scores.items():
            told, found = shown(score.summary.mean, name), score.summary
            if found.sd is not None and found.low is not None and found.high is not None:
                low, high = shown(found.low, name), shown(found.high, name)
                told += f" ± {shown(found.sd, name)} (sd of {found.n} seeds), 95 % interval {low} to {high}"
            print(f"{split:4}  {name} {told}")
        if one.missing is not None:
            print(f"{split:4}  {one.missing}")
    if len(results.seeds) > 1:
        print(OF_SEEDS)
