"""A whole file through a model: read, computed window by window, written in order, and gone on with after a stop."""

import itertools
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Protocol, Union

from tqdm import tqdm

from paddle_nezha._files import PathLike, name_file

from .batches import characters, windows
from .lines import Account, numbers_of
from .resumable import InputChanged, refuse_existing, resumable, written_names

# Raised with the way windows and batches are made, so that no part of another edition is gone on with.
_EDITION = 1


FileOrNumber = Union[PathLike, int]


class Readable(Protocol):
    """A file whose lines, or examples, can be read in their order, and again."""

    name: str

    @property
    def reading(self) -> "Mapping[str, Any]":
        """What decides how it is read, as settings. JSON."""

    @property
    def files(self) -> "Sequence[FileOrNumber]":
        """What is read: paths, or the number of an open file."""

    def spooled(self, folder: PathLike) -> "AbstractContextManager[None]":
        """Within the block what is piped in can be read more than once."""

    def read(self, account: Account) -> "Iterator[Any]":
        """Every line; `account` gets their number and, at the end, the digest."""

    def survey(self, check: "Optional[Callable[[Any], None]]" = None) -> Account:
        """Reads everything once, and refuses what cannot be used."""


class Memory(Protocol):
    """What a job gathers over all lines, so small that it is noted with each window."""

    def state(self) -> Any:
        """JSON."""

    def restore(self, state: Any) -> None:
        """Goes on from what `state` gave."""


@dataclass(frozen=True)
class Job:
    """What to do with the lines of a file.

    Args:
        answer: a window's lines to the bytes of their answers, in their order.
        settings: all that decides these bytes beside the lines. JSON.
        surroundings: what may change the last bits alone. JSON.
        tokens_per_batch: which sets the size of a window.
        header: the first bytes of an output for so many lines.
        check: refuses a line that cannot be answered (ValueError), before anything is computed.
        size: characters of a line, which set the size of a window.
        memory: what `answer` gathers; a run that goes on after a stop goes on with it.
    """

    answer: "Callable[[list[Any]], bytes]"
    settings: "Mapping[str, Any]"
    surroundings: "Mapping[str, Any]"
    tokens_per_batch: int
    header: "Callable[[int], bytes]" = lambda lines: b""
    check: "Optional[Callable[[Any], None]]" = None
    size: "Callable[[Any], int]" = characters
    memory: Optional[Memory] = None


@dataclass(frozen=True)
class Done:
    """How a run ended: what was read, and how many lines an earlier, stopped run had already answered."""

    account: Account
    resumed: int


def run_file(job: Job, source: Readable, output: PathLike, *, force: bool = False, progress: bool = True) -> Done:
    """Answers every line of a file into another, in its order, in memory that does not depend on its length.

    The source is read once before anything is computed: what cannot be used is refused then, and its digest tells
    whether a part that an earlier run left belongs to it. The output bears its name once it is complete.

    Raises:
        ValueError: a line or file that cannot be used; an output that would take the place of the input.
        FileExistsError, BlockingIOError, OSError: as `resumable`.
    """
    folder = Path(output).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder} to write {Path(output).name} into: make it first.")
    _refuse_own_input(source, written_names(output))
    refuse_existing(output, force)
    with source.spooled(folder):
        account = _survey(job, source, progress)
        settings = {
            **job.settings,
            "tokens per batch": job.tokens_per_batch,
            "edition": _EDITION,
            "input, sha256": account.digest,
            **source.reading,
        }
        with resumable(output, settings, job.surroundings, force) as growing:
            if job.memory is not None and growing.state is not None:
                job.memory.restore(growing.state)
            if not growing.size:
                growing.append(job.header(account.lines), 0)
            again = Account()
            with _bar(progress, total=account.lines, initial=growing.lines) as bar:
                rest = itertools.islice(_read_again(source, again), growing.lines, None)
                for window in windows(rest, job.tokens_per_batch, job.size):
                    answers = job.answer(window)
                    growing.append(answers, len(window), None if job.memory is None else job.memory.state())
                    bar.update(len(window))
            if (again.lines, again.digest) != (account.lines, account.digest):
                raise _changed(source)
            return Done(account, growing.resumed)


def _changed(source: Readable) -> InputChanged:
    return InputChanged(
        f"{source.name} changed while it was read, so nothing is kept: give the same command again when it is complete."
    )


def _read_again(source: Readable, account: Account) -> "Iterator[Any]":
    """What was read once without a fault, and so has none unless it has changed."""
    try:
        yield from source.read(account)
    except ValueError as error:
        raise _changed(source) from error


def run_stream(job: Job, source: Readable) -> Done:
    """Answers every line to standard output, window by window; nothing is read twice, and nothing kept.

    Raises:
        ValueError: a line or file that cannot be used; standard output is appended to the input.
        OSError: standard output cannot be written.
    """
    _refuse_own_input(source, numbers_of(sys.stdout))
    account = Account()
    _stream(job.header(0))
    for window in windows(_checked(source.read(account), job.check), job.tokens_per_batch, job.size):
        _stream(job.answer(window))
    return Done(account, 0)


def _stream(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        name_file(error, "standard output")
        raise


def _refuse_own_input(source: Readable, outputs: "Iterable[FileOrNumber]") -> None:
    """What takes the place of its own input, or is appended to it, destroys it; not even `force` asks for that.

    Raises:
        ValueError: an output is, by whatever name, a file that is read.
    """
    read = [status for status in map(_status, source.files) if status is not None]
    for output in outputs:
        written = _status(output)
        if written is not None and any(os.path.samestat(written, status) for status in read):
            name = "standard output" if isinstance(output, int) else output
            raise ValueError(f"{name} is the input itself ({source.name}): name another file to write.")


def _status(file: FileOrNumber) -> "Optional[os.stat_result]":
    """Of a regular file that is there; terminals and pipes are read and written at once with no harm."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _checked(lines: "Iterable[Any]", check: "Optional[Callable[[Any], None]]") -> "Iterator[Any]":
    for line in lines:
        if check is not None:
            check(line)
        yield line


def _survey(job: Job, source: Readable, progress: bool) -> Account:
    with _bar(progress, desc="reading") as bar:

        def look(line: Any) -> None:
            bar.update()
            if job.check is not None:
                job.check(line)

        return source.survey(look)


def _bar(progress: bool, **options: Any) -> "tqdm[Any]":
    return tqdm(**options, unit=" lines", unit_scale=True, disable=None if progress else True)  # None: if a terminal
