"""A whole file through a model: read, computed window by window, written in order, and gone on with after a stop."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

from tqdm import tqdm

from paddle_nezha._files import PathLike

from .batches import windows
from .lines import Account, Line, Source
from .resumable import refuse_existing, resumable

# Raised with the way windows and batches are made, so that no part of another edition is gone on with.
_EDITION = 1


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
    """

    answer: "Callable[[list[Line]], bytes]"
    settings: "Mapping[str, Any]"
    surroundings: "Mapping[str, Any]"
    tokens_per_batch: int
    header: "Callable[[int], bytes]" = lambda lines: b""
    check: "Optional[Callable[[Line], None]]" = None


@dataclass(frozen=True)
class Done:
    """How a run ended: what was read, and how many lines an earlier, stopped run had already answered."""

    account: Account
    resumed: int


def run_file(job: Job, source: Source, output: PathLike, *, force: bool = False, progress: bool = True) -> Done:
    """Answers every line of a file into another, in its order, in memory that does not depend on its length.

    The source is read once before anything is computed: what cannot be used is refused then, and its digest tells
    whether a part that an earlier run left belongs to it. The output bears its name once it is complete.

    Raises:
        ValueError: a line or file that cannot be used.
        FileExistsError, BlockingIOError: as `resumable`.
    """
    folder = Path(output).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder} to write {Path(output).name} into: make it first.")
    refuse_existing(output, force)
    with source.spooled(folder):
        account = _survey(job, source, progress)
        settings = {
            **job.settings,
            "tokens per batch": job.tokens_per_batch,
            "edition": _EDITION,
            "input, sha256": account.digest,
            "key": source.key,
        }
        with resumable(output, settings, job.surroundings, force) as growing:
            if not growing.size:
                growing.append(job.header(account.lines), 0)
            again = Account()
            with _bar(progress, total=account.lines, initial=growing.lines) as bar:
                rest = itertools.islice(source.read(again), growing.lines, None)
                for window in windows(rest, job.tokens_per_batch):
                    growing.append(job.answer(window), len(window))
                    bar.update(len(window))
            if (again.lines, again.digest) != (account.lines, account.digest):
                raise ValueError(f"{source.name} changed while it was read: begin anew with --force.")
            return Done(account, growing.resumed)


def run_stream(job: Job, source: Source) -> Done:
    """Answers every line to standard output, window by window; nothing is read twice, and nothing kept."""
    account, out = Account(), sys.stdout.buffer
    out.write(job.header(0))
    for window in windows(_checked(source.read(account), job.check), job.tokens_per_batch):
        out.write(job.answer(window))
        out.flush()
    return Done(account, 0)


def _checked(lines: "Iterable[Line]", check: "Optional[Callable[[Line], None]]") -> "Iterator[Line]":
    for line in lines:
        if check is not None:
            check(line)
        yield line


def _survey(job: Job, source: Source, progress: bool) -> Account:
    with _bar(progress, desc="reading") as bar:

        def look(line: Line) -> None:
            if line.number % 4096 == 0:
                bar.update(4096)
            if job.check is not None:
                job.check(line)

        return source.survey(look)


def _bar(progress: bool, **options: Any) -> "tqdm[Any]":
    return tqdm(**options, unit=" lines", unit_scale=True, disable=None if progress else True)  # None: if a terminal
