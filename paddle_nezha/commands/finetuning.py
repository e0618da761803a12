"""Fine-tuning, of one seed or several."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from paddle_nezha.commands.shared import COULD_NOT, DONE, add_json, command, fail, print_json, stopped_by, use_all_cores
from paddle_nezha.training.finetuning.settings import PRESETS, TASKS, FinetuneSettings
from paddle_nezha.training.settings import add_flags, given_flags, make, read_yaml
from paddle_nezha.tuning import tune_cpu


def add(commands: Any) -> None:
    one = command(
        commands,
        "finetune",
        _finetune,
        "train a task on labelled files, without a line of code; the same command goes on with a stopped run",
        "paddle-nezha finetune sentence --model nezha-base-chinese --train train.tsv --dev dev.tsv --output run",
        "paddle-nezha finetune token --preset ner --model ./my-model --train train.txt --dev dev.txt --output ner",
        "paddle-nezha finetune sentence --config run.yaml --seeds 5",
        "python -m paddle.distributed.launch --nproc_per_node 2 $(which paddle-nezha) finetune token --config ner.yaml",
    )
    one.add_argument("task", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    one.add_argument(
        "--config",
        dest="file",
        metavar="FILE",
        help="settings as YAML; a flag wins over them. Under the launcher all go here: it takes --train for its own",
    )
    one.add_argument(
        "--preset", choices=PRESETS, help="lengths, batches, rates and epochs of Huawei's scripts for such a corpus"
    )
    one.add_argument(
        "--seeds", type=_count, metavar="N", help="train N times, with seeds from --seed on, and sum them up"
    )
    add_flags(one, FinetuneSettings, leave_out=("task",))
    add_json(one)
    one.set_defaults(kept="; the last checkpoint is kept, and the same command goes on from it")


def _finetune(options: argparse.Namespace) -> int:
    use_all_cores()
    source = options.file or "the command line"
    preset, written = PRESETS.get(options.preset, {}), read_yaml(Path(options.file)) if options.file else {}
    for name, settled in ((f"the preset {options.preset}", preset), (source, written)):
        if settled.get("task", options.task) != options.task:
            return fail(f"{name} is for the task {settled['task']}, not {options.task}", COULD_NOT, options.json)
    flags = {name: value for name, value in given_flags(FinetuneSettings, options).items() if name != "task"}
    values = {**preset, **written, **flags}
    settings = make(FinetuneSettings, {**values, "task": options.task}, source)
    try:
        from paddle_nezha.training.finetuning import trainer
    except ModuleNotFoundError as error:
        if error.name not in ("paddle", "sklearn", "seqeval"):
            raise
        needs = error if error.name == "paddle" else f"{error}: pip install 'paddle_nezha[train]'"
        return fail(needs, COULD_NOT, options.json)
    tune_cpu()
    if options.seeds is None:
        results = [trainer.finetune(settings)]
    else:
        results = trainer.finetune_seeds(settings, options.seeds)
    last = results[-1]
    if last.signal is not None:
        print(f"stopped  by {last.signal} in epoch {last.epochs + 1}; the same command goes on from there")
        return stopped_by(last.signal)
    if options.json:
        print_json([dataclasses.asdict(result) for result in results])
        return DONE
    for result in results:
        for split in ("dev", "test"):
            scores = getattr(result, split)
            if scores is not None:
                shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
                print(f"seed {result.seed:<4} {split:5} {shown}")
        print(f"seed {result.seed:<4} model {result.model} (epoch {result.best_epoch} of {result.epochs})")
    if len(results) > 1:
        _sum_up(Path(settings.output))
    return DONE


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, got {text!r}")
    return count


def _sum_up(folder: Path) -> None:
    from paddle_nezha.training.comparison import OF_SEEDS, read_runs

    runs = read_runs(folder)
    for split, summary in runs.summaries(runs.metric).items():
        print(
            f"{split:9} {runs.metric}: {summary.mean:.4f}, 95 % from {summary.low:.4f} to {summary.high:.4f} "
            f"(sd {summary.sd:.4f}, {summary.least:.4f} .. {summary.greatest:.4f}, {summary.n} seeds)"
        )
    print(OF_SEEDS)
