"""What a run of the judge found: plain data, written to JSON and read back by every report."""

import functools
import json
import math
import reprlib
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

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
        quick: fewer heads, cases and seeds were judged than a whole run judges.
    """

    command: str
    subject: str
    environment: "dict[str, str]"
    rows: "list[Row]" = field(default_factory=list)
    notes: "list[str]" = field(default_factory=list)
    seconds: float = 0.0
    created: str = ""
    cause: str = ""
    quick: bool = False

    @property
    def passed(self) -> bool:
        return bool(self.rows) and all(row.passed for row in self.rows)

    @property
    def first_failure(self) -> Optional[Row]:
        return next((row for row in self.rows if not row.passed), None)

    def to_json(self) -> str:
        """Strict JSON, one row a line. Fields at their defaults are left out; `from_json` puts them back."""
        head = {"schema": SCHEMA, "passed": self.passed, **_lean(self)}
        rows = ",\n".join(_json(_lean_row(row)) for row in head.pop("rows", []))
        return f'{_json(head)[:-1]},"rows":[\n{rows}\n]}}\n'

    @classmethod
    def from_json(cls, file: "Union[str, Path]") -> "Report":
        """
        Raises:
            OSError: no such file, or it cannot be read.
            ValueError: the file is no report, or of another schema; the message says what is wrong in it.

        Both messages say how to make one.
        """
        hint = "make one with `python -m parity run --report FOLDER`, which writes FOLDER/parity.json."
        try:
            raw = json.loads(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise OSError(
                f"{file} cannot be read ({error.strerror}): expected the parity.json of a run; {hint}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file} is not a parity report: it is not JSON ({error}); {hint}") from error
        if not isinstance(raw, dict) or "schema" not in raw:
            raise ValueError(f"{file} is not a parity report: it is JSON without a schema; {hint}")
        schema = raw.pop("schema")
        if schema != SCHEMA:
            found = reprlib.repr(schema)
            raise ValueError(f"{file} is a report of schema {found}, but this judge reads schema {SCHEMA}; {hint}")
        raw.pop("passed", None)  # the rows say so
        try:
            return _read(cls, raw, "")
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{file} is not a parity report: {error}; {hint}") from error


# ---- to JSON

_SHOWN_DIGITS = 9  # of the two values at the worst place of a row that passes, which are only there to be looked at


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _lean(item: Any) -> "dict[str, Any]":
    """The fields of a dataclass that are not at their defaults."""
    kept = {}
    for one in fields(item):
        value = getattr(item, one.name)
        if value != (one.default if one.default_factory is MISSING else one.default_factory()):
            kept[one.name] = value if one.name == "rows" else _spelled(value)
    return kept


def _lean_row(row: Row) -> "dict[str, Any]":
    lean = _lean(row)
    if row.passed and row.worst is not None:
        lean["worst"] = {
            name: float(f"{value:.{_SHOWN_DIGITS}g}") if isinstance(value, float) else value
            for name, value in lean["worst"].items()
        }
    return lean


def _spelled(value: Any) -> Any:
    """NaN and the infinities as "nan", "inf", "-inf": JSON has no such numbers, strict readers refuse."""
    if is_dataclass(value):
        return _lean(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# ---- and back

_NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
}
_WORDS = ("nan", "inf", "-inf")
_hints = functools.lru_cache(maxsize=None)(get_type_hints)


def _read(kind: Any, value: Any, where: str) -> Any:
    """What JSON gives, as a value of the annotated type `kind`.

    Raises:
        ValueError: it is none; the message says where, what was expected and what is there.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Union:  # Optional
        return None if value is None else _read(parts[0], value, where)
    if is_dataclass(kind):
        return _read_fields(kind, _expect(dict, value, where), where)
    if origin is dict:
        return {name: _read(parts[1], item, f"{where}[{name!r}]") for name, item in _expect(dict, value, where).items()}
    if origin in (list, tuple):
        return origin(_read(parts[0], item, f"{where}[{i}]") for i, item in enumerate(_expect(list, value, where)))
    if kind is float and (value in _WORDS if isinstance(value, str) else type(value) is int):
        return float(value)
    return _expect(kind, value, where)


def _read_fields(kind: Any, raw: "dict[str, Any]", where: str) -> Any:
    known = {one.name: one for one in fields(kind)}
    strange = [name for name in raw if name not in known]
    if strange:
        raise ValueError(f"{where or 'it'} has {reprlib.repr(strange[0])}, which no report has")
    missing = [n for n, f in known.items() if n not in raw and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise ValueError(f"{where or 'it'} lacks {missing[0]!r}")
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], value, f"{where}.{name}".lstrip(".")) for name, value in raw.items()})


def _expect(kind: Any, value: Any, where: str) -> Any:
    if type(value) is not kind:  # a bool is an int, but no number
        raise ValueError(f"{where} should be {_NAMES[kind]}, not {reprlib.repr(value)}")
    return value
