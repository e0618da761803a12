"""What a run of the judge found: plain data, written to JSON and read back by every report."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

SCHEMA = 1

# The questions a row can answer.
FORMULA = "formula"  # Paddle in float64 against torch_ref in float64: is it the same formula?
ARITHMETIC = "arithmetic"  # float32: is Paddle's error no worse than PyTorch's own?
TRAINING = "training"  # after optimizer steps
OUTSIDE = "outside"  # torch_ref in float64 against an implementation nobody here wrote
OUTSIDE_ARITHMETIC = "outside-arithmetic"  # Paddle in float32 against that implementation's


@dataclass(frozen=True)
class Worst:
    """Where a stage is furthest from the truth."""

    index: "tuple[int, ...]"
    paddle: float
    truth: float
    torch: Optional[float] = None


@dataclass(frozen=True)
class Row:
    """One stage of one case, judged.

    Args:
        question: one of the constants above.
        case, head, dtype, stage: what was judged; `stage` is a name of `parity.stages`.
        form: the attention form that ran: "dense" or "blocked".
        error: Paddle's error, max|paddle - truth| / scale, the worst over the samples.
        torch_error: PyTorch's own, likewise; None where PyTorch is the truth.
        ratio: geometric mean over the samples of (error + half an ulp) / (torch_error + half an ulp); ARITHMETIC alone.
        limit: what `error` (or, where there is one, `ratio`) may be.
        samples: how many seeds or batches.
        why: the reason of a limit or of a failure, for people; empty when there is nothing to add.
    """

    question: str
    case: str
    head: str
    dtype: str
    form: str
    stage: str
    error: float
    limit: float
    passed: bool
    samples: int = 1
    torch_error: Optional[float] = None
    ratio: Optional[float] = None
    worst: Optional[Worst] = None
    why: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.error) and math.isfinite(self.ratio or 0.0)):
            object.__setattr__(self, "passed", False)  # what is no number is within no limit


@dataclass
class Report:
    """A whole run.

    Args:
        command: the command line that repeats it.
        subject: what was judged, in words ("seeded cases", a checkpoint's name).
        environment: versions, processor, threads.
        rows: in the order judged: within a case, the order of the forward, then the gradients.
        notes: things a reader must know (skipped parts with their reasons, known differences).
        cause: the likely cause of the first failure where its pattern is a known one.
    """

    command: str
    subject: str
    environment: "dict[str, str]"
    rows: "list[Row]" = field(default_factory=list)
    notes: "list[str]" = field(default_factory=list)
    seconds: float = 0.0
    created: str = ""
    cause: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.rows) and all(row.passed for row in self.rows)

    @property
    def first_failure(self) -> Optional[Row]:
        return next((row for row in self.rows if not row.passed), None)

    def to_json(self) -> str:
        raw = _spelled({"schema": SCHEMA, "passed": self.passed, **asdict(self)})
        return json.dumps(raw, ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, file: "Union[str, Path]") -> "Report":
        """
        Raises:
            ValueError: the file is no report, or of another schema; the message says how to make one.
        """
        hint = "make one with: python -m parity run --report FOLDER"
        try:
            raw: "dict[str, Any]" = json.loads(Path(file).read_text(encoding="utf-8"))
            schema, rows = raw.pop("schema"), raw.pop("rows")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{file} is not a parity report ({error}); {hint}") from error
        if schema != SCHEMA:
            raise ValueError(f"{file} is a report of schema {schema!r}, this judge reads {SCHEMA}; {hint}")
        raw.pop("passed", None)

        def row(item: "dict[str, Any]") -> Row:
            worst = item.pop("worst", None)
            item = _read(item, ("error", "limit", "torch_error", "ratio"))
            if worst is not None:
                worst = Worst(**{**_read(worst, ("paddle", "truth", "torch")), "index": tuple(worst["index"])})
            return Row(**item, worst=worst)

        return cls(**raw, rows=[row(item) for item in rows])


def _spelled(value: Any) -> Any:
    """NaN and the infinities as "nan", "inf", "-inf": JSON has no such numbers, strict readers refuse."""
    if isinstance(value, dict):
        return {name: _spelled(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read(item: "dict[str, Any]", names: "tuple[str, ...]") -> "dict[str, Any]":
    """`item` with the numbers of these names read back from their spelling."""
    return {name: float(x) if name in names and isinstance(x, str) else x for name, x in item.items()}
