"""The record of a file's sha256 beside it: written when the file is first used, held ever after.

A pin is one line as `sha256sum` writes it, so `sha256sum -c model_state.pdparams.sha256` checks it anywhere.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Optional

from paddle_nezha.checkpoint.errors import CheckpointError, PathLike

_PIECE = 1 << 20
_LINE = re.compile(r"([0-9a-f]{64}) [ *][^\r\n]+\r?\n?")


def digest_of(path: PathLike, length: Optional[int] = None) -> "hashlib._Hash":
    """The running SHA-256 of a file, or of its first `length` bytes, read piece by piece."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(_PIECE))
    left = os.path.getsize(path) if length is None else length
    with open(path, "rb", buffering=0) as file:
        while left and (count := file.readinto(buffer[:left])):
            digest.update(buffer[:count])
            left -= count
    return digest


def sha256_of(path: PathLike) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return digest_of(path).hexdigest()


def pin_path(path: PathLike) -> Path:
    """Where the pin of a file stands."""
    return Path(f"{os.fspath(path)}.sha256")


def read_pin(path: PathLike) -> Optional[str]:
    """The SHA-256 recorded beside a file (which itself need not be there), or None without a record.

    Raises:
        CheckpointError: the record holds something else.
    """
    record = pin_path(path)
    try:
        text = record.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    found = _LINE.fullmatch(text)
    if not found:
        raise CheckpointError(
            f"{record} should hold one line, 64 hexadecimal digits and a file name, but holds {text[:80]!r}. "
            "Delete it to have the file beside it recorded anew."
        )
    return found.group(1)


def unpin(path: PathLike) -> bool:
    """Removes the record of a file that turned out to be wrong; whether there was one."""
    record = pin_path(path)
    there = record.exists()
    record.unlink(missing_ok=True)
    return there


def pin(path: PathLike, sha256: Optional[str] = None) -> str:
    """Records the SHA-256 of a file beside it, and gives it; `sha256` where the caller has just computed it."""
    sha256 = sha256 or sha256_of(path)
    record = pin_path(path)
    part = record.with_name(f".{record.name}.{os.getpid()}.part")
    try:
        part.write_text(f"{sha256}  {Path(path).name}\n", encoding="utf-8")
        os.replace(part, record)
    finally:
        part.unlink(missing_ok=True)
    return sha256


def is_fresh(path: PathLike) -> bool:
    """Whether a pin is there and the file was neither written to nor put in place since."""
    try:
        return _last_change(path) <= _last_change(pin_path(path))
    except FileNotFoundError:
        return False


def _last_change(path: PathLike) -> int:
    """Nanoseconds. A copy or a move may keep the time of writing, but not that of the change."""
    stat = os.stat(path)
    return max(stat.st_mtime_ns, stat.st_ctime_ns)


def check_pin(path: PathLike, *, expected: Optional[str] = None, thorough: bool = True) -> str:
    """Holds a file to its pin and gives its SHA-256; a file without one is pinned now.

    Args:
        expected: the SHA-256 that was published. It wins over the pin.
        thorough: read the whole file. Otherwise a file that was not changed since it was pinned is believed.

    Raises:
        CheckpointError: the file is not the one that was published or pinned, or the pin cannot be read.
        FileNotFoundError: no such file.
    """
    recorded = read_pin(path)
    if recorded and not thorough and is_fresh(path) and expected in (None, recorded):
        return recorded
    found = sha256_of(path)
    if expected not in (None, found):
        raise CheckpointError(
            f"{os.fspath(path)} is not the file that is wanted: expected sha256 {expected}, found {found}. "
            "Delete it to fetch it again."
        )
    if recorded and recorded != found and not expected:
        raise CheckpointError(
            f"{os.fspath(path)} has changed since it was first used: expected sha256 {recorded} "
            f"(recorded in {pin_path(path).name}), found {found}. Delete the file to fetch it again, or delete the "
            "record to accept the file as it is."
        )
    if recorded != found or not is_fresh(path):
        _pin_if_writable(path, found)
    return found


def _pin_if_writable(path: PathLike, sha256: str) -> None:
    """A read-only cache is used as it is."""
    try:
        pin(path, sha256)
    except OSError:
        pass
