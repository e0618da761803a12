"""`.bin`, `.pt` and `.pth`, the files of `torch.save`, read and written without torch.

Both of its formats are read: the zip archive of release 1.6 and later, and the row of pickles before it. A
training checkpoint, a dict that holds one state dict beside an optimizer and a step counter, is opened at
that state dict.
"""

import logging
import pickle as op  # only for the names of the opcodes; nothing here unpickles
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

import numpy as np

from ..errors import CheckpointError, PathLike, foreign, truncated
from ..files import Source
from . import archive, legacy
from .tensors import StoredTensor
from .writer import write

__all__ = ["Tensors", "open_file", "read", "write"]

# What tensors may take to read, in sizes of the storages they look into: views may overlap, a bit.
_MAX_SHARING = 4
_SMALL = 1 << 20
_SHOWN = 20

# Where training scripts put the state dict; under another key it may be an extra beside the weights.
_WRAPPERS = frozenset(("state_dict", "model_state_dict", "model"))

_log = logging.getLogger(__name__)


class Tensors(dict[str, StoredTensor]):
    """Tensors by name, still in their file.

    `inside` is the key of the training checkpoint under which they lay, None where the file is a state dict;
    `left` are its other keys, which are not read.
    """

    inside: Optional[str] = None
    left: tuple[str, ...] = ()


@contextmanager
def open_file(path: PathLike) -> Iterator[Tensors]:
    """Opens a state dict without running anything in it; the tensors stay in the file until they are read.

    Args:
        path: a file that `torch.save` wrote from a state dict, or from a training checkpoint, a dict with exactly
            one state dict in it.

    Yields:
        Tensors by name, in the file's order, as long as the file is open. bfloat16 is given as float32, its
        exact value. Tied weights are one object under several names.

    Raises:
        CheckpointError: truncated, damaged, another format, a name that only code would need, a tensor of
            complex or quantised numbers, or not a flat dict of tensors.
        OSError: there is no such file, or it cannot be opened.
    """
    with open(path, "rb") as file:
        source = Source(file, path)
        tensors = _state_dict(_load(source), source)
        _check_cost(tensors, source)
        yield tensors


def read(path: PathLike) -> dict[str, np.ndarray]:
    """Reads a state dict as a whole; see `open_file`. Tied weights come as one array under several names."""
    with open_file(path) as tensors:
        once = {id(tensor): tensor for tensor in tensors.values()}
        arrays = {key: tensor.read() for key, tensor in once.items()}
        return {name: arrays[id(tensor)] for name, tensor in tensors.items()}


def _load(source: Source) -> Any:
    start = source.file.read(512)
    source.file.seek(0)
    if not start:
        raise truncated(source.path, 0, "a zip archive or a pickle")
    if start.startswith(b"PK"):
        return archive.load(source)
    if legacy.MAGIC in start[:32]:
        return legacy.load(source)
    raise CheckpointError(
        f"{source.path} is no torch file: expected a zip archive or the pickles that torch.save writes, but it is "
        f"{_other(start)} (first bytes {start[:8]!r})."
    )


def _other(start: bytes) -> str:
    if start[257:262] == b"ustar":
        return (
            "a tar archive: either packed by someone (unpack it first) or torch's first format (where you trust it, "
            "open it with torch.load and save its state_dict() again)"
        )
    if start[:1] == op.PROTO:
        return "a pickle that torch.save did not write; a file of paddle.save ends in .pdparams"
    return foreign(start[:32]) or "of another kind"


def _state_dict(value: Any, source: Source) -> Tensors:
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{source.path} holds a {type(value).__name__}, but expected a dict of tensors by name. Save it again "
            "with torch.save(model.state_dict(), path)."
        )
    others = [key for key, part in value.items() if type(key) is not str or type(part) is not StoredTensor]
    if not others:
        return Tensors(value)
    inner = [key for key, part in value.items() if type(key) is str and _is_state_dict(part)]
    beside = any(type(part) is StoredTensor for part in value.values())
    if len(inner) == 1 and (inner[0] in _WRAPPERS or not beside):
        return _opened_at(inner[0], value, source)
    listed = ", ".join(f"{key!a} (a {_kind(value[key])})" for key in others[:_SHOWN])
    found = f"of these, {len(inner)} are state dicts. " if inner else ""
    raise CheckpointError(
        f"{source.path} should hold tensors by name, or one state dict beside other things, but holds {listed}; {found}"
        "Save the part that is meant alone: torch.save(model.state_dict(), path)."
    )


def _kind(value: Any) -> str:
    return "state dict" if _is_state_dict(value) else "dict" if isinstance(value, dict) else type(value).__name__


def _is_state_dict(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(type(key) is str and type(part) is StoredTensor for key, part in value.items())
    )


def _opened_at(key: str, value: dict, source: Source) -> Tensors:
    tensors = Tensors(value[key])
    tensors.inside = key
    tensors.left = tuple(str(other) for other in value if other != key)
    left = ", ".join(map(ascii, tensors.left[:_SHOWN]))
    _log.info("%s is a training checkpoint: its %a is read, its %s are left", source.path, key, left or "nothing else")
    return tensors


def _check_cost(tensors: Tensors, source: Source) -> None:
    once = {id(tensor): tensor for tensor in tensors.values()}.values()
    cost = sum(tensor.cost() for tensor in once)
    held = sum(storage.nbytes for storage in {id(tensor.storage): tensor.storage for tensor in once}.values())
    if cost > _MAX_SHARING * held + _SMALL:
        raise CheckpointError(
            f"{source.path} was refused: its tensors take {cost} bytes to read, but look into storages of {held}. "
            "If it is honest, save it again without views: {name: tensor.clone() for name, tensor in "
            "state_dict.items()}."
        )
