"""What came of a file so far, kept so that a later call, or a later process, can go on from there."""

import contextlib
import errno
import io
import json
import shutil
from collections.abc import Iterator
from hashlib import sha256 as new_digest
from pathlib import Path
from typing import Optional

from .errors import FetchError
from .pins import digest_of

START_LENGTH = 64  # bytes by which an impostor is told


class Partial:
    """The bytes of a file that came so far, and of which version of it they are.

    `validator` is the server's own mark of that version; without one nothing can be resumed. It is kept in a note
    beside the bytes, written before the first of them.
    """

    validator: Optional[str]
    total: Optional[int]

    def __init__(self, path: Path, url: str) -> None:
        self.path, self.url = path, url
        self.note = path.with_name(f"{path.name}.json")
        self._reset()
        validator, total = self._recall()
        if validator:
            self.validator, self.total = validator, total
            self.length = path.stat().st_size
            self.digest = digest_of(path, self.length)
            self.resumed = self.length > 0
            with open(path, "rb") as file:
                self.start = file.read(START_LENGTH)
        else:
            self.discard()

    @property
    def is_complete(self) -> bool:
        return self.length > 0 and self.length == self.total

    def restart(self, validator: Optional[str], total: Optional[int]) -> None:
        """Begins anew, with a version of the file that is `total` bytes long."""
        self.discard()
        self.validator, self.total = validator, total
        note = json.dumps({"url": self.url, "validator": validator, "total": total})
        try:
            self.note.write_text(note, encoding="utf-8")
        except OSError as error:
            raise unwritable(self.note, error) from None

    @contextlib.contextmanager
    def opened(self) -> Iterator[io.FileIO]:
        """The file to write to, without a buffer of our own: what `length` counts has reached the system."""
        try:
            file = open(self.path, "ab", buffering=0)
        except OSError as error:
            raise unwritable(self.path, error) from None
        with file:
            yield file

    def write(self, file: io.FileIO, piece: bytes) -> None:
        left = memoryview(piece)
        try:
            while left:
                left = left[file.write(left) :]
        except OSError as error:
            raise unwritable(self.path, error) from None
        self.digest.update(piece)
        self.length += len(piece)
        if len(self.start) < START_LENGTH:
            self.start += piece[: START_LENGTH - len(self.start)]

    def discard(self) -> None:
        """Removes the bytes and the note."""
        for path in (self.path, self.note):
            path.unlink(missing_ok=True)
        self._reset()

    def _reset(self) -> None:
        self.validator = self.total = None
        self.length, self.digest, self.start, self.resumed = 0, new_digest(), b"", False

    def _recall(self) -> "tuple[Optional[str], Optional[int]]":
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            if note["url"] == self.url and self.path.is_file():
                return note["validator"], note["total"]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # no note, or one that a kill cut short: what it was about is not known, so not used
        return None, None


def require_room(folder: Path, needed: int) -> None:
    """Raises FetchError unless `folder`'s disk has `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(
            f"the disk of {folder} is too full: {needed:,} bytes are needed, {free:,} are free. Make room, or choose "
            "another folder with PADDLE_NEZHA_HOME or cache_dir=."
        )


def unwritable(path: Path, error: OSError) -> FetchError:
    """The error for a file that the system does not let grow."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FetchError(
            f"the disk is full: {path} could not grow ({error.strerror}). Make room and call again, which goes on "
            "where it stopped, or choose another folder with PADDLE_NEZHA_HOME or cache_dir=."
        )
    return FetchError(f"{path} cannot be written ({error.strerror}): choose another folder with PADDLE_NEZHA_HOME.")
