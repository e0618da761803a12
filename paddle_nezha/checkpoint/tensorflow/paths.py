"""Finding the prefix of a TensorFlow checkpoint, whichever of its files, or their folder, is named.

A checkpoint is `<prefix>.index` and `<prefix>.data-SSSSS-of-NNNNN`, often beside a `<prefix>.meta` that holds the
graph; the folder may hold a text file `checkpoint` that names the latest prefix.
"""

import errno
import os
import re
from typing import Optional

from ..errors import CheckpointError, PathLike, foreign
from . import sstable

_STATE = "checkpoint"
_LONGEST_STATE = 1 << 20
_ENDING = re.compile(r"\.(index|meta|data-\d{5,}-of-\d{5,})$")
_LATEST = re.compile(rb'^model_checkpoint_path:\s*"((?:[^"\\\n]|\\.)*)"', re.MULTILINE)
_SHOWN = 20


def locate(path: PathLike) -> str:
    """The prefix whose `.index` exists.

    Raises:
        CheckpointError: a folder with several checkpoints or none, the first format, another kind of file.
        FileNotFoundError: neither such a file nor such a prefix.
    """
    text = os.fspath(path)
    prefix = _ENDING.sub("", text)
    if os.path.isfile(prefix + ".index"):
        return prefix
    if os.path.isdir(text):
        return _in_folder(text)
    folder, name = os.path.split(text)
    if name == _STATE and os.path.isfile(text):
        return _in_folder(folder)
    if os.path.isfile(prefix):
        raise _other_file(prefix)
    raise FileNotFoundError(errno.ENOENT, _absent(prefix), text)


def _in_folder(folder: str) -> str:
    names = sorted(os.listdir(folder or os.curdir))
    prefixes = [name[: -len(".index")] for name in names if name.endswith(".index")]
    latest = _latest(folder) if _STATE in names else None
    if len(prefixes) == 1:
        return os.path.join(folder, prefixes[0])
    if latest in prefixes:
        return os.path.join(folder, latest)
    if prefixes:
        raise CheckpointError(
            f"{folder} holds {len(prefixes)} TensorFlow checkpoints, {_listed(prefixes)}, and no file "
            f"`{_STATE}` that names one of them. Give the prefix of one: {os.path.join(folder, prefixes[-1])}"
        )
    for name in filter(None, (latest, *names[:_SHOWN])):
        file = os.path.join(folder, name)
        if os.path.isfile(file) and _is_table(file):
            raise _first_format(file)
    raise CheckpointError(
        f"{folder} holds no TensorFlow checkpoint: expected a file that ends in .index and those of the same "
        f"name that end in .data-…, but found {_listed(names) or 'nothing'}. Copy all files of the checkpoint there."
    )


def _latest(folder: str) -> Optional[str]:
    """The name of the latest prefix. Its folder is left out: the file keeps the one of the machine that trained."""
    with open(os.path.join(folder, _STATE), "rb") as file:
        found = _LATEST.search(file.read(_LONGEST_STATE))
    if found is None:
        return None
    return re.split(r"[/\\]", _unescaped(found.group(1)))[-1]


def _unescaped(text: bytes) -> str:
    """Text format writes everything beyond ASCII as octal."""
    raw = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal.group(1), 8) & 0xFF]), text)
    return re.sub(rb"\\(.)", rb"\1", raw).decode("utf-8", "replace")


def _is_table(file: str) -> bool:
    with open(file, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(size - len(sstable.MAGIC), 0))
        return opened.read(len(sstable.MAGIC)) == sstable.MAGIC


def _first_format(file: str) -> CheckpointError:
    return CheckpointError(
        f"{file} is a TensorFlow checkpoint of the first format (one file, as TensorFlow wrote before 1.0); expected "
        "the second (.index and .data-… files). Open it with TensorFlow and save it again: "
        "tf.compat.v1.train.Saver().save(session, path) writes the second."
    )


def _other_file(file: str) -> CheckpointError:
    if _is_table(file):
        return _first_format(file)
    with open(file, "rb") as opened:
        what = foreign(opened.read(32))
    return CheckpointError(
        f"{file} is no part of a TensorFlow checkpoint{f': it is {what}' if what else ''}. Expected the prefix of "
        f"its files, one of them (.index, .data-…, .meta), or their folder; {file}.index does not exist."
    )


def _absent(prefix: str) -> str:
    folder, name = os.path.split(prefix)
    try:
        parts = [other for other in sorted(os.listdir(folder or os.curdir)) if other.startswith(name + ".")]
    except OSError:
        parts = []
    beside = f"beside it are only {_listed(parts)}" if parts else "no file begins so"
    return (
        f"a TensorFlow checkpoint is {name}.index with {name}.data-00000-of-00001 or more, but {name}.index does not "
        f"exist ({beside}). Copy all files of the checkpoint into one folder and give their common prefix"
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name if name.isprintable() else ascii(name) for name in names[:_SHOWN]) + more
