"""Which column or key of a table holds what: by names that corpora use, by the user's word, or by content."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from paddle_nezha.training.data.lines import shortened
from paddle_nezha.training.data.records import DataError

Columns = Mapping[str, Union[str, int]]

_TEXT = ("text_a", "sentence1", "premise", "question1", "text1", "query1", "text", "sentence", "content", "review")
_PAIR = ("text_b", "sentence2", "hypothesis", "hypo", "question2", "text2", "query2", "text_pair")
_LABEL = ("gold_label", "label", "labels", "class", "category", "score", "similarity")
# What a record of each task is made of, and the names by which corpora call it, the most telling first.
ROLES = {
    "sentence": {"text": (*_TEXT, "文本", "内容", "评论", "句子"), "label": (*_LABEL, "标签", "类别")},
    "pair": {"text": _TEXT, "pair": _PAIR, "label": (*_LABEL, "标签", "类别")},
    "token": {"tokens": ("tokens", "words", "chars"), "labels": ("labels", "tags", "ner_tags", "label")},
    "span": {"id": ("id", "qid"), "question": ("question",), "context": ("context",), "answers": ("answers",)},
    "choice": {
        "id": ("id", "qid"),
        "context": ("context", "article", "passage"),
        "question": ("question",),
        "choices": ("choices", "choice", "options"),
        "label": ("label", "answer"),
    },
}
_OPTIONAL = ("id", "label", "labels", "answers")
# Tasks from the one that asks for most: what fits it is not meant for a later one.
_BY_DEMAND = ("choice", "span", "token", "pair", "sentence")

_SHORT = 20  # characters of a cell that could be a column's name
_ROWS_THAT_TELL = 20
_FEW_LABELS = 10


@dataclass(frozen=True)
class Table:
    """Where the roles of a task stand in a table.

    Args:
        places: role to the place of its column, or to its key in a JSON object.
        header: the names of line 1, or the keys; None where line 1 is an example.
        width: columns of every line; None for JSON.
    """

    task: str
    places: "Mapping[str, Union[int, str]]"
    header: "Optional[tuple[str, ...]]"
    width: Optional[int]

    def named(self) -> "dict[str, Union[int, str]]":
        """Role to the column's name or key, or to its place from 0 where columns have no names: as `columns` does."""
        return {role: self._name(place) for role, place in self.places.items()}

    def _name(self, place: "Union[int, str]") -> "Union[int, str]":
        return place if isinstance(place, str) or self.header is None else self.header[place]


def known_names(names: "Sequence[str]", task: str) -> "dict[str, int]":
    """Role to the place of the column whose name is known for it."""
    plain = [name.strip().casefold() for name in names]
    return {
        role: plain.index(next(name for name in known if name in plain))
        for role, known in ROLES[task].items()
        if any(name in plain for name in known)
    }


def _lacking(found: "Mapping[str, object]", task: str) -> "list[str]":
    return [role for role in ROLES[task] if role not in found and role not in _OPTIONAL]


def task_of_names(names: "Sequence[str]") -> Optional[str]:
    """The task for whose records everything is named; None where nothing is."""
    return next((task for task in _BY_DEMAND if not _lacking(known_names(names, task), task)), None)


def check_columns(columns: "Optional[Columns]", task: str, where: str) -> None:
    """
    Raises:
        DataError: a role that the task does not have, or one missing that it needs; neither a name nor a place.
    """
    if columns is None:
        return
    for role, column in columns.items():
        if isinstance(column, bool) or not isinstance(column, (int, str)):
            raise DataError(
                f"{where}: columns takes {role} from {column!r}: give a name, or a place counted from 0. Correct it."
            )
    unknown = [role for role in columns if role not in ROLES[task]]
    if unknown:
        raise DataError(
            f"{where}: columns names {unknown[0]!r}; a {task} task has {', '.join(ROLES[task])}. Correct it."
        )
    lacking = _lacking(columns, task)
    if lacking:
        raise DataError(f"{where}: columns says nothing of {', '.join(lacking)}. Say which column holds it.")


def table_of_keys(keys: "Sequence[str]", task: Optional[str], columns: "Optional[Columns]", where: str) -> Table:
    """The table that JSON objects with these keys make.

    Raises:
        DataError: a role has no key, or the objects hold a second text that would be lost.
    """
    task = task or task_of_names(keys) or "sentence"
    check_columns(columns, task, where)
    if columns is not None:
        for role, key in columns.items():
            if key not in keys:
                raise DataError(
                    f"{where}: columns takes {role} from {key!r}, but the keys are {_list(keys)}. Correct it."
                )
        return Table(task, {role: str(key) for role, key in columns.items()}, tuple(keys), None)
    places = known_names(keys, task)
    _refuse_what_does_not_fit(places, keys, task, where)
    return Table(task, {role: keys[place] for role, place in places.items()}, tuple(keys), None)


def table_of_cells(
    rows: "Sequence[tuple[int, Sequence[str]]]", task: Optional[str], columns: "Optional[Columns]", file: str
) -> Table:
    """The table that the first lines of a TSV or CSV file make.

    Args:
        rows: line numbers and cells, at least one.

    Raises:
        DataError: the columns cannot be told, or are not what `columns` says.
    """
    line, first = rows[0]
    where = f"{file}:{line}"
    if columns is not None:
        task = task or ("pair" if "pair" in columns else "sentence")
        check_columns(columns, task, where)
        return _said(first, rows, task, columns, where)
    if known_names(first, "pair") or known_names(first, "sentence"):
        task = task or task_of_names(first) or "sentence"
        places = _completed(known_names(first, task), first, task)
        _refuse_what_does_not_fit(places, first, task, where)
        return Table(task, places, tuple(first), len(first))
    if len(first) > 1 and all(map(is_quoted, first)):
        raise DataError(
            f"{where}: {_list(first)} are in quotes, as a spreadsheet writes them. Say --layout tsv-quoted (layout= in "
            "Python), which takes the quotes off; or, if they belong to the texts, say which is which: "
            f"{_advice(task or 'sentence', places=True)}."
        )
    width = _usual_width(rows)
    cells = [cells for _, cells in rows if len(cells) == width]
    label = _label_place(cells)
    task = task or ("pair" if width - (label is not None) == 2 else "sentence")
    texts = [place for place in range(width) if place != label]
    wanted = ["text", "pair"] if task == "pair" else ["text"]
    if len(texts) != len(wanted):
        raise DataError(
            f"{where}: expected {' and '.join(wanted)}, with or without a label, but cannot tell them among {width} "
            f"columns without a known header: {_list(first)}. Say which: {_advice(task, places=True)}."
        )
    if label is not None:
        _refuse_header(cells, label, task, where)
    places = dict(zip(wanted, texts))
    return Table(task, places if label is None else {**places, "label": label}, None, width)


def _said(
    first: "Sequence[str]", rows: "Sequence[tuple[int, Sequence[str]]]", task: str, columns: "Columns", where: str
) -> Table:
    """By the user's word: a name asks for a header in line 1, a place is counted from 0, or from behind if negative."""
    names = [name.strip() for name in first]
    has_header = any(isinstance(column, str) for column in columns.values()) or bool(known_names(first, task))
    width = len(first) if has_header else _usual_width(rows)
    places: "dict[str, Union[int, str]]" = {}
    for role, column in columns.items():
        if isinstance(column, str):
            if column not in names:
                raise DataError(
                    f"{where}: columns takes {role} from {column!r}, but line 1 has {_list(first)}. Correct the name, "
                    "or give the column's place, counted from 0, if there is no header."
                )
            places[role] = names.index(column)
        elif -width <= column < width:
            places[role] = column % width
        else:
            raise DataError(
                f"{where}: columns takes {role} from column {column}, but the file has {places_of(width)}. Correct it."
            )
    return Table(task, places, tuple(names) if has_header else None, width)


def _completed(places: "dict[str, int]", header: "Sequence[str]", task: str) -> "dict[str, int]":
    """Where one name is known and one column is left, that is the one that is missing."""
    lacking, left = _lacking(places, task), [place for place in range(len(header)) if place not in places.values()]
    return {**places, lacking[0]: left[0]} if len(lacking) == len(left) == 1 else places


def _refuse_what_does_not_fit(places: "Mapping[str, int]", names: "Sequence[str]", task: str, where: str) -> None:
    lacking = _lacking(places, task)
    if lacking:
        raise DataError(
            f"{where}: expected {' and '.join(lacking)} for the {task} task, got the names {_list(names)}. Say which "
            f"one it is: {_advice(task)}, or name the task that the file is for."
        )
    if task == "sentence" and "pair" in known_names(names, "pair"):
        raise DataError(
            f"{where}: expected one text for the sentence task, got two in {_list(names)}. Use the pair task, or say "
            f"which text to take: {_advice(task)}."
        )


def _usual_width(rows: "Sequence[tuple[int, Sequence[str]]]") -> int:
    widths = [len(cells) for _, cells in rows]
    return max(sorted(set(widths)), key=widths.count)


def _label_place(rows: "Sequence[Sequence[str]]") -> Optional[int]:
    """The column that holds labels: numbers alone, or by far the shortest cells, or few different ones. None: none."""
    width = len(rows[0])
    if width == 1:
        return None
    # Line 1 may be a header whose names are unknown; of more rows it says nothing.
    body = rows[1:] or rows
    numbers = [place for place in range(width) if all(is_number(row[place]) for row in body)]
    if numbers:
        return numbers[0] if len(numbers) == 1 else None
    lengths = [sum(len(row[place]) for row in body) / len(body) for place in range(width)]
    shortest = lengths.index(min(lengths))
    other = min(length for place, length in enumerate(lengths) if place != shortest)
    few = len(body) >= _ROWS_THAT_TELL and len({row[shortest] for row in body}) <= len(body) / 4
    return shortest if few or lengths[shortest] < other / 2 else None


def _refuse_header(rows: "Sequence[Sequence[str]]", label: int, task: str, where: str) -> None:
    """A first line that is no example would be trained on, as a class of its own."""
    first, others = rows[0], {row[label].strip() for row in rows[1:]}
    unlike = others and not is_number(first[label]) and all(is_number(other) for other in others)
    unseen = len(rows) > _ROWS_THAT_TELL and len(others) <= _FEW_LABELS and first[label].strip() not in others
    if (unlike or unseen) and all(len(cell) <= _SHORT for cell in first):
        named = {"text": first[0 if label else 1], "label": first[label]}
        raise DataError(
            f"{where}: {_list(first)} looks like a header whose names are not known: no other line has the label "
            f"{first[label]!r}. Name the columns, as in {_flag(named)}; or, if it is an example, say where they stand: "
            f"{_advice(task, places=True)}."
        )


def told_column(name: "Union[int, str]") -> str:
    """A column's name, or "column 2" for its place."""
    return name if isinstance(name, str) else f"column {name}"


def places_of(width: int) -> str:
    """The places that so many columns have, for a message."""
    return f"columns 0 to {width - 1}" if width > 1 else "column 0 alone"


def is_quoted(cell: str) -> bool:
    """Whether a cell of a TSV file is what a spreadsheet makes of a text."""
    return len(cell) > 1 and cell[0] == cell[-1] == '"'


def is_number(text: str) -> bool:
    """Whether a label reads as a finite number."""
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return False


def _advice(task: str, places: bool = False) -> str:
    roles = [role for role in ROLES[task] if role != "id"]
    shown = ", ".join(f"{role}: {place if places else 'NAME'}" for place, role in enumerate(roles))
    return f"--columns '{{{shown}}}' ({'counted from 0; ' if places else ''}columns= in Python)"


def _flag(names: "Mapping[str, str]") -> str:
    """Columns by names that may hold anything."""
    shown = ", ".join(f"{role}: {json.dumps(name, ensure_ascii=False)}" for role, name in names.items())
    return f"--columns '{{{shown}}}' (columns= in Python)"


def _list(names: "Sequence[str]") -> str:
    return ", ".join(shortened(name, 24) for name in names[:12]) + (", ..." if len(names) > 12 else "")
