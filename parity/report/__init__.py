"""A finished run for its readers: people at a terminal, CI systems, a browser, and the next run."""

import os
from pathlib import Path
from typing import Union

from parity.report import html, junit, markdown
from parity.report.terminal import show
from parity.result import Report

__all__ = ["show", "write_all"]


def write_all(report: Report, folder: "Union[str, Path]") -> "list[Path]":
    """Write parity.json, parity.md, parity.xml (JUnit) and parity.html; the folder is made if need be.

    All four are rendered before the first is written, and each takes its name only once complete, so that a
    reader never sees half a file.

    Returns:
        The four paths, in that order.
    """
    folder = Path(folder)
    texts = {
        "parity.json": report.to_json(),
        "parity.md": markdown.render(report),
        "parity.xml": junit.render(report),
        "parity.html": html.render(report),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / name, text) for name, text in texts.items()]


def _write(path: Path, text: str) -> Path:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # A path that is no valid UTF-8 reaches us as lone surrogates; "\udc80" is also how JSON spells them.
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
