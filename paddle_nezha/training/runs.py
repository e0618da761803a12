"""A run's folder, whatever is trained: what it was told, how it goes on after a stop, and how it is stopped.

run.json        settings, what identifies the data, and what decides the last bit of a result
metrics.jsonl   see `metrics`
checkpoints/    see `checkpoints`
model/          the trained model, when it is finished
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
from tqdm import tqdm

from paddle_nezha import __version__, forms, operator
from paddle_nezha._files import held_alone, write_json
from paddle_nezha._paddle import paddle
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.pretrained import PretrainedLayer
from paddle_nezha.training import checkpoints
from paddle_nezha.training.engine import Engine, Outcome
from paddle_nezha.training.metrics import FILE, MetricsLog
from paddle_nezha.training.optimization import optimizer_state, restore_optimizer
from paddle_nezha.training.processes import Processes

RUN_FILE = "run.json"
MODEL_FOLDER = "model"
CHECKPOINTS = "checkpoints"
_ECHO = 5.0  # seconds

logger = logging.getLogger("paddle_nezha")


def conditions(processes: Processes) -> "dict[str, Any]":
    """What decides the last bit of a result beside settings and data."""
    return {
        "paddle_nezha": __version__,
        "paddle": paddle.__version__,
        "device": paddle.device.get_device(),
        "processor": platform.machine(),
        "processes": processes.count,
        "threads": os.environ.get("OMP_NUM_THREADS", "1"),
        "attention": forms.forced_form() or operator.describe().partition(",")[0],
    }


def begin(
    folder: Path, mine: "Mapping[str, Any]", free: "Sequence[str]", processes: Processes, held: contextlib.ExitStack
) -> Optional[checkpoints.Saved]:
    """Makes a run's folder, or finds what the run that is there goes on from. Every process calls it.

    Args:
        mine: the content of run.json: `settings`, `facts` (of `conditions`), and keys that identify the data.
        free: settings that may differ, since no number that is computed depends on them.
        held: until it is closed no other run begins in the folder.

    Raises:
        ValueError: the folder holds a run with other settings or data, or something that is no run.
        BlockingIOError: another run is at work in it.
    """
    path = folder / RUN_FILE
    is_new = not path.exists()
    check_folder(folder)
    theirs = {} if is_new else read_description(path)
    _hold(folder, processes, held)  # no one writes before all have looked
    if is_new:
        if processes.is_first:
            write_json(path, mine)
        return None
    differ = other_settings(theirs, mine["settings"], free)
    data = [name for name in mine if name not in ("settings", "facts")]
    differ += [
        f"{name} was {theirs.get(name)!r} and is {mine[name]!r}" for name in data if theirs.get(name) != mine[name]
    ]
    if differ and not has_begun(folder):  # it was refused, or stopped, before its first step
        if processes.is_first:
            write_json(path, mine)
        return None
    if differ:
        raise ValueError(
            f"{folder} holds another run ({'; '.join(differ)}): give what it was given to go on with it, or another "
            "output."
        )
    others = [
        f"{name} was {theirs['facts'].get(name)!r} and is {value!r}"
        for name, value in mine["facts"].items()
        if theirs["facts"].get(name) != value
    ]
    if others and processes.is_first:
        logger.warning(
            "This run goes on under other conditions (%s): its losses are right, but no longer bit for bit those of an "
            "unbroken run.",
            "; ".join(others),
        )
    return checkpoints.newest(folder / CHECKPOINTS)


def check_folder(folder: Path) -> None:
    """
    Raises:
        ValueError: a run cannot go there: it is a file, or holds something that is no run.
    """
    above = next(path for path in (folder, *folder.parents) if path.exists())
    if not above.is_dir():
        raise ValueError(f"{above} is a file, and a run's output is a folder: give another.")
    if not folder.exists() or (folder / RUN_FILE).exists() or not any(folder.iterdir()):
        return
    seeds = sorted(path.parent.name for path in folder.glob(f"seed-*/{RUN_FILE}"))
    if seeds:
        raise ValueError(
            f"{folder} holds runs of several seeds ({', '.join(seeds)}): give --seeds to go on with them, or another "
            "output."
        )
    raise ValueError(f"{folder} holds files, but no {RUN_FILE}, so it is no run: give output an empty folder.")


def _hold(folder: Path, processes: Processes, held: contextlib.ExitStack) -> None:
    """The first process holds the folder for all, and each learns whether it could."""
    taken = 0.0
    if processes.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(held_alone(folder))
        except BlockingIOError:
            taken = 1.0
    if processes.sum(np.array([taken]))[0]:
        raise BlockingIOError(f"Another run is at work in {folder}: wait for it, or give another output.")


def other_settings(theirs: "Mapping[str, Any]", mine: "Mapping[str, Any]", free: "Sequence[str]") -> "list[str]":
    """How settings differ from those of a run's description, for a message; `free` are those that may."""
    return [
        f"{name} was {theirs['settings'].get(name)!r} and is {value!r}"
        for name, value in mine.items()
        if name not in free and theirs["settings"].get(name) != value
    ]


def has_begun(folder: Path) -> bool:
    """Whether a run has made a step."""
    log = folder / FILE
    return (log.exists() and log.stat().st_size > 0) or any(
        (folder / name).exists() for name in (CHECKPOINTS, MODEL_FOLDER)
    )


def read_description(path: Path) -> "dict[str, Any]":
    """The content of a run.json.

    Raises:
        ValueError: it is damaged.
    """
    try:
        content = json.loads(path.read_bytes())
        if isinstance(content["settings"], dict) and isinstance(content["facts"], dict):
            return dict(content)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(
        f"{path} is not what a run writes there (an object with settings and facts): copy it back from a backup, or "
        "give another output."
    )


def without_missing_amp(settings: Any) -> Any:
    """The settings without the mixed precision that a processor has not, which is said."""
    if settings.amp == "none" or paddle.device.get_device() != "cpu":
        return settings
    logger.warning("amp: Paddle has no mixed precision on processors; this run computes without it.")
    return dataclasses.replace(settings, amp="none")


def check_length(config: NeZhaConfig, max_length: int) -> None:
    """
    Raises:
        ValueError: texts would be longer than the model's absolute positions.
    """
    bound = config.max_position_embeddings
    if not config.use_relative_position and bound < max_length:
        raise ValueError(
            f"max_length ({max_length}) is beyond the model's max_position_embeddings ({bound}), where its absolute "
            "positions end."
        )


def save(
    folder: Path, done: int, model: PretrainedLayer, engine: Engine, facts: "Mapping[str, Any]", keep: int
) -> None:
    """A checkpoint of a run after `done` steps. Every process calls it."""
    processes = engine.processes
    keeps_state = processes.is_first or processes.sharding
    arrays = optimizer_state(engine.optimizer, engine.parameters) if keeps_state else {}
    content = {**facts, "scaler": engine.scaler_state()}
    checkpoints.save(folder / CHECKPOINTS, done, model, arrays, content, processes, keep)


def restore(saved: checkpoints.Saved, model: PretrainedLayer, engine: Engine) -> None:
    """What `save` saved, into a model and an engine that has made no step."""
    model.load_arrays(saved.model_arrays(), str(saved.folder))
    restore_optimizer(engine.optimizer, saved.optimizer_arrays(), engine.parameters)
    engine.restore_scaler(saved.facts["scaler"])


def told(outcome: Outcome, rate: float, tokens: float, seconds: float) -> "dict[str, Any]":
    """What every run writes of a step beside its losses; `seconds` is how long it took."""
    return {
        "learning_rate": rate,
        "gradient_norm": outcome.norm,
        "updated": outcome.updated,
        "tokens": int(tokens),
        "seconds": round(seconds, 6),
        "tokens_per_second": round(tokens / seconds, 1),
    }


def dropout_seed(seed: int, step: int, rank: int) -> "Callable[[int], int]":
    """From the number of a micro-batch to what its dropout is drawn from: another draw for each seed, step, process and
    micro-batch, and no state to keep."""

    def drawn(number: int) -> int:
        described = f"{seed} {step} {rank} {number}"
        return int.from_bytes(hashlib.sha256(described.encode()).digest()[:4], "big") >> 1

    return drawn


def progress_bar(total: int, done: int, processes: Processes) -> Any:
    """The line that lives while a run does, in the process that shows it; where it goes into a file, twice a minute."""
    every = 0.1 if sys.stderr.isatty() else 30.0
    return tqdm(
        total=total, initial=done, unit="step", dynamic_ncols=True, mininterval=every, disable=not processes.is_first
    )


class NoLog:
    """Of the processes that write no metrics."""

    def write(self, kind: str, step: int, values: "Mapping[str, Any]") -> None:
        pass


Log = Union[MetricsLog, NoLog]


@contextlib.contextmanager
def metrics_log(folder: Path, made: int, curves: bool, processes: Processes) -> "Iterator[Log]":
    """The log of a run that goes on from `made` steps, in the process that writes it."""
    if not processes.is_first:
        yield NoLog()
        return
    log = MetricsLog(folder, made, curves)
    try:
        yield log
    finally:
        log.close()


@contextlib.contextmanager
def stop_signals(processes: Processes) -> "Iterator[list[str]]":
    """Within the block SIGTERM and Ctrl-C add their name to the list; a second one ends the process as it would.

    The launcher says SIGTERM three times within half a second, and a terminal's Ctrl-C reaches it and the processes it
    has started: signals of `_ECHO` seconds are one request, but for Ctrl-C upon Ctrl-C.
    """
    seen: "list[str]" = []
    before: "dict[int, Any]" = {}
    begun: "list[float]" = []

    def note(number: int, frame: Any) -> None:
        name, now = signal.Signals(number).name, time.monotonic()
        is_echo = begun and now - begun[0] < _ECHO and (name != "SIGINT" or "SIGINT" not in seen)
        if seen and not is_echo:
            signal.signal(number, before[number])
            signal.raise_signal(number)
            return
        if not seen and processes.is_first:
            os.write(2, f"\n{name}: the run stops after this step, with a checkpoint.\n".encode())
        seen.append(name)
        begun.append(now)

    try:
        for number in (int(signal.SIGTERM), int(signal.SIGINT)):
            before[number] = signal.signal(number, note)
    except ValueError:  # not the main thread: whoever runs it hears the signals
        pass
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
