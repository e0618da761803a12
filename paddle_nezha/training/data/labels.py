"""The names of labels: in which order, which are known, and several of them in one.

A label is a text, a number too. An example with several labels has them joined by a character that the user chooses
("体育|足球" with the separator "|"); the record's label stays that text, and `split_labels` takes it apart.
"""

from collections.abc import Iterable, Sequence
from typing import Optional

from paddle_nezha.training.data.columns import is_number
from paddle_nezha.training.data.records import DataError, Record, TextRecord, TokenRecord

_SHOWN = 20


def split_labels(label: str, separator: Optional[str]) -> "list[str]":
    """The labels in one text, without blanks around them; without a separator it is one label."""
    if separator is None:
        return [label]
    return [part.strip() for part in label.split(separator) if part.strip()]


def in_order(names: "Iterable[str]") -> "list[str]":
    """Each name once: numbers by their value where all are numbers, otherwise by the characters' code points."""
    once = set(names)
    if all(map(is_number, once)):
        return sorted(once, key=lambda name: (float(name), name))
    return sorted(once)


def label_names(records: "Iterable[Record]", *, separator: Optional[str] = None) -> "list[str]":
    """The labels, or tags, of records, each once, in an order that does not depend on theirs.

    Args:
        separator: what stands between several labels of one record.

    Raises:
        DataError: fewer than two, which nothing can be learnt from; the first file and line are named.
    """
    names: "dict[str, None]" = {}
    count, first = 0, None
    for record in records:
        count, first = count + 1, first or record
        if isinstance(record, TokenRecord):
            names.update(dict.fromkeys(record.labels or ()))
        elif isinstance(record, TextRecord) and record.label is not None:
            names.update(dict.fromkeys(split_labels(record.label, separator)))
    if len(names) < 2:
        where = f"{first.file}:{first.line}" if first is not None else "no file"
        got = f"all {count:,} examples have the label {next(iter(names))!r}" if names else f"{count:,} examples without"
        raise DataError(
            f"{where}: expected labels of two classes or more, got {got}. Is it the right file, and the right column? "
            "Say which column holds the label, or add examples of other classes."
        )
    return in_order(names)


def measures(names: "Sequence[str]", examples: int) -> bool:
    """Whether labels are what regression learns rather than classes: numbers, not all whole, and hardly one twice."""
    numbers = all(map(is_number, names)) and not all(float(name).is_integer() for name in names)
    return numbers and len(names) > examples / 2


class KnownLabels:
    """Refuses labels that are none of those a model was trained with.

    Args:
        names: None knows every label.
    """

    def __init__(self, names: "Optional[Iterable[str]]", separator: Optional[str]) -> None:
        self._names = None if names is None else in_order(names)
        self._known = frozenset(self._names or ())
        self._separator = separator

    def __contains__(self, label: str) -> bool:
        return label in self._known

    def check(self, label: str, file: str, line: int) -> None:
        """
        Raises:
            DataError: a label, or one of several, that is not known.
        """
        if self._names is not None:
            for part in split_labels(label, self._separator):
                if part not in self._known:
                    raise DataError(f"{file}:{line}: unknown label {part!r}: {self._expected()}")

    def _expected(self) -> str:
        names = self._names or []
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return (
            f"expected one of {', '.join(names[:_SHOWN])}{more}. Mend or remove the line, add examples of it to the "
            "training file, or say which column holds the label."
        )
