"""Sentences of tagged characters or words: CoNLL columns, People's Daily in two files, rows of two lists, and CLUENER's
entities by their places.

Tags stay as they are in the file, whatever their scheme; entities become BIO. Columns and tokens are separated by tabs
or by blanks (U+0020) alone, because other white space may be a token itself.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from operator import index
from pathlib import Path
from sys import intern
from typing import Any, Optional, Union

from paddle_nezha._files import PathLike, listing
from paddle_nezha.training.data.columns import Columns, Table, check_columns, places_of
from paddle_nezha.training.data.lines import TextFile, shortened
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.records import DataError, TokenRecord
from paddle_nezha.training.data.tables import Row, is_texts, text_of

_DOCUMENT = "-DOCSTART-"
_TAG = re.compile(r"O|[BIESMLUW][-_]\S+")
EMPTY_SENTENCES = "sentences without a character, passed over"
OVERLAPPING = "entities that share characters with a longer or an earlier one, left out"


def looks_like_conll(lines: "Sequence[str]", share: float) -> bool:
    """Whether the last of several columns is a tag, on more than `share` of the lines that are not blank."""
    filled = [line for line in lines if _has_token(line)]
    tagged = [line for line in filled if len(cells := _cells(line)) > 1 and _TAG.fullmatch(cells[-1])]
    return len(tagged) > share * len(filled)


def _cells(line: str) -> "list[str]":
    """A line's columns. A token that is itself white space, or was stripped to nothing, is one blank."""
    plain = line.split(" ")
    if "\t" not in line and "" not in plain:
        return plain
    if "\t" in line:
        cells = line.split("\t")
        return [cells[0] or " ", *cells[1:]]
    filled = line.rstrip(" ")
    first, *others = filled.lstrip(" ").split(" ")
    rest = [cell for cell in others if cell]
    return [" ", first, *rest] if filled.startswith(" ") else [first, *rest]


def conll_table(file: TextFile, columns: "Optional[Columns]", sample: "Sequence[tuple[int, str]]") -> Table:
    """Tokens in the first column and tags in the last, or what `columns` says; one column alone has no tags.

    Args:
        columns: places of "tokens" and "labels"; without "labels" there are none.

    Raises:
        DataError: columns that are not there; a file of blank lines.
    """
    widths = [len(_cells(line)) for _, line in sample if _has_token(line)]
    if not widths:
        raise DataError(f"{file.name}:1: expected a token and its tag on each line, got none. Fetch the file again.")
    width = max(sorted(set(widths)), key=widths.count)
    return Table("token", _places(columns, width, file.name), None, width)


def _has_token(line: str) -> bool:
    return bool(line.strip(" \t")) and not line.startswith(_DOCUMENT)


def read_conll(file: TextFile, table: Table) -> "Iterator[TokenRecord]":
    """A token a line with its tag, blank lines between sentences, `-DOCSTART-` lines passed over.

    Raises:
        DataError: a line with more or fewer columns; one without a tag.
    """
    token, tag = int(table.places["tokens"]), table.places.get("labels")
    tokens: "list[str]" = []
    tags: "list[str]" = []
    begins = 0

    def sentence() -> TokenRecord:
        return TokenRecord(tuple(tokens), None if tag is None else tuple(tags), file.name, begins)

    for number, line in file.lines():
        if not _has_token(line):
            if tokens:
                yield sentence()
            tokens, tags = [], []
            continue
        cells = _cells(line)
        if len(cells) != table.width:
            raise DataError(
                f"{file.name}:{number}: expected {table.width} columns, with a token and its tag, got {len(cells)}: "
                f"{shortened(line)}. Mend the line; between sentences belongs a blank one."
            )
        begins = begins if tokens else number
        tokens.append(intern(cells[token]))
        if tag is not None:
            name = cells[int(tag)].strip()
            if not name:
                raise DataError(f"{file.name}:{number}: expected a tag, got none: {shortened(line)}. Add it.")
            tags.append(intern(name))
    if tokens:
        yield sentence()


def _places(columns: "Optional[Columns]", width: int, file: str) -> "dict[str, int]":
    if columns is None:
        return {"tokens": 0, "labels": width - 1} if width > 1 else {"tokens": 0}
    check_columns(columns, "token", f"{file}:1")
    for role, place in columns.items():
        if isinstance(place, str) or not -width <= place < width:
            raise DataError(
                f"{file}:1: columns takes {role} from {f'column {place}' if isinstance(place, int) else repr(place)}, "
                f"but CoNLL columns have no names, and the file has {places_of(width)}. Give places, as in --columns "
                "'{tokens: 0, labels: -1}' (counted from 0, negative from behind; columns= in Python)."
            )
    return {role: int(place) % width for role, place in columns.items()}


def two_files(path: "Union[PathLike, Sequence[PathLike]]") -> "tuple[TextFile, TextFile]":
    """The files of characters and of tags: a pair of paths, or a folder with one file named source... and one target...

    Raises:
        DataError: not one of each.
    """
    if not isinstance(path, (str, os.PathLike)):
        if len(path) != 2:
            raise DataError(f"{path}: expected two paths, characters and tags, got {len(path)}. Give two.")
        return TextFile(path[0]), TextFile(path[1])
    folder = Path(path)
    found = [
        sorted(entry for entry in folder.iterdir() if entry.name.startswith(kind)) for kind in ("source", "target")
    ]
    if [len(files) for files in found] != [1, 1]:
        raise DataError(
            f"{folder}: expected one file named source... with characters and one named target... with their tags; the "
            f"folder holds {listing(folder)}. Give the two paths, characters first."
        )
    return TextFile(found[0][0]), TextFile(found[1][0])


def read_two_files(source: TextFile, target: TextFile, notes: Notes) -> "Iterator[TokenRecord]":
    """A sentence a line, its characters in one file and their tags in the other, separated by blanks.

    Raises:
        DataError: unequal numbers of lines, or of characters and tags in a line; the files swapped.
    """
    for characters, tags in zip_longest(source.lines(), target.lines()):
        if characters is None or tags is None:
            longer, shorter, number = (
                (target, source, tags[0]) if characters is None else (source, target, characters[0])
            )
            raise DataError(
                f"{longer.name}:{number}: expected as many lines as in {shorter.name}, which has {number - 1}. Find "
                "the line that is missing, or give two files that belong together."
            )
        number = characters[0]
        tokens, labels = _split(characters[1]), _split(tags[1])
        if number == 1 and tokens and all(map(_TAG.fullmatch, tokens)) and not all(map(_TAG.fullmatch, labels)):
            raise DataError(
                f"{source.name}:1: expected characters, got tags: {shortened(characters[1])}. Give the two paths the "
                "other way round, characters first."
            )
        if len(tokens) != len(labels):
            raise DataError(
                f"{source.name}:{number}: {len(tokens)} characters, but {len(labels)} tags in {target.name}:{number}: "
                f"{shortened(characters[1])}. Mend or remove the two lines."
            )
        if not tokens:
            notes.add(EMPTY_SENTENCES, source.name, number)
            continue
        yield TokenRecord(tuple(map(intern, tokens)), tuple(map(intern, labels)), source.name, number)


def _split(line: str) -> "list[str]":
    return [part for part in line.replace("\t", " ").split(" ") if part]


def token_records(rows: "Iterable[Row]", file: str, notes: Notes) -> "Iterator[TokenRecord]":
    """From rows with a list of tokens, or a text whose characters they are, and a list of tags.

    Raises:
        DataError: something else, or unequal numbers of them.
    """
    for line, row in rows:
        tokens, labels = row["tokens"], row.get("labels")
        where = f"{file}:{line}"
        if not isinstance(tokens, str) and not is_texts(tokens):
            raise DataError(f"{where}: expected a list of tokens, or a text, got {_shown(tokens)}. Mend the line.")
        if "labels" in row and not is_texts(labels):
            by_places = " Entities by their places are the layout 'cluener', whose columns are text and label."
            raise DataError(
                f"{where}: expected a list of tags by name, got {_shown(labels)}. Write tags as texts."
                f"{by_places if isinstance(labels, dict) else ''}"
            )
        if labels is not None and not all(label.strip() for label in labels):
            raise DataError(f"{where}: expected a tag for each token, got an empty one. Add it.")
        if labels is not None and len(tokens) != len(labels):
            raise DataError(f"{where}: {len(tokens)} tokens, but {len(labels)} tags. Mend or remove the line.")
        if not tokens:
            notes.add(EMPTY_SENTENCES, file, line)
            continue
        yield TokenRecord(tuple(tokens), None if labels is None else tuple(labels), file, line)


def entity_records(rows: "Iterable[Row]", table: Table, file: str, notes: Notes) -> "Iterator[TokenRecord]":
    """From rows with a text, whose characters are the tokens, and its entities by their places, as in CLUENER 2020:
    {type: {text: [[first, last], ...]}}, where the last character belongs to the entity. Tags are BIO.

    A character has one tag: of entities that share one the longest stays, of equal ones the first, and the others are
    noted.

    Raises:
        DataError: something else, or places that do not hold what they name.
    """
    for line, row in rows:
        where = f"{file}:{line}"
        text = text_of(row["text"], str(table.places["text"]), where)
        labels, left_out = None, 0
        if "label" in row:
            labels, left_out = _tags_of_entities(text, row["label"], where)
        for _ in range(left_out):
            notes.add(OVERLAPPING, file, line)
        if not text:
            notes.add(EMPTY_SENTENCES, file, line)
            continue
        yield TokenRecord(tuple(text), labels, file, line)


def _tags_of_entities(text: str, given: Any, where: str) -> "tuple[tuple[str, ...], int]":
    """The tags, and how many entities were left out."""
    tags, left_out = ["O"] * len(text), 0
    for kind, name, first, last in sorted(_entities(given, where), key=lambda one: one[2] - one[3]):
        at = f"{where}: the entity {shortened(name, 30)} ({kind}) at [{first}, {last}]"
        if not 0 <= first <= last < len(text):
            raise DataError(
                f"{at} is empty or not within the text, which has {len(text)} characters. Places count from 0, and the "
                "last one belongs to the entity. Correct or remove it."
            )
        if text[first : last + 1] != name:
            raise DataError(
                f"{at} is not there: the text has {shortened(text[first : last + 1], 30)}. Places count from 0, and "
                "the last one belongs to the entity. Correct or remove it."
            )
        if any(tag != "O" for tag in tags[first : last + 1]):
            left_out += 1
            continue
        tags[first : last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
    return tuple(map(intern, tags)), left_out


def _entities(given: Any, where: str) -> "list[tuple[str, str, int, int]]":
    """Type, text, and first and last place of each."""
    try:
        return [
            (kind, name, index(first), index(last))
            for kind, texts in given.items()
            for name, places in texts.items()
            for first, last in places
        ]
    except (AttributeError, TypeError, ValueError):
        raise DataError(
            f"{where}: expected entities by type, text and places, as in "
            f'{{"name": {{"李明": [[0, 1]]}}}}, or {{}} where there are none, got {_shown(given)}. Mend or remove the '
            "line."
        ) from None


def _shown(value: Any) -> str:
    return "nothing" if value is None else shortened(str(value), 30)
