"""Whether two sets of runs differ."""

import argparse
from dataclasses import asdict
from typing import Any

from paddle_nezha.commands.shared import COULD_NOT, DONE, add_json, command, fail, print_json
from paddle_nezha.training.comparison import SPLITS, compare_runs, read_runs, table

_PACKAGES = {"scipy", "seqeval", "sklearn"}


def add(commands: Any) -> None:
    one = command(
        commands,
        "compare",
        _compare,
        "say whether two fine-tunings, each of one seed or more, differ beyond noise",
        "paddle-nezha compare ./tiny ./base",
        "paddle-nezha compare ./tiny ./base --metric macro_f1 --split dev --json",
    )
    one.add_argument("first", metavar="RUN", help="a fine-tuning's folder: its --output")
    one.add_argument("second", metavar="RUN", help="the folder of another on the same task")
    one.add_argument("--metric", metavar="NAME", help="default: the one that chose the checkpoints")
    one.add_argument("--split", choices=SPLITS, help="default: test where both have it")
    add_json(one)


def _compare(options: argparse.Namespace) -> int:
    try:
        found = compare_runs(read_runs(options.first), read_runs(options.second), options.metric, options.split)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        return fail(f"comparing needs {error.name}: pip install 'paddle_nezha[train]'", COULD_NOT, options.json)
    if options.json:
        print_json(asdict(found))
        return DONE
    for line in table(found):
        print(line)
    for note in found.notes:
        print(f"note  {note}")
    print(found.sentence)
    return DONE
