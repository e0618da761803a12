"""Reading with every length checked first, writing so that the final path never holds half a file."""

import codecs
import io
import os
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .errors import CheckpointError, PathLike, truncated

_PIECE = 1 << 18  # bytes of text decoded at a time


class Source:
    """A seekable binary file that refuses to read past its end before anything is allocated."""

    def __init__(self, file: io.BufferedReader, path: PathLike) -> None:
        self.file = file
        self.path = os.fspath(path)
        self.size = file.seek(0, os.SEEK_END)
        self.position = file.seek(0)

    def require(self, length: int) -> int:
        """Checks that `length` more bytes are there and gives the position behind them."""
        end = self.position + length
        if end > self.size:
            raise truncated(self.path, self.size, f"at least {end} bytes")
        return end

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        end = self.require(length)
        content = self.file.read(length)
        if len(content) < length:
            raise self.shrunk(self.position + len(content))
        self.position = end
        return content

    def shrunk(self, size: int) -> CheckpointError:
        """The error for a file that held more bytes when it was opened."""
        return truncated(self.path, size, f"{self.size} bytes")

    def skip(self, length: int, form: "Form") -> "Span":
        """The next `length` bytes, left in the file."""
        span = Span(self, self.position, length, form)
        self.position = self.file.seek(self.require(length))
        return span

    def line(self, longest: int) -> bytes:
        """The bytes before the next newline; of a line longer than `longest`, `longest` + 1 bytes."""
        text = self.file.readline(min(longest + 1, self.size - self.position))
        self.position += len(text)
        if text.endswith(b"\n"):
            return text[:-1]
        if len(text) <= longest:
            raise truncated(self.path, self.size, f"at least {self.size + 1} bytes")
        return text


class Form(Enum):
    """What the bytes of a `Span` are."""

    BYTES = "bytes"
    TEXT = "UTF-8 text"
    LATIN1 = "UTF-8 text each of whose characters stands for one byte"


class Span(NamedTuple):
    """A part of a file, left there until it is copied into an array. `length` counts bytes of the file."""

    source: Source
    offset: int
    length: int
    form: Form

    def copy_to(self, target: np.ndarray) -> int:
        """Copies the bytes into a flat uint8 array and gives their number, which may not be its size."""
        self.source.file.seek(self.offset)
        return self._decode_to(target) if self.form is Form.LATIN1 else self._read_to(target)

    def _read_to(self, target: np.ndarray) -> int:
        copied = self.source.file.readinto(target[: self.length].data)
        if copied < min(self.length, target.size):
            raise self.source.shrunk(self.offset + copied)
        return self.length

    def _decode_to(self, target: np.ndarray) -> int:
        decoder = codecs.getincrementaldecoder("utf-8")()
        copied, left = 0, self.length
        try:
            while left:
                piece = self.source.file.read(min(left, _PIECE))
                left -= len(piece)
                if not piece:
                    raise self.source.shrunk(self.offset + self.length - left)
                decoded = decoder.decode(piece, final=not left).encode("latin-1")
                if copied + len(decoded) <= target.size:
                    target[copied : copied + len(decoded)] = np.frombuffer(decoded, np.uint8)
                copied += len(decoded)
        except UnicodeError as error:
            raise CheckpointError(
                f"{self.source.path} is corrupt: the text at byte {self.offset} should hold one byte per "
                f"character, but does not ({error}). Download or copy the file again."
            ) from None
        return copied


def beside(file: Path, name: str) -> Path:
    """The file `name` in the folder of `file`, which may be no link to somewhere else.

    The blobs of a Hugging Face cache are the one exception: its folders hold nothing but links to them.

    Raises:
        CheckpointError: a link that leaves the folder.
    """
    folder = file.parent.resolve()
    path, target = folder / name, (folder / name).resolve()
    if target.parent not in (folder, folder.parent.parent / "blobs"):
        raise CheckpointError(
            f"{file} was refused: it goes through {name}, a link to {target}, which lies outside its folder. "
            "Put the file itself there, or name the file rather than the folder."
        )
    return path
