"""An output file that survives a kill: it grows beside its place, and takes it when it is complete. Needs no Paddle.

While `vectors.npy` is made there are `vectors.npy.part`, what came so far, and `vectors.npy.part.json`, which says of
what it is a part: the settings, and how many lines and bytes of it count. The bytes reach the disk before the note that
counts them, so that whatever a kill leaves behind them is cut off.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from paddle_nezha._files import PathLike, name_file

logger = logging.getLogger("paddle_nezha")


class InputChanged(ValueError):
    """What was written is a part of nothing."""


class Growing:
    """What was written so far: `lines` of the input, `size` bytes."""

    def __init__(
        self, file: "IO[bytes]", target: Path, facts: "dict[str, Any]", lines: int, size: int, state: Any
    ) -> None:
        self._file, self._facts = file, facts
        _, self._part, self._note, self._fresh = written_names(target)
        self.lines, self.size, self.state = lines, size, state
        self.resumed = lines

    def append(self, data: bytes, lines: int, state: Any = None) -> None:
        """Adds what belongs to the next `lines` lines. When it returns, a kill no longer costs them.

        Args:
            state: what was gathered over all lines so far; the next run finds it as its `state`. JSON.

        Raises:
            OSError: the disk is full, or does not take it for another reason.
        """
        lines, size = self.lines + lines, self.size + len(data)
        try:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._record(lines, size, state)
        except OSError as error:
            name_file(error, self._part)
            raise
        self.lines, self.size, self.state = lines, size, state

    def _record(self, lines: int, size: int, state: Any) -> None:
        content = {**self._facts, "lines": lines, "bytes": size}
        if state is not None:
            content["state"] = state
        with open(self._fresh, "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=True, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._fresh, self._note)


def written_names(path: PathLike) -> "tuple[Path, Path, Path, Path]":
    """What is written on the way to an output: itself, its part, the note on the part, and the next note."""
    target = Path(path)
    part, note = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.json")
    return target, part, note, note.with_name(note.name + ".new")


def refuse_existing(path: PathLike, force: bool) -> None:
    """
    Raises:
        FileExistsError, IsADirectoryError: there is a complete output already, or something that cannot be replaced.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the file to write.")
    if Path(path).exists() and not Path(path).is_file():
        raise FileExistsError(
            f"{path} is no regular file, and a file would take its place: name another, or - for standard output."
        )
    if Path(path).exists() and not force:
        raise FileExistsError(f"{path} is there already: name another file, or replace it with --force.")


@contextmanager
def resumable(
    path: PathLike, settings: "Mapping[str, Any]", surroundings: "Mapping[str, Any]", force: bool = False
) -> "Iterator[Growing]":
    """An output to append to. After the block it bears its name; if the block raises, what was appended is kept, and
    the next call with the same settings goes on behind it. (`InputChanged` keeps nothing.)

    Args:
        settings: all that decides the output's bytes, the input's digest among it. JSON.
        surroundings: what may change the last bits alone (releases, threads). Another one is reported. JSON.
        force: begin anew where a part has other settings, and replace what is there under the name.

    Raises:
        FileExistsError: there is a complete output, or a part with other settings; the message says which.
        BlockingIOError: another process writes it.
    """
    target, part, note, fresh = written_names(path)
    refuse_existing(target, force)
    facts = {"settings": _plain(settings), "surroundings": _plain(surroundings)}
    if part.exists() and not note.exists() and not force:
        raise FileExistsError(f"{part} is there, and nothing says what of: remove it, or replace it with --force.")
    file = open(part, "r+b" if part.exists() else "x+b")
    try:
        _lock(file, part, target)
        lines, size, state = _counted(note, file, facts, target, force)
        file.truncate(size)
        file.seek(size)
        growing = Growing(file, target, facts, lines, size, state)
        try:
            growing.append(b"", 0, state)  # notes what it is a part of
            yield growing
        except BaseException as error:
            noted = 0 if isinstance(error, InputChanged) else _noted(note)
            if noted:
                kept = f"{noted:,}"
                logger.info("The first %s lines are kept in %s; the same command goes on from there.", kept, part)
            else:
                part.unlink()
                note.unlink(missing_ok=True)
            fresh.unlink(missing_ok=True)
            raise
        if os.name == "nt":  # Windows renames no open file; elsewhere the lock is held until the new name is there
            file.close()
        os.replace(part, target)
        note.unlink()
    finally:
        with suppress(OSError):  # a full disk was told when it was met; what counts is on the disk
            file.close()


def _noted(note: Path) -> int:
    """The lines that count, whenever a signal came: the note is ahead of the object that has written it."""
    try:
        return int(json.loads(note.read_text(encoding="utf-8"))["lines"])
    except FileNotFoundError:
        return 0


def _plain(facts: "Mapping[str, Any]") -> "dict[str, Any]":
    content: "dict[str, Any]" = json.loads(json.dumps(facts))
    return content


def _counted(
    note: Path, file: "IO[bytes]", facts: "dict[str, Any]", target: Path, force: bool
) -> "tuple[int, int, Any]":
    """How many lines and bytes of a part count, and its state: none of a new one, or of one that is given up."""
    if not note.exists():
        return 0, 0, None
    try:
        begun = json.loads(note.read_text(encoding="utf-8"))
        lines, size = int(begun["lines"]), int(begun["bytes"])
        settings, surroundings = dict(begun["settings"]), dict(begun["surroundings"])
    except (ValueError, KeyError, TypeError):
        if not force:
            raise FileExistsError(f"{note} is not what this program wrote: begin anew with --force.") from None
        return 0, 0, None
    other = _differences(settings, facts["settings"])
    if other:
        if force:
            return 0, 0, None
        raise FileExistsError(
            f"{target}.part was begun with another {'; another '.join(other)}. Give the same again to go on, or begin "
            "anew with --force."
        )
    if os.fstat(file.fileno()).st_size < size:
        logger.warning("%s.part is shorter than its note says: it is begun anew.", target)
        return 0, 0, None
    moved = _differences(surroundings, facts["surroundings"])
    if lines and moved:
        logger.warning("%s.part was begun with another %s: last bits may differ.", target, "; another ".join(moved))
    return lines, size, begun.get("state")


def _differences(old: "dict[str, Any]", new: "dict[str, Any]") -> "list[str]":
    return [
        f"{name} ({old.get(name)}, now {new.get(name)})"
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _lock(file: "IO[bytes]", part: Path, target: Path) -> None:
    """Lets no second process write the same part; it needs a system that locks files."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = part.exists() and os.path.samestat(os.fstat(file.fileno()), part.stat())  # not finished meanwhile
    except BlockingIOError:
        free = False
    except OSError:  # not every network file system can
        return
    if not free:
        raise BlockingIOError(f"Another process is writing {target}: wait for it, or name another file.")
