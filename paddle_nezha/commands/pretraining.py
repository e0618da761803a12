"""Pre-training, and what a run looked like."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paddle_nezha.commands.shared import COULD_NOT, DONE, add_json, command, fail, print_json, stopped_by, use_all_cores
from paddle_nezha.training.pretraining.settings import PretrainingSettings
from paddle_nezha.training.settings import add_flags, given_flags, make, read_yaml
from paddle_nezha.tuning import tune_cpu


def add(commands: Any) -> None:
    one = command(
        commands,
        "pretrain",
        _pretrain,
        "train a model on a corpus, from nothing or from a checkpoint; the same command goes on with a stopped run",
        "paddle-nezha pretrain config.yaml",
        "paddle-nezha pretrain --corpus ./corpus --output ./run --steps 20000 --batch-size 16",
        "python -m paddle.distributed.launch --nproc_per_node 2 $(which paddle-nezha) pretrain config.yaml",
    )
    one.add_argument("file", nargs="?", metavar="CONFIG", help="settings as YAML; a flag wins over them")
    add_flags(one, PretrainingSettings)
    add_json(one)
    one.set_defaults(kept="; the last checkpoint is kept, and the same command goes on from it")


def _pretrain(options: argparse.Namespace) -> int:
    use_all_cores()
    given = given_flags(PretrainingSettings, options)
    source = options.file or "the command line"
    values = {**(read_yaml(Path(options.file)) if options.file else {}), **given}
    settings = make(PretrainingSettings, values, source)
    try:
        from paddle_nezha.training.pretraining.trainer import pretrain
    except ModuleNotFoundError as error:
        if error.name != "paddle":
            raise
        return fail(error, COULD_NOT, options.json)
    tune_cpu()
    result = pretrain(settings)
    if options.json:
        print_json(asdict(result))
    elif result.signal is not None:
        print(f"stopped  by {result.signal} after step {result.steps}; the same command goes on from there")
    else:
        print(f"trained  {result.model} ({result.steps:,} steps)")
        for name, value in (result.evaluation or {}).items():
            print(f"held out {name:15} {value:.4f}")
    return DONE if result.signal is None else stopped_by(result.signal)
