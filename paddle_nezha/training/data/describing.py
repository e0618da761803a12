"""What a labelled file was taken for, and what is in it: for people to look at before they train."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from statistics import median
from typing import Optional, Union

from paddle_nezha.training.data.columns import Columns, is_number, told_column
from paddle_nezha.training.data.labels import KnownLabels, in_order, split_labels
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.readers import Opened, Paths, checked, labels_of, open_records, texts_of
from paddle_nezha.training.data.records import ChoiceRecord, Record, SpanRecord, TextRecord, TokenRecord

EMPTY = "empty texts, kept"
DUPLICATE = "texts that an earlier line has too, with the same label"
CONTRADICTED = "texts that an earlier line has too, with another label"
LEARNT = "texts that train has too, with the same label"
LEARNT_OTHERWISE = "texts that train has too, with another label"
LONG = "examples longer than {:,} {}"
UNBEGUN = "tags that go on with an entity that none begins (IOB1 begins its entities so)"
UNANSWERED = "questions without an answer"
UNLABELLED = "questions that do not say which choice is right"
SAME_CHOICES = "questions with the same choice twice"
_INSIDE = "IMEL"  # prefixes of tags that follow another
_MOST_LABELS = 20
_MOST_ALIKE = 3
_EXACT = Context(prec=60, traps=[])  # where floats take codes of many digits for one number


@dataclass(frozen=True)
class Description:
    """
    Args:
        columns: role to the column's name in the header, its key, or its place from 0; empty for layouts without
            columns.
        header: whether line 1 of a table holds names.
        unused: names of the header, or keys, that nothing was taken from.
        labels: how often each is met, in the order of `label_names`; an example may have several. The tags of tokens;
            for choices "choice 1", "choice 2", ... are the right ones.
        lengths: characters, or tokens: median, 95th percentile and the greatest. A pair, or a question with its
            context and its choices, counts together.
        notes: what was odd, how often, and where first.
    """

    file: str
    layout: str
    task: str
    columns: "Mapping[str, Union[int, str]]"
    header: bool
    unused: "tuple[str, ...]"
    records: int
    labels: "Mapping[str, int]"
    lengths: "tuple[float, int, int]"
    notes: "tuple[str, ...]"

    def __str__(self) -> str:
        told = [f"{self._layout()}, read for the {self.task} task", *self._columns()]
        middle, most, longest = self.lengths
        length = f"median {middle:,.0f}, 95 % up to {most:,}, longest {longest:,}"
        told.append(f"{self.records:,} examples; {_unit(self.task)}: {length}")
        return "\n  ".join([*told, *self._labels(), *self.notes])

    def brief(self) -> str:
        """What it was taken for, in a line; the labels, in another; and a line for each note."""
        taken = "; ".join([self._layout(), *self._columns()])
        return "\n  ".join([taken, *self._labels(), *self.notes])

    def _layout(self) -> str:
        return f"{self.file}: layout {self.layout}{', names in line 1' if self.header else ''}"

    def _columns(self) -> "list[str]":
        used = ", ".join(f"{role} from {told_column(name)}" for role, name in self.columns.items())
        if any(isinstance(name, int) for name in self.columns.values()):
            used += " (counted from 0)"
        return [*([used] if used else ()), *([f"not used: {', '.join(self.unused)}"] if self.unused else ())]

    def _labels(self) -> "list[str]":
        if self.task == "span":
            return []
        counted = [f"{name} {count:,}" for name, count in list(self.labels.items())[:_MOST_LABELS]]
        if len(self.labels) > _MOST_LABELS:
            counted.append(f"and {len(self.labels) - _MOST_LABELS:,} more")
        return [f"labels: {', '.join(counted) or 'none'}"]


def describe(
    path: Paths,
    *,
    task: Optional[str] = None,
    layout: Optional[str] = None,
    columns: "Optional[Columns]" = None,
    labels: "Optional[Iterable[str]]" = None,
    separator: Optional[str] = None,
    longest: int = 512,
) -> Description:
    """Reads all of a file and tells what it was taken for.

    Args:
        task: None takes the one that fits.
        longest: characters, or tokens, beyond which an example is counted as long.
        path, layout, columns, labels, separator: as for `readers.read`.

    Raises:
        DataError: as `readers.read`.
    """
    known, notes = KnownLabels(labels, separator), Notes()
    survey = _Survey(open_records(path, task, layout, columns, known, notes), notes, separator, longest)
    for record in checked(survey.opened, known):
        survey.add(record)
    return survey.description()


def read_described(
    path: Paths,
    task: str,
    layout: Optional[str] = None,
    columns: "Optional[Columns]" = None,
    labels: "Optional[Iterable[str]]" = None,
    learnt: "Optional[Mapping[int, int]]" = None,
) -> "tuple[list[Record], Description]":
    """All records of a file, and what `describe` says of it; how long they are is left to their features.

    Args:
        learnt: `known_texts` of what a model learns from that this file judges: texts which are there too are noted.

    Raises:
        DataError: as `readers.read`.
    """
    known, notes = KnownLabels(labels, None), Notes()
    survey = _Survey(open_records(path, task, layout, columns, known, notes), notes, None, None, learnt)
    records = []
    for record in checked(survey.opened, known):
        survey.add(record)
        records.append(record)
    return records, survey.description()


class _Survey:
    """Counts what a description tells, a record at a time.

    Args:
        opened: the file; `notes` those of its reader.
        longest: characters, or tokens, beyond which an example is noted as long; None notes none.
        learnt: `known_texts` of the file to learn from, where this is another.
    """

    def __init__(
        self,
        opened: Opened,
        notes: Notes,
        separator: Optional[str],
        longest: Optional[int],
        learnt: "Optional[Mapping[int, int]]" = None,
    ) -> None:
        self.opened, self._notes, self._separator, self._longest = opened, notes, separator, longest
        self._learnt = learnt or {}
        self._seen: "dict[int, int]" = {}  # as `known_texts`
        self._found: "Counter[str]" = Counter()
        self._lengths: "list[int]" = []

    def add(self, record: Record) -> None:
        self._found.update(_counted(record, self._separator))
        length = _length(record)
        self._lengths.append(length)
        if self._longest is not None and length > self._longest:
            self._notes.add(LONG.format(self._longest, _unit(self.opened.task)), record.file, record.line)
        _note(record, self._notes)
        self._note_again(record)

    def _note_again(self, record: Record) -> None:
        """Notes texts that were met before."""
        key, label = texts_hash(record), _label_hash(record)
        for known, same, other in ((self._learnt, LEARNT, LEARNT_OTHERWISE), (self._seen, DUPLICATE, CONTRADICTED)):
            if key in known:
                self._notes.add(same if known[key] == label else other, record.file, record.line, _place(record))
        self._seen.setdefault(key, label)

    def description(self) -> Description:
        opened, table, lengths = self.opened, self.opened.table, sorted(self._lengths)
        names = in_order(self._found)
        return Description(
            file=opened.file,
            layout=opened.layout,
            task=opened.task,
            columns=table.named() if table else {},
            header=table is not None and table.header is not None and table.width is not None,
            unused=tuple(name for name in (table.header or ()) if name not in table.named().values()) if table else (),
            records=len(lengths),
            labels={name: self._found[name] for name in names},
            lengths=(median(lengths), lengths[(95 * len(lengths) - 1) // 100], lengths[-1]),
            notes=(*self._notes.sentences(), *_of_labels(opened.task, names)),
        )


def _counted(record: Record, separator: Optional[str]) -> "Iterable[str]":
    if isinstance(record, ChoiceRecord):
        return [] if record.label is None else [f"choice {record.label + 1}"]
    if isinstance(record, TextRecord) and record.label is not None:
        return split_labels(record.label, separator)
    return labels_of(record)


def _unit(task: str) -> str:
    return "tokens" if task == "token" else "characters"


def _length(record: Record) -> int:
    return len(record.tokens) if isinstance(record, TokenRecord) else sum(map(len, texts_of(record)))


def _place(record: Record) -> str:
    """The id of a question, where the file gives one."""
    return record.id if isinstance(record, (SpanRecord, ChoiceRecord)) and record.id != str(record.line) else ""


def texts_hash(record: Record) -> int:
    """Of all texts of a record, in this process."""
    return hash(tuple(texts_of(record)))


def known_texts(records: "Iterable[Record]") -> "dict[int, int]":
    """The `texts_hash` of each record to the hash of its label, as first met."""
    known: "dict[int, int]" = {}
    for record in records:
        known.setdefault(texts_hash(record), _label_hash(record))
    return known


def _label_hash(record: Record) -> int:
    if isinstance(record, SpanRecord):
        return hash(record.answers)
    return hash(record.label if isinstance(record, ChoiceRecord) else tuple(labels_of(record)))


def _note(record: Record, notes: Notes) -> None:
    """Notes what is odd about a record by itself."""
    file, line, at = record.file, record.line, _place(record)
    if not isinstance(record, TokenRecord) and not all(text.strip() for text in texts_of(record)):
        notes.add(EMPTY, file, line, at)
    if isinstance(record, SpanRecord) and not record.answers:
        notes.add(UNANSWERED, file, line, at)
    elif isinstance(record, ChoiceRecord):
        if record.label is None:
            notes.add(UNLABELLED, file, line, at)
        if len(set(record.choices)) < len(record.choices):
            notes.add(SAME_CHOICES, file, line, at)
    elif isinstance(record, TokenRecord):
        for _ in range(_unbegun(record.labels or ())):
            notes.add(UNBEGUN, file, line)


def _unbegun(tags: "tuple[str, ...]") -> int:
    """Tags of a later part of an entity that do not follow one of the same entity."""
    count, before = 0, "O"
    for tag in tags:
        if tag[0] in _INSIDE and tag[1:2] in "-_" and (before[0] not in "BIM" or before[2:] != tag[2:]):
            count += 1
        before = tag
    return count


def _of_labels(task: str, names: "list[str]") -> "list[str]":
    told = []
    if task in ("sentence", "pair", "token") and len(names) == 1:
        told.append(f"one class only, {names[0]!r}: nothing can be learnt from it")
    if task in ("sentence", "pair"):
        told.extend(_of_numbers(names))
    return told


def _of_numbers(names: "list[str]") -> "Iterator[str]":
    if names and all(map(is_number, names)) and not all(float(name).is_integer() for name in names):
        yield "labels are numbers, not all of them whole: each is a class of its own, and regression is no task here"
    spellings: "dict[Decimal, list[str]]" = {}
    for name in filter(is_number, names):
        spellings.setdefault(_EXACT.create_decimal(name), []).append(name)
    alike = [" and ".join(map(repr, several)) for several in spellings.values() if len(several) > 1]
    if alike:
        more = ", ..." if len(alike) > _MOST_ALIKE else ""
        yield (
            f"labels that are the same number, yet classes of their own: {', '.join(alike[:_MOST_ALIKE])}{more}; spell "
            "them alike"
        )
