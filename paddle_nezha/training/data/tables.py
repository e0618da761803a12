"""TSV, CSV and JSONL, row by row, and the texts with labels that they hold.

A TSV file is split at tabs and nothing else: quotes are characters, as in ChnSentiCorp and LCQMC. One that a program
has quoted is the layout "tsv-quoted". A CSV file is quoted. Blank lines are passed over, except where a line is all
that a text has ("tsv" of one column).
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

from paddle_nezha.training.data.columns import Table, is_quoted, told_column
from paddle_nezha.training.data.labels import KnownLabels
from paddle_nezha.training.data.lines import TextFile, shortened
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.records import DataError, TextRecord

Row = tuple[int, Mapping[str, Any]]

BLANK = "blank lines, passed over"
QUOTED = "cells in quotes, kept as they are (--layout tsv-quoted, in Python layout=, takes the quotes off)"
NO_MAJORITY = 'pairs labelled "-" (no majority), dropped'
RENAMED = '"contradictory" read as "contradiction"'


def split_cells(lines: "Iterable[tuple[int, str]]", layout: str, file: str) -> "Iterator[tuple[int, list[str]]]":
    """The cells of each row of a TSV or CSV file, and the line on which it begins; a blank line is one cell.

    Raises:
        DataError: quotes that do not add up.
    """
    if layout == "tsv":
        for number, line in lines:
            yield number, line.split("\t")
        return
    last = 0

    def fed() -> "Iterator[str]":
        nonlocal last
        for number, line in lines:
            last = number
            yield line + "\n"

    reader = csv.reader(fed(), delimiter="," if layout == "csv" else "\t", strict=True)
    begins = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{file}:{begins}: the quotes of the row that begins here do not add up (line {last}: {error}). Double "
                "a quote inside a quoted cell, or, if quotes are characters like any other, use a TSV file and "
                "--layout tsv (layout= in Python)."
            ) from None
        if cells is None:
            return
        yield begins, cells or [""]
        begins = last + 1


def is_filled(cells: "Sequence[str]") -> bool:
    """Whether a row is more than a blank line."""
    return any(cell.strip() for cell in cells)


def rows_of_cells(file: TextFile, layout: str, table: Table, notes: Notes) -> "Iterator[Row]":
    """Rows as {role: cell}.

    Raises:
        DataError: a row with more or fewer columns.
    """
    rows = split_cells(file.lines(), layout, file.name)
    is_header = table.header is not None
    for line, cells in rows:
        if len(cells) == 1 and not is_filled(cells) and (is_header or table.width != 1):
            notes.add(BLANK, file.name, line)
            continue
        if is_header:
            is_header = False
            continue
        if len(cells) != table.width:
            raise _wrong_width(f"{file.name}:{line}", cells, layout, table)
        if layout == "tsv" and any(map(is_quoted, cells)):
            _refuse_quoted_label(cells, table, f"{file.name}:{line}")
            notes.add(QUOTED, file.name, line)
        yield line, {role: cells[place] for role, place in table.places.items()}  # type: ignore[index]


def _refuse_quoted_label(cells: "Sequence[str]", table: Table, where: str) -> None:
    """Quotes may belong to a text, but to no label."""
    label = table.places.get("label")
    if label is not None and is_quoted(cells[int(label)]):
        raise DataError(
            f"{where}: expected a label, got one in quotes: {cells[int(label)]}. Say --layout tsv-quoted (layout= in "
            "Python), which takes the quotes off."
        )


def _wrong_width(where: str, cells: "Sequence[str]", layout: str, table: Table) -> DataError:
    separator, name = (",", "comma") if layout == "csv" else ("\t", "tab")
    if len(cells) < (table.width or 0):
        remedy = f"Is a {name} missing, or was a text broken over two lines? Mend or remove the line."
    elif layout == "tsv":
        remedy = "A tab inside a text? Put a blank in its place."
    else:
        remedy = f'A {name} inside a text? Put the text in "quotes".'
    names = f" ({', '.join(table.header)})" if table.header else ""
    return DataError(
        f"{where}: expected {table.width} columns{names}, got {len(cells)}: {shortened(separator.join(cells))}. "
        f"{remedy}"
    )


def rows_of_objects(objects: "Iterable[tuple[int, dict[str, Any]]]", table: Table) -> "Iterator[Row]":
    """Rows as {role: value}; a key that is missing gives None."""
    for line, found in objects:
        yield line, {role: found.get(str(key)) for role, key in table.places.items()}


def objects_of_lines(
    lines: "Iterable[tuple[int, str]]", file: str, notes: Notes
) -> "Iterator[tuple[int, dict[str, Any]]]":
    """The objects of a JSONL file.

    Raises:
        DataError: a line that is no JSON object.
    """
    for number, line in lines:
        if not line.strip():
            notes.add(BLANK, file, number)
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{file}:{number}: expected a JSON object, got no JSON ({error}): {shortened(line)}. Mend "
                "or remove the line."
            ) from None
        if not isinstance(found, dict):
            raise DataError(f"{file}:{number}: expected a JSON object, got {shortened(line)}. Mend or remove the line.")
        yield number, found


def text_of(value: Any, role: str, where: str) -> str:
    """A text, or a number as a text; 1.0, as programs write a whole number beside an empty cell, is 1.

    Raises:
        DataError: anything else, and nothing, such as NaN.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value) if value.is_integer() else value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    got = "nothing" if value is None else shortened(json.dumps(value, ensure_ascii=False))
    raise DataError(f"{where}: expected a text under {role!r}, got {got}. Mend or remove the line.")


def is_texts(value: Any) -> bool:
    """Whether it is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def text_records(
    rows: "Iterable[Row]", table: Table, file: str, known: KnownLabels, notes: Notes
) -> "Iterator[TextRecord]":
    """
    Args:
        known: where "-" and "contradictory" are among them, they are labels like any other.

    Raises:
        DataError: a row without a text, or without a label where others have one.
    """
    names = {
        role: told_column(name) + ("" if isinstance(name, str) else " (counted from 0)")
        for role, name in table.named().items()
    }
    for line, row in rows:
        where = f"{file}:{line}"
        text = text_of(row["text"], names["text"], where)
        pair = text_of(row["pair"], names["pair"], where) if table.task == "pair" else None
        given: Optional[str] = None
        if "label" in row:
            given = _label_text(row["label"], names["label"], where)
            if table.task == "pair" and given == "-" and given not in known:
                notes.add(NO_MAJORITY, file, line)
                continue
            if table.task == "pair" and given == "contradictory" and given not in known:
                notes.add(RENAMED, file, line)
                given = "contradiction"
        yield TextRecord(text, pair, given, file, line)


def _label_text(value: Any, column: str, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        raise DataError(
            f"{where}: expected one label under {column!r}, got a list. Give each example one label. (In Python "
            "several, joined by a character that none of them holds, can be read with separator=.)"
        )
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        got = "nothing" if value is None else json.dumps(value)
        raise DataError(
            f"{where}: expected a label under {column!r}, as other lines have, got {got}. Add it, or remove the line."
        )
    label = text_of(value, column, where).strip()
    if not label:
        raise DataError(f"{where}: expected a label in {column!r}, got an empty one. Add it, or remove the line.")
    return label
