"""Files for everyone: written so that a path never holds half of one, and named in messages a person can read."""

import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Optional, Union

PathLike = Union[str, "os.PathLike[str]"]


@contextmanager
def replaced(path: PathLike) -> Iterator[str]:
    """Gives a temporary path beside `path`; after the block it is on the disk and takes `path`'s place.

    When the block raises, the temporary file is removed and `path` stays as it was. Threads and processes may write one
    path at the same time: the last to end wins, and no reader sees a mixture.
    """
    target = os.fspath(path)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as created:
            mode = (
                os.fstat(created.fileno()).st_mode & 0o777
            )  # what the umask gives; some libraries write for the owner alone
        yield temporary
        os.chmod(temporary, mode)
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if os.path.exists(temporary):
            os.remove(temporary)
        if isinstance(error, OSError):
            name_file(error, target, temporary)  # whoever reads the message knows the target
        raise


def name_file(error: OSError, path: PathLike, known_as: "Optional[str]" = None) -> None:
    """Puts a path into an error of the system that names none, as that of a full disk does, or names `known_as`."""
    if error.errno is not None and error.filename in (None, known_as):
        error.filename = os.fspath(path)


def write_json(path: PathLike, content: Any) -> None:
    """For people to read too; `path` takes its place when it is whole."""
    with replaced(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


_one_thread = threading.RLock()


@contextmanager
def alone_in(folder: PathLike) -> "Iterator[None]":
    """Within the block no other thread or process is in a block of the same folder; they wait. It leaves no file.

    Between processes this needs a system that locks folders (not Windows, not every network file system). Threads wait
    for each other whatever the folder.
    """
    with _one_thread, _lockable(folder) as lock:
        if lock is not None:
            with suppress(OSError):
                lock(wait=True)
        yield


@contextmanager
def held_alone(folder: PathLike) -> "Iterator[None]":
    """Within the block no one else holds the folder. It leaves no file, and needs the systems that `alone_in` does.

    Raises:
        BlockingIOError: someone does, in this process or another.
    """
    with _lockable(folder) as lock:
        if lock is not None:
            try:
                lock(wait=False)
            except BlockingIOError:
                raise
            except OSError:  # not every network file system can
                pass
        yield


@contextmanager
def _lockable(folder: PathLike) -> "Iterator[Optional[Callable[..., None]]]":
    """What locks a folder until the block ends; None where the system has nothing that does."""
    try:
        import fcntl

        opened = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield None
        return
    try:
        yield lambda wait: fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(opened)


def listing(folder: PathLike, most: int = 20) -> str:
    """What a folder holds, for a message: its first names in order, and how many more there are."""
    names = sorted(entry.name for entry in Path(folder).iterdir())
    shown = ", ".join(names[:most]) or "nothing"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
