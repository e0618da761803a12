"""The front door: a folder or a file of any format becomes tensors by name, still in their file."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Union

import numpy as np

from .._files import listing
from . import pdparams, safetensors, tensorflow, torch_files
from .errors import CheckpointError, PathLike, foreign
from .files import beside
from .stored import Stored

# In a folder, the first of these that is there.
WEIGHT_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "model_state.pdparams",
)
# Failing those, the one file with such an ending; what training leaves beside the weights is none of them.
_ENDINGS = (".safetensors", ".pdparams", ".bin", ".pt", ".pth")
_BESIDE_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")

_MOST_TENSORS = 20_000

Opener = Callable[[PathLike], "AbstractContextManager[Mapping[str, Stored]]"]
_OPENERS: "dict[str, Opener]" = {
    "safetensors": safetensors.open_file,
    "pdparams": pdparams.open_file,
    "torch": torch_files.open_file,
    "tensorflow": tensorflow.open_file,
}


@dataclass(frozen=True)
class Opened:
    """A checkpoint, understood and not yet read.

    Args:
        file: the weights; of a TensorFlow checkpoint its prefix or index.
        form: "safetensors", "pdparams", "torch" or "tensorflow".
        tensors: by the file's own names, to be read while it is open. Arrays in memory are of the form "memory".
        skipped: what else the file holds, and why it is no weight (optimizer slots).
    """

    file: Path
    form: str
    tensors: "Mapping[str, Union[np.ndarray, Stored]]"
    skipped: "Mapping[str, str]" = field(default_factory=dict)


@contextmanager
def open_checkpoint(path: PathLike) -> Iterator[Opened]:
    """Opens weights of any format. Nothing in them is executed, and nothing is written anywhere.

    Args:
        path: a folder with weights, or a weight file; for TensorFlow also a prefix.

    Raises:
        CheckpointError: what is there is no checkpoint, or a damaged one.
        FileNotFoundError: nothing is there; the message lists what was looked for and what was found.
    """
    file = weight_file(Path(path)) if Path(path).is_dir() else Path(path)
    form = form_of(file)
    with _OPENERS[form](file) as tensors:
        if len(tensors) > _MOST_TENSORS:
            raise CheckpointError(
                f"{file} was refused: it holds {len(tensors):,} tensors, and no model this project reads has more than "
                f"{_MOST_TENSORS:,}."
            )
        yield Opened(file, form, tensors, getattr(tensors, "skipped", {}))


def weight_file(folder: Path) -> Path:
    """The weights in a folder; a folder of TensorFlow's is its own.

    Raises:
        FileNotFoundError: none; the message lists what was looked for and what the folder holds.
        CheckpointError: several, and no name that says which; a link that leaves the folder.
    """
    for name in WEIGHT_NAMES:
        if (folder / name).is_file():
            return beside(folder / name, name)
    entries = sorted(folder.iterdir())
    weights = [
        entry
        for entry in entries
        if entry.is_file() and entry.suffix in _ENDINGS and not entry.name.startswith(_BESIDE_WEIGHTS)
    ]
    if len(weights) == 1:
        return beside(weights[0], weights[0].name)
    if weights:
        listed = ", ".join(entry.name for entry in weights)
        raise CheckpointError(f"{folder} holds several weight files ({listed}): name the one to open.")
    if any(entry.suffix == ".index" or entry.name == "checkpoint" for entry in entries):
        return folder
    raise FileNotFoundError(
        f"No weights in {folder}: looked for {', '.join(WEIGHT_NAMES)}, any one file ending in {', '.join(_ENDINGS)}, "
        f"and TensorFlow's *.index. Put the checkpoint's weights there. The folder holds {listing(folder)}."
    )


def form_of(file: Path) -> str:
    """The format of a weight file by its first bytes, whatever its name.

    Raises:
        CheckpointError: it is something else; the message says what, where that is known.
        FileNotFoundError: there is no such file.
    """
    if file.is_dir() or ".data-" in file.name or file.suffix in (".index", ".meta"):
        return "tensorflow"
    if file.name.endswith(".safetensors.index.json"):
        return "safetensors"
    if not file.exists() and file.with_name(file.name + ".index").exists():
        return "tensorflow"
    with open(file, "rb") as opened:
        start = opened.read(32)
    if start[4:9] == b"\0\0\0\0{":
        return "safetensors"  # the length of its header may begin with any byte, a pickle's first included
    if start.startswith(b"PK\x03\x04") or (start[:1] == b"\x80" and start[2:4] == b"\x8a\x0a"):
        return "torch"  # a zip archive; or, before release 1.6, a pickle that begins with a long magic number
    if start[:1] == b"\x80":
        return "pdparams"
    if start[8:9] == b"{" or file.suffix == ".safetensors":
        return "safetensors"
    if file.suffix == ".pdparams":
        return "pdparams"
    if file.suffix in _ENDINGS:
        return "torch"
    raise CheckpointError(
        f"{file} is no checkpoint: expected .safetensors, .pdparams, a torch file or a TensorFlow checkpoint, but it "
        f"is {foreign(start) or 'of another kind'} (first bytes {start[:8]!r})."
    )
