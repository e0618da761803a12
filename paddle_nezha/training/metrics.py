"""What a training tells while it runs: a line for each step in `metrics.jsonl`, and a writer of curves if there is one.

A line is a JSON object with `kind` ("step" or "eval") and `step`, the number of steps made so far. Numbers that are
not finite are written as texts ("nan", "inf"), which JSON has no numbers for.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from paddle_nezha._files import replaced

FILE = "metrics.jsonl"


class MetricsLog:
    """Appends to a run's `metrics.jsonl`; a run that goes on from a checkpoint first drops what came after it.

    Args:
        run: the run's folder.
        made: the steps that the run goes on from. Later lines, and half of one, are of steps that are made again.
        curves: also write to VisualDL or TensorBoard, whichever is installed, into `run/curves`.
    """

    def __init__(self, run: Path, made: int, curves: bool = True):
        self._path = run / FILE
        kept = [record for record in read_metrics(run) if record["step"] <= made]
        with replaced(self._path) as path, open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
        self._file = open(self._path, "a", encoding="utf-8")
        self._curves = _curve_writer(run / "curves") if curves else None

    def write(self, kind: str, step: int, values: "Mapping[str, Any]") -> None:
        record = {"kind": kind, "step": step, **{name: _strict(value) for name, value in values.items()}}
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()
        if self._curves is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)) and math.isfinite(value):
                    self._curves.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._file.close()
        if self._curves is not None:
            self._curves.close()


def read_metrics(run: Path) -> "list[dict[str, Any]]":
    """The lines of a run, in order; half a line at the end, which a killed process leaves, is left out.

    Raises:
        ValueError: a line is no record of a step; file and line are named.
    """
    path = run / FILE
    if not path.exists():
        return []
    found = []
    # What stands behind the last line end was not written out.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
            if not isinstance(record["kind"], str) or isinstance(record["step"], bool):
                raise TypeError
            record["step"] = int(record["step"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path}, line {number}: expected what a run writes, a JSON object with kind and step, but got "
                f"{line[:60].decode('utf-8', 'replace')!r}: remove the line, or the file; the curves lose its steps."
            ) from None
        found.append(record)
    return found


def _strict(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _curve_writer(folder: Path) -> Optional[Any]:
    """Something with `add_scalar(tag, value, step)` and `close()`, or None."""
    try:
        from visualdl import LogWriter

        return LogWriter(logdir=str(folder))
    except ImportError:
        pass
    try:
        from tensorboard.summary import Writer

        return Writer(str(folder))
    except ImportError:
        return None
