"""NeZha on the command line: checkpoints of every kind, pre-training, fine-tuning, inference and export.

Exit codes: 0 done (right, equal); 1 found wrong, or different; 2 could not.
"""

import argparse
import contextlib
import errno
import io
import logging
import signal
import sys
from collections.abc import Iterator
from typing import Optional

from tqdm import tqdm

from paddle_nezha import __version__
from paddle_nezha._streams import discard_output, open_closed_streams
from paddle_nezha.checkpoint import CheckpointError
from paddle_nezha.commands import checkpoints, compare, corpus, export, finetuning, info, pipelines, pretraining, report
from paddle_nezha.commands.shared import COULD_NOT, DONE, fail

_GROUPS = (checkpoints, corpus, pretraining, finetuning, compare, report, pipelines, export, info)


def main(arguments: "Optional[list[str]]" = None) -> int:
    """Runs one command and gives its exit code."""
    open_closed_streams()
    options = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path is printed on any terminal, spelled out if need be
            stream.reconfigure(errors="backslashreplace")
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half done is cleaned up
    try:
        with _log_lines():
            code: int = options.run(options)
            sys.stdout.flush()
            return code
    except CheckpointError as error:
        return fail(error, options.refused, options.json)
    except BrokenPipeError:  # the reader has seen enough
        discard_output()
        return DONE
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f" where {error.filename} was to be written" if error.filename else ""
            return fail(f"the disk is full{where}: make room, and give the same command again", COULD_NOT, options.json)
        return fail(error, COULD_NOT, options.json)
    except ValueError as error:
        return fail(error, COULD_NOT, options.json)
    except KeyboardInterrupt:
        return fail(f"stopped{options.kept}", 130)


class _LogLines(logging.StreamHandler):
    """Lines that stand by themselves, though a progress bar may be drawn where they go."""

    def emit(self, record: logging.LogRecord) -> None:
        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)


@contextlib.contextmanager
def _log_lines() -> "Iterator[None]":
    """What the package has to say while it works, on stderr."""
    logger, handler = logging.getLogger("paddle_nezha"), _LogLines(sys.stderr)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    handler.addFilter(lambda record: record.name != "paddle_nezha.tuning")  # `paddle-nezha info` tells it
    logger.propagate = False  # Paddle gives the root logger a handler, which would say everything once more
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
        logger.removeHandler(handler)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="paddle-nezha", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"paddle-nezha {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in _GROUPS:
        group.add(commands)
    return top
