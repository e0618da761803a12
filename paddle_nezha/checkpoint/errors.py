"""The one error of this package, and the sentences its readers share."""

import os
from typing import Any, Optional, Union

PathLike = Union[str, "os.PathLike[str]"]

# What people store under a weight file's name by mistake, told by the first bytes.
_FOREIGN_STARTS = (
    (b"PK\x03\x04", "a zip archive (torch.save writes those; an archive must be unpacked first)"),
    (b"\x1f\x8b", "gzip-compressed; unpack it first"),
    (b"version https://git-lfs", "a Git LFS pointer, not the weights; run `git lfs pull` in its repository"),
    (b"<", "a web page or XML, probably the error page of a failed download"),
    (b"{", "JSON text"),
)


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or whose tensors are not the ones the model needs.

    `account` holds the `paddle_nezha.checkpoint.Account` when the tensors are what is wrong, else None.
    """

    def __init__(self, message: str, account: Optional[Any] = None) -> None:
        super().__init__(message)
        self.account = account


def truncated(path: PathLike, size: int, expected: str) -> CheckpointError:
    """The error for a file of `size` bytes that ends early; `expected` says how many bytes it should hold."""
    return CheckpointError(
        f"{os.fspath(path)} is corrupt or truncated: expected {expected}, but the file holds {size} bytes. "
        "Download or copy it again and compare its size with the source."
    )


def foreign(start: bytes) -> Optional[str]:
    """What a file beginning with `start` (its first 32 bytes or so) is, or None when it is nothing known."""
    text = start.lstrip()
    return next((what for magic, what in _FOREIGN_STARTS if text.startswith(magic)), None)


def shown(name: str) -> str:
    """A name from a file for a person to read: no terminal obeys it, and no line is forged by it."""
    return name if name.isprintable() else ascii(name)
