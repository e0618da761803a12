"""What a run wrote: its description and the numbers of its steps."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np

from paddle_nezha._files import PathLike, listing
from paddle_nezha.training.metrics import FILE, read_metrics
from paddle_nezha.training.report.told import count

DESCRIPTION = "run.json"
TRAINING = "step"


class ReportError(ValueError):
    """A folder that holds no run to draw; the message says what to do."""


class Series(NamedTuple):
    """One number over a run: steps and values float64 [n], by step; a value may be NaN or infinite."""

    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Run:
    """What a run wrote.

    Attributes:
        series: by kind of line ("step", "eval", ...) and name.
        skipped: the steps that changed no parameter.
        written: when it last wrote a line.
        has_model: it wrote its model, which is the last thing a run does.
    """

    folder: Path
    name: str
    description: "dict[str, Any]"
    series: "dict[tuple[str, str], Series]"
    skipped: np.ndarray
    written: datetime
    has_model: bool

    @property
    def step(self) -> int:
        """The last step of which a line tells; one that is judged after it tells too, where not every step does."""
        return int(max(each.steps[-1] for each in self.series.values()))

    @property
    def steps(self) -> Optional[int]:
        """How many steps it is to make; None when its settings do not say."""
        settings = self.description.get("settings")
        steps = settings.get("steps") if isinstance(settings, dict) else None
        return steps if isinstance(steps, int) and not isinstance(steps, bool) else None

    @property
    def is_finished(self) -> bool:
        return self.has_model and (self.steps is None or self.step >= self.steps)

    @property
    def state(self) -> str:
        if self.is_finished:
            return f"finished: {count(self.step, 'step')}"
        if self.steps is None:
            return f"not finished: at step {self.step:,}"
        if self.step >= self.steps:
            return f"not finished: all {self.step:,} steps made, the model not written"
        return f"not finished: at step {self.step:,} of {self.steps:,}"

    def total(self, name: str) -> Optional[Series]:
        """The running sum of a number of each step, such as its tokens.

        A line stands for the steps since the line before it: where not every step was written, the sum is an estimate.
        """
        each = self.series.get((TRAINING, name))
        if each is None or not np.isfinite(each.values).all():
            return None
        return Series(each.steps, np.cumsum(each.values * np.diff(each.steps, prepend=0.0)))

    @property
    def is_sampled(self) -> bool:
        """Not every step was written."""
        each = max((s for (kind, _), s in self.series.items() if kind == TRAINING), key=lambda s: len(s.steps))
        return len(each.steps) < self.step


def read_run(folder: PathLike) -> Run:
    """Reads the folder of a run, finished or not.

    Raises:
        ReportError: it is no run's folder, or the run has made no step, or its files are damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"{folder} is no folder. Expected a run's: the `output` of its settings.")
    description = _description(folder)
    series, skipped = _series(folder)
    if not any(kind == TRAINING for kind, _ in series):
        raise ReportError(
            f"{folder} is a run that has written no step yet: there is nothing to draw. Wait for its first steps, or "
            "start it again with its own command, and then draw it."
        )
    written = datetime.fromtimestamp((folder / FILE).stat().st_mtime)
    has_model = (folder / "model" / "config.json").exists()
    return Run(folder, folder.resolve().name, description, series, skipped, written, has_model)


def has_steps(folder: PathLike) -> bool:
    """A run's folder with at least one step or score, so that there is something to draw."""
    path = Path(folder) / FILE
    return path.is_file() and path.stat().st_size > 0


def seed_folders(folder: PathLike) -> "list[Path]":
    """The runs inside a folder of `paddle-nezha finetune --seeds`, by seed; none where it is a run itself."""
    folder = Path(folder)
    if (folder / DESCRIPTION).exists():
        return []
    found = [each for each in folder.glob("seed-*") if each.name[5:].isdecimal() and (each / DESCRIPTION).is_file()]
    return sorted(found, key=lambda each: int(each.name[5:]))


def _description(folder: Path) -> "dict[str, Any]":
    path = folder / DESCRIPTION
    if not path.is_file():
        raise ReportError(
            f"{folder} is no run's folder: it has no {DESCRIPTION}; it holds {listing(folder)}. Give the folder that a "
            "run's settings name as `output`."
        )
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ReportError(f"{path} is not JSON ({error}). Start the run anew in another folder.") from error
    if not isinstance(description, dict) or not isinstance(description.get("kind"), str):
        raise ReportError(
            f"{path} describes no run: expected an object with `kind`, such as "
            '{"kind": "pretraining", "settings": {...}}. Give the folder that a run\'s settings name as `output`.'
        )
    return description


def _series(folder: Path) -> "tuple[dict[tuple[str, str], Series], np.ndarray]":
    found: "dict[tuple[str, str], tuple[list[float], list[float]]]" = {}
    skipped: "list[float]" = []
    try:
        for record in read_metrics(folder):
            kind, step = str(record["kind"]), float(record["step"])
            if kind == TRAINING and record.get("updated") is False:
                skipped.append(step)
            for name, value in record.items():
                number = None if name in ("kind", "step") else _number(value)
                if number is not None:
                    steps, values = found.setdefault((kind, name), ([], []))
                    steps.append(step)
                    values.append(number)
    except ValueError as error:
        raise ReportError(str(error)) from error
    series = {key: Series(np.array(steps), np.array(values)) for key, (steps, values) in found.items()}
    if any((np.diff(each.steps) < 0).any() for each in series.values()):
        raise ReportError(
            f"The steps in {folder / FILE} go back: two processes wrote it at a time. Let one of them go on from a "
            "checkpoint, which drops what came after it."
        )
    return series, np.array(skipped)


def _number(value: Any) -> Optional[float]:
    """Of a number, or of a text that stands for one JSON has not."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return float(value) if value in ("nan", "inf", "-inf") else None
