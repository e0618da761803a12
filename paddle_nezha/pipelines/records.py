"""What a fine-tuned model answers to: the examples of a file, or those that a caller hands over. Needs no Paddle."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Callable, Optional, Union

from paddle_nezha._files import PathLike
from paddle_nezha.training.data import readers
from paddle_nezha.training.data.choices import choice_records
from paddle_nezha.training.data.columns import ROLES, Columns, Table
from paddle_nezha.training.data.labels import KnownLabels
from paddle_nezha.training.data.lines import SpooledFile
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.questions import span_records
from paddle_nezha.training.data.records import (
    ChoiceRecord,
    DataError,
    Record,
    SpanRecord,
    TextRecord,
    TokenRecord,
    content_of,
)
from paddle_nezha.training.data.tables import text_records

from .lines import Account, numbers_of, piped_in

# What an example is made of when it is handed over.
PARTS = {
    "sentence": ("text",),
    "pair": ("text", "pair"),
    "token": ("tokens",),
    "span": ("question", "context"),
    "choice": ("context", "question", "choices"),
}
_SHOWN = 20  # labels in a message
_NO_TEXTS = ("tokens", "choices")
_WITHOUT: "dict[type, dict[str, Any]]" = {
    TextRecord: {"label": None},
    TokenRecord: {"labels": None},
    SpanRecord: {"answers": ()},
    ChoiceRecord: {"label": None},
}


@dataclass(frozen=True)
class Example:
    """A record, and its place among all from 0."""

    index: int
    record: Record


def unlabelled(record: Record) -> Record:
    return replace(record, **_WITHOUT[type(record)])


def characters(example: Example) -> int:
    """Of what a model reads of an example: a context once for each choice."""
    record = example.record
    if isinstance(record, ChoiceRecord):
        shared = len(record.context) + len(record.question)
        return shared * len(record.choices) + sum(map(len, record.choices))
    return sum(map(len, readers.texts_of(record)))


class _Labels(KnownLabels):
    """Those that a model knows. It predicts without any, so a file that has others can leave its labels out."""

    table: Optional[Table] = None

    def _expected(self) -> str:
        names = self._names or []
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        if self.table is None:
            without = "give a file without labels"
        else:
            without = f"leave labels out, --columns '{_unlabelled(self.table)}' (columns=)"
        return (
            f"expected one of {', '.join(names[:_SHOWN])}{more}. Labels are for scores alone: {without}, or mend the "
            "line."
        )


def _unlabelled(table: Table) -> str:
    """The columns of a table but for its labels, as the command line takes them, and Python as a dict."""
    names = table.places if table.header is None else table.named()
    return json.dumps(
        {role: name for role, name in names.items() if role not in ("label", "labels")}, ensure_ascii=False
    )


class RecordSource:
    """A file of examples, to be read as often as need be.

    Args:
        path: the file, or files, in any layout of `readers`; "-" is what is piped in, which can be read while it is
            `spooled`.
        task: "sentence", "pair", "token", "span" or "choice".
        names: the classes that the model knows; None where the task has none.
        layout, columns: as for `readers.read`; None tells them from the content.

    `notes` counts what was odd when it was last read.
    """

    def __init__(
        self,
        path: "Union[PathLike, Sequence[PathLike]]",
        task: str,
        names: "Optional[Sequence[str]]" = None,
        *,
        layout: Optional[str] = None,
        columns: "Optional[Columns]" = None,
    ) -> None:
        self._path: "Optional[Union[PathLike, Sequence[PathLike]]]" = None if str(path) == "-" else path
        self._spooled: Optional[SpooledFile] = None
        self.name = "standard input" if self._path is None else str(path)
        self.task, self._names, self._layout, self._columns = task, names, layout, columns
        self.notes = Notes()

    @property
    def reading(self) -> "dict[str, str]":
        """Nothing: the digest is one of the examples themselves."""
        return {}

    @property
    def files(self) -> "list[Any]":
        """What is read; of a folder, or of several paths, all of them."""
        if self._path is None:
            return numbers_of(sys.stdin)
        if not isinstance(self._path, (str, os.PathLike)):
            return list(self._path)
        return list(Path(self._path).iterdir()) if os.path.isdir(self._path) else [self._path]

    @contextmanager
    def spooled(self, folder: PathLike) -> Iterator[None]:
        """Within the block what is piped in can be read: it is kept on the disk of `folder`, in a file without a
        name."""
        if self._path is not None:
            yield
            return
        with piped_in(folder) as file:
            self._spooled = SpooledFile(file, self.name)
            yield
        self._spooled = None

    def read(self, account: Account) -> "Iterator[Example]":
        """Every example from the first on.

        Raises:
            DataError: the file is not what the task needs, or a label is none of the model's; file, line and remedy are
                named.
        """
        path = self._spooled if self._path is None else self._path
        if path is None:
            raise ValueError("What is piped in must be spooled to be read.")
        self.notes = Notes()
        known = _Labels(self._names, None)
        if self.task == "token":
            opened = readers.open_to_tag(path, self._layout, self._columns, known, self.notes)
        else:
            opened = readers.open_records(path, self.task, self._layout, self._columns, known, self.notes)
        known.table = opened.table
        digest = sha256()
        for index, record in enumerate(readers.checked(opened, known)):
            digest.update(repr(content_of(record)).encode())
            account.lines = index + 1
            yield Example(index, record)
        account.digest = digest.hexdigest()

    def survey(self, check: "Optional[Callable[[Example], None]]" = None) -> Account:
        """Reads everything once, before anything is computed; raises what `read` and `check` do."""
        account = Account()
        for example in self.read(account):
            if check is not None:
                check(example)
        return account


def examples(task: str, items: Any) -> "list[Example]":
    """What a caller hands over as a list, as examples: each a dict of the task's `PARTS`, a tuple of them, or the only
    one.

    Raises:
        ValueError (DataError): no list; an item that is something else, named by its number from 1.
    """
    if isinstance(items, bytes) or not isinstance(items, Iterable):
        raise DataError(f"expected an example or a list of them, got {repr(items)[:60]}. Hand it over so.")
    rows = [(number, _parts(task, item, number)) for number, item in enumerate(items, 1)]
    if not rows:
        return []
    name = "the list"
    records: "Iterator[Record]"
    if task == "token":
        records = iter([TokenRecord(_tokens(row["tokens"], line), None, name, line) for line, row in rows])
    elif task == "span":
        records = span_records(rows, name, Notes())
    elif task == "choice":
        rows = [(line, {**row, "choices": _listed(row["choices"])}) for line, row in rows]
        records = choice_records(rows, name)
    else:
        table = Table(task, {part: part for part in PARTS[task]}, None, None)
        records = text_records(rows, table, name, KnownLabels(None, None), Notes())
    opened = readers.Opened(name, "jsonl", task, None, records)
    return [Example(*item) for item in enumerate(readers.checked(opened, KnownLabels(None, None)))]


def is_one(item: Any) -> bool:
    """Whether a caller hands over one example, and no list of them."""
    return isinstance(item, (str, tuple, dict))


def _parts(task: str, item: Any, number: int) -> "dict[str, Any]":
    parts = _named_parts(task, item, number)
    for name, value in parts.items():
        if name not in _NO_TEXTS and not isinstance(value, (str, int, float)):
            raise DataError(f"item {number}: expected a text as {name}, got {repr(value)[:60]}. Hand it over so.")
    return parts


def _named_parts(task: str, item: Any, number: int) -> "dict[str, Any]":
    parts = PARTS[task]
    if isinstance(item, dict):
        lacking = [part for part in parts if part not in item]
        unknown = [key for key in item if key not in ROLES[task]]
        if not lacking and not unknown:
            return {part: item[part] for part in parts}
        got = f"the keys {', '.join(map(str, item)) or '(none)'}"
    elif len(parts) == 1:
        return {parts[0]: item}
    elif isinstance(item, (tuple, list)):
        if len(item) == len(parts):
            return dict(zip(parts, item))
        got = f"{len(item)} of them"
    else:
        got = repr(item)[:60]
    raise DataError(
        f"item {number}: expected {' and '.join(parts)}, as a tuple in this order or a dict of these keys, got {got}. "
        "Hand it over so."
    )


def _listed(given: Any) -> Any:
    return list(given) if isinstance(given, tuple) else given


def _tokens(given: Any, number: int) -> "tuple[str, ...]":
    if isinstance(given, (str, list, tuple)) and all(isinstance(token, str) for token in given):
        return tuple(given)
    raise DataError(
        f"item {number}: expected a text, whose characters are its tokens, or a list of tokens, got "
        f"{repr(given)[:60]}. Hand it over so."
    )
