"""A finished run of the benchmark: at the terminal, and as bench.json, bench.md and bench.html."""

from pathlib import Path

from parity.bench.report import html, markdown
from parity.bench.report.terminal import show
from parity.bench.result import Bench
from parity.report import prepare as prepare_names
from parity.report import write_texts

__all__ = ["prepare", "show", "write"]

_RENDERED = {"bench.json": Bench.to_json, "bench.md": markdown.render, "bench.html": html.render}


def prepare(folder: Path) -> None:
    """
    Raises:
        OSError: the folder cannot be made or written to; the message says why and what to do.
    """
    prepare_names(folder, tuple(_RENDERED))


def write(bench: Bench, folder: Path) -> "list[Path]":
    """The three paths, written one by one when all are rendered."""
    return write_texts({name: render(bench) for name, render in _RENDERED.items()}, folder)
