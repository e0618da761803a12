"""A finished run for its readers: people at a terminal, CI systems, a browser, and the next run."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Union

from parity.report import html, junit, markdown
from parity.report.terminal import show
from parity.result import Report

__all__ = ["prepare", "show", "write_all", "write_texts"]

_RENDERED = {
    "parity.json": Report.to_json,
    "parity.md": markdown.render,
    "parity.xml": junit.render,
    "parity.html": html.render,
}


def prepare(folder: "Union[str, Path]", names: "Iterable[str]" = tuple(_RENDERED)) -> None:
    """Make the folder, and make sure that files of these names can be written there: a run takes minutes, and this
    comes first.

    Raises:
        OSError: it cannot be made or written to; the message says why and what to do.
    """
    folder = Path(folder)
    advice = "give --report a folder that can be written."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = _part(folder / "probe")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"the report cannot be written to {folder} ({error.strerror}); {advice}") from error
    for name in names:
        if (folder / name).is_dir():
            raise OSError(f"the report cannot be written: {folder / name} is a folder; {advice}")


def write_all(report: Report, folder: "Union[str, Path]") -> "list[Path]":
    """Write parity.json, parity.md, parity.xml (JUnit) and parity.html; the folder is made if need be.

    All four are rendered before the first is written.

    Returns:
        The four paths, in that order.
    """
    return write_texts({name: render(report) for name, render in _RENDERED.items()}, folder)


def write_texts(texts: "Mapping[str, str]", folder: "Union[str, Path]") -> "list[Path]":
    """Write files by their names. Each takes its name only once complete, so that a reader never sees half a file."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / name, text) for name, text in texts.items()]


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _write(path: Path, text: str) -> Path:
    part = _part(path)
    try:
        # A path that is no valid UTF-8 reaches us as lone surrogates; "\udc80" is also how JSON spells them.
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
