"""What a run of the benchmark found: plain data, written to bench.json.

Schema 1. The file is one object:

    schema        1
    command       the command line that repeats it
    created       when, UTC, ISO 8601
    seconds       how long the run took
    stopped       "" or why it ended early; what was measured by then is there
    quick         true: tiny sizes, for tests; no figure is judged
    environment   versions, processor, avx512 ("yes", "no", "unknown"), python, system
    setting       sizes, threads, dropout, least: `plan.Setting`
    engines       [{name, title, threads, tuned, facts, free_processors, why}]    why it was left out, or ""
    cells         [{engine, task, batch, length, padded, tokens, threads, clock, calls, rounds, cpu, wall, best, median,
                  tokens_per_second, times_ours, why}]
    memory        [{engine, task, batch, length, held_mb, peak_mb, why}]
    accuracy      [{engine, length, scale, output_error, gradient_error, why}]
    figures       [{number, figure, at, sense, bound, measured, low, high, pairs, clock, unit, met, why}]
    notes         what a reader must know

Times are seconds of one call. `cpu` is the process's own time, `wall` the clock's, entry i of both taken in round
`rounds[i]`; equal rounds of two cells are neighbours in time. `clock` says which of the two `best`, `median` and the
ratios read: "cpu" for one thread, "wall" for several. MB are 2**20 bytes. What could not be measured is null, its
`why` says for what reason. `free_processors` is, of an engine of several threads, what as many busy processes got just
before it, at worst: less than its threads where others used the machine. `met` is null where a figure is not judged.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from parity.bench.plan import Case, Setting

SCHEMA = 1


@dataclass
class EngineFacts:
    """An engine of this run, and what it says of itself: form, versions, tuning."""

    name: str
    title: str
    threads: int
    tuned: bool
    facts: "dict[str, str]" = field(default_factory=dict)
    free_processors: Optional[float] = None
    why: str = ""


@dataclass
class Cell:
    """The times of one engine at one task and shape."""

    engine: str
    task: str
    case: Case
    threads: int
    calls: int = 1
    rounds: "list[int]" = field(default_factory=list)
    cpu: "list[float]" = field(default_factory=list)
    wall: "list[float]" = field(default_factory=list)
    why: str = ""

    @property
    def clock(self) -> str:
        return "cpu" if self.threads == 1 else "wall"

    def times(self, clock: str = "") -> "dict[int, float]":
        """Seconds of one call by round, on the given clock or its own."""
        return dict(zip(self.rounds, self.wall if (clock or self.clock) == "wall" else self.cpu))

    @property
    def best(self) -> Optional[float]:
        return min(self.times().values(), default=None)

    @property
    def tokens_per_second(self) -> Optional[float]:
        return self.case.tokens / self.best if self.best else None


@dataclass
class Memory:
    """Growth of the resident set: of building the engine (`held_mb`), and over one call (`peak_mb`)."""

    engine: str
    task: str
    case: Case
    held_mb: Optional[float] = None
    peak_mb: Optional[float] = None
    why: str = ""


@dataclass
class Accuracy:
    """The error of one form's attention against float64, max|a - b| / max|b|; of gradients the worst of q, k, v."""

    engine: str
    length: int
    scale: float
    output_error: Optional[float] = None
    gradient_error: Optional[float] = None
    why: str = ""


@dataclass
class Figure:
    """A figure that was promised, and what was measured.

    Args:
        number: of the promise; several rows share it.
        sense: "<=" or ">=".
        bound: what it must be; None where none was promised at this shape.
        measured: the median of the ratios, or the number itself.
        low, high: the least and the greatest of the ratios.
        pairs: how many ratios.
        met: None where it is not judged; `why` says why not.
    """

    number: int
    figure: str
    at: str
    sense: str
    bound: Optional[float] = None
    measured: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    pairs: int = 0
    clock: str = ""
    unit: str = "x"
    met: Optional[bool] = None
    why: str = ""


@dataclass
class Bench:
    """A whole run; the fields are described above."""

    command: str
    setting: Setting
    environment: "dict[str, str]"
    created: str = ""
    seconds: float = 0.0
    stopped: str = ""
    quick: bool = False
    engines: "list[EngineFacts]" = field(default_factory=list)
    cells: "list[Cell]" = field(default_factory=list)
    memory: "list[Memory]" = field(default_factory=list)
    accuracy: "list[Accuracy]" = field(default_factory=list)
    figures: "list[Figure]" = field(default_factory=list)
    notes: "list[str]" = field(default_factory=list)

    @property
    def measured(self) -> bool:
        return any(cell.rounds for cell in self.cells) or bool(self.memory or self.accuracy)

    @property
    def met(self) -> bool:
        """No judged figure is missed."""
        return all(figure.met is not False for figure in self.figures)

    def cell(self, engine: str, task: str, case: Case) -> Optional[Cell]:
        return next((c for c in self.cells if (c.engine, c.task, c.case) == (engine, task, case)), None)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def to_json(self) -> str:
        from parity.bench.figures import median, times_anchor

        def flat(item: Any, **more: Any) -> "dict[str, Any]":
            facts = asdict(item)
            case = facts.pop("case", None)
            return {**facts, **(case or {}), **more}

        cells = [
            flat(
                cell,
                tokens=cell.case.tokens,
                clock=cell.clock,
                best=cell.best,
                median=median(list(cell.times().values())),
                tokens_per_second=cell.tokens_per_second,
                times_ours=times_anchor(self, cell),
            )
            for cell in self.cells
        ]
        memory = [flat(row) for row in self.memory]
        for row in memory:
            row.pop("padded")
        facts = {
            "schema": SCHEMA,
            "command": self.command,
            "created": self.created,
            "seconds": round(self.seconds, 1),
            "stopped": self.stopped,
            "quick": self.quick,
            "environment": self.environment,
            "setting": asdict(self.setting),
            "engines": [asdict(engine) for engine in self.engines],
            "cells": cells,
            "memory": memory,
            "accuracy": [asdict(row) for row in self.accuracy],
            "figures": [asdict(figure) for figure in self.figures],
            "notes": self.notes,
        }
        return json.dumps(_strict(facts), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    """NaN and the infinities as null, which strict readers take."""
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
