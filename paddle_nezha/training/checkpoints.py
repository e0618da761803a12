"""What a training needs to go on: written whole or not at all, the newest few kept.

A checkpoint is a folder `step-00000200` with the model as anyone may load it (`config.json`, `model.safetensors`), the
optimizer's state (`optimizer-00000-of-00001.safetensors`, one for each process that keeps a share of it) and
`state.json`: the step, where the data stands, what the randomness follows from, and the size and CRC-32 of each file.
No generator's state is in it: randomness is seeded anew for each step.
"""

import json
import logging
import os
import re
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from paddle_nezha._files import write_json
from paddle_nezha.checkpoint import safetensors
from paddle_nezha.pretrained import SAFETENSORS_NAME, PretrainedLayer
from paddle_nezha.training.processes import Processes

_FOLDER = re.compile(r"step-(\d{8})$")
_STATE = "state.json"
_PARTIAL = ".partial"

logger = logging.getLogger("paddle_nezha")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was found whole.

    Args:
        folder: where it is.
        step: how many steps were made.
        facts: the rest of its `state.json`.
    """

    folder: Path
    step: int
    facts: "dict[str, Any]"

    def model_arrays(self) -> "dict[str, np.ndarray]":
        return model_arrays(self.folder)

    def optimizer_arrays(self) -> "dict[str, np.ndarray]":
        """The state of all parameters, however many processes kept it."""
        arrays: "dict[str, np.ndarray]" = {}
        for file in sorted(self.folder.glob("optimizer-*.safetensors")):
            arrays.update(safetensors.read(file))
        return arrays


def model_arrays(folder: Path) -> "dict[str, np.ndarray]":
    """The weights that `save_pretrained` wrote."""
    return safetensors.read(folder / SAFETENSORS_NAME)


def save(
    run: Path,
    step: int,
    model: PretrainedLayer,
    optimizer: "dict[str, np.ndarray]",
    facts: "dict[str, Any]",
    processes: Processes,
    keep: int,
) -> Path:
    """Writes a checkpoint under its name, and removes all but the newest `keep`. Every process calls it.

    Args:
        run: the folder that holds the checkpoints, the same one for every process.
        optimizer: `optimizer_state` of this process.
        facts: JSON.
    """
    run.mkdir(parents=True, exist_ok=True)
    target = run / f"step-{step:08}"
    partial = target.with_name(target.name + _PARTIAL)
    if processes.is_first:
        for stale in run.glob(f"step-*{_PARTIAL}"):  # of a process that was killed while it wrote
            shutil.rmtree(stale)
        partial.mkdir()
    processes.wait()
    if processes.is_first or processes.sharding:
        shares = processes.count if processes.sharding else 1
        safetensors.write(partial / f"optimizer-{processes.rank:05}-of-{shares:05}.safetensors", optimizer)
    if processes.is_first:
        model.save_pretrained(partial)
    processes.wait()
    if processes.is_first:
        files = {file.name: [file.stat().st_size, _crc32(file)] for file in sorted(partial.iterdir())}
        write_json(partial / _STATE, {"step": step, "files": files, **facts})
        _to_disk(partial)
        if target.exists():  # of a run that stopped before it could make use of it
            shutil.rmtree(target)
        os.replace(partial, target)
        _to_disk(run)
        for old in _numbered(run)[keep:]:
            shutil.rmtree(old, ignore_errors=True)
    processes.wait()
    return target


def newest(run: Path) -> Optional[Saved]:
    """The newest checkpoint whose files are what they were when written; damaged ones are passed over, with a warning.

    Raises:
        ValueError: there are checkpoints, and all of them are damaged.
    """
    damaged = []
    for folder in _numbered(run):
        saved = _opened(folder)
        if isinstance(saved, Saved):
            return saved
        logger.warning("%s cannot be used (%s); the one before it is tried.", folder, saved)
        damaged.append(folder.name)
    if damaged:
        raise ValueError(
            f"{run} holds {', '.join(damaged)}, and none of them is whole: copy them back from a backup, or remove "
            "them to begin from the start."
        )
    return None


def _opened(folder: Path) -> "Union[Saved, str]":
    """A checkpoint, or what is wrong with it."""
    try:
        facts = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        step, files = facts.pop("step"), facts.pop("files")
        for name, (size, crc) in files.items():
            if (folder / name).stat().st_size != size:
                return f"{name} has {(folder / name).stat().st_size} bytes, and {size} were written"
            if _crc32(folder / name) != crc:
                return f"{name} is not what was written"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return Saved(folder, step, facts)


def _numbered(run: Path) -> "list[Path]":
    """The checkpoints of a run, the newest first."""
    if not run.is_dir():
        return []
    return sorted((path for path in run.iterdir() if _FOLDER.match(path.name) and path.is_dir()), reverse=True)


def _crc32(file: Path) -> int:
    crc = 0
    with open(file, "rb") as opened:
        while piece := opened.read(1 << 22):
            crc = zlib.crc32(piece, crc)
    return crc


def _to_disk(folder: Path) -> None:
    """Makes the names in a folder last, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
