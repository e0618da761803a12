"""Labelled files to records: the layout is told from the content, or said by the user.

    layout        tasks            what it is
    tsv           sentence, pair   split at tabs, quotes are characters: ChnSentiCorp, LCQMC, XNLI
    tsv-quoted    sentence, pair   tabs, with the quotes of a spreadsheet
    csv           sentence, pair   commas and quotes
    jsonl         all              an object a line: OCNLI, TNEWS, IFLYTEK, AFQMC
    json          all              a list of such objects
    conll         token            a token and its tag a line, blank lines between sentences
    cluener       token            an object a line: a text, and its entities by their places, or none: CLUENER 2020
    two-file      token            characters in one file, tags in another: a pair of paths, or their folder
    squad         span             SQuAD 1.1 and 2.0, CMRC 2018, DRCD
    cmrc          span             CMRC 2018's older list of paragraphs
    c3            choice           C3

Files may be gzipped. Tables are read line by line, JSON documents as a whole. Labels stay texts, numbers too: for
regression use float(label). A pair labelled "-" is dropped, as OCNLI asks for, and XNLI's "contradictory" becomes
"contradiction", each unless it is among the known labels. Empty texts and duplicates are kept.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional, Union

from paddle_nezha._files import PathLike
from paddle_nezha.training.data.choices import choice_records, read_c3
from paddle_nezha.training.data.columns import (
    ROLES,
    Columns,
    Table,
    known_names,
    table_of_cells,
    table_of_keys,
)
from paddle_nezha.training.data.documents import Document
from paddle_nezha.training.data.labels import KnownLabels, label_names
from paddle_nezha.training.data.lines import TextFile, shortened
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.questions import read_cmrc, read_squad, span_records
from paddle_nezha.training.data.records import (
    DataError,
    Record,
    SpanRecord,
    TextRecord,
    TokenRecord,
)
from paddle_nezha.training.data.tables import (
    Row,
    is_filled,
    objects_of_lines,
    rows_of_cells,
    rows_of_objects,
    split_cells,
    text_records,
)
from paddle_nezha.training.data.tagged import (
    conll_table,
    entity_records,
    looks_like_conll,
    read_conll,
    read_two_files,
    token_records,
    two_files,
)

__all__ = ["LAYOUTS", "label_names", "read"]

TASKS = tuple(ROLES)
LAYOUTS = {
    "tsv": ("sentence", "pair"),
    "tsv-quoted": ("sentence", "pair"),
    "csv": ("sentence", "pair"),
    "jsonl": TASKS,
    "json": TASKS,
    "conll": ("token",),
    "cluener": ("token",),
    "two-file": ("token",),
    "squad": ("span",),
    "cmrc": ("span",),
    "c3": ("choice",),
}
Paths = Union[PathLike, Sequence[PathLike], TextFile]

_JSON = re.compile(r'\s*(\{\s*["}]|\[\s*[\[{])')
_HAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")  # and kana
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Opened:
    """A file whose layout is known.

    Args:
        file: what messages call it.
        table: of the layouts that have columns.
        records: reads it once.
    """

    file: str
    layout: str
    task: str
    table: Optional[Table]
    records: "Iterator[Record]"


def read(
    task: str,
    path: Paths,
    *,
    layout: Optional[str] = None,
    columns: "Optional[Columns]" = None,
    labels: "Optional[Iterable[str]]" = None,
    separator: Optional[str] = None,
    notes: Optional[Notes] = None,
) -> "Iterator[Record]":
    """The examples of a file, in its order.

    Args:
        task: "sentence", "pair", "token", "span" or "choice".
        path: a file, open as a `TextFile` or not; for the layout "two-file" two of them, or their folder.
        layout: one of LAYOUTS; None tells it from the content.
        columns: role to a column's name or its place from 0 (negative from behind). Roles are text, pair, label;
            tokens, labels (of the layout "cluener" text, label); question, context, answers, id; and choices. Names
            ask for a header. None tells them.
        labels: those a model knows; any other is refused.
        separator: what stands between several labels of an example; None for one label each.
        notes: counts what was odd.

    Returns:
        TextRecord of sentence and pair, TokenRecord, SpanRecord, ChoiceRecord. A table is checked as it is read.

    Raises:
        DataError: the file is not what the task needs; file, line and remedy are named.
    """
    if task not in TASKS:
        raise ValueError(f"task is one of {', '.join(TASKS)}, got {task!r}")
    known = KnownLabels(labels, separator)
    notes = Notes() if notes is None else notes
    return checked(open_records(path, task, layout, columns, known, notes), known)


def open_records(
    path: Paths,
    task: Optional[str],
    layout: Optional[str],
    columns: "Optional[Columns]",
    known: KnownLabels,
    notes: Notes,
) -> Opened:
    """Tells what `read` is not told; a task of None too."""
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout is one of {', '.join(LAYOUTS)}, got {layout!r}")
    if isinstance(path, TextFile):
        if layout == "two-file":
            raise DataError(f"{path.name}: the layout 'two-file' needs two files. Give their folder.")
    elif (
        layout == "two-file"
        or not isinstance(path, (str, os.PathLike))
        or (task in (None, "token") and Path(path).is_dir())
    ):
        source, target = two_files(path)
        _refuse_other_task("two-file", task, source.name)
        _refuse_columns("two-file", columns, source.name)
        return Opened(source.name, "two-file", "token", None, read_two_files(source, target, notes))
    file = path if isinstance(path, TextFile) else TextFile(path)
    sample = file.sample()
    document = None
    if layout is None:
        filled = [line for _, line in sample if line.strip()]
        form = _form_of(filled)
        if form == "lines":
            layout = _layout_of_lines(filled, file.name, task, known)
        elif form == "jsonl":
            layout = "cluener" if _have_entities(_objects(sample, file.name), task, columns) else "jsonl"
        else:
            document = Document(file)
            layout = _layout_of_document(document.content, file.name)
    elif layout in _DOCUMENTS:
        document = Document(file)
        _refuse_other_document(layout, document.content, file.name)
    _refuse_other_task(layout, task, file.name)
    if layout == "conll":
        table = conll_table(file, columns, sample)
        return Opened(file.name, layout, "token", table, read_conll(file, table))
    if layout in ("jsonl", "cluener"):
        keys = _keys(_objects(sample, file.name))
        table = table_of_keys(keys, "sentence" if layout == "cluener" else task, columns, f"{file.name}:1")
        rows = rows_of_objects(objects_of_lines(file.lines(), file.name, notes), table)
        if layout == "cluener":
            table = replace(table, task="token")
            return Opened(file.name, layout, "token", table, entity_records(rows, table, file.name, notes))
        return _of_rows(file.name, layout, table, rows, known, notes)
    if document is None:
        cells = [(line, row) for line, row in _sampled_cells(sample, layout, file.name) if is_filled(row)]
        table = table_of_cells(cells, task, columns, file.name)
        return _of_rows(file.name, layout, table, rows_of_cells(file, layout, table, notes), known, notes)
    if layout == "json":
        table = table_of_keys(_keys(document.content), task, columns, f"{file.name}:1")
        rows = rows_of_objects(document.objects(), table)
        return _of_rows(file.name, layout, table, rows, known, notes)
    _refuse_columns(layout, columns, file.name)
    if layout == "c3":
        return Opened(file.name, layout, "choice", None, read_c3(document))
    spans = read_squad(document, notes) if layout == "squad" else read_cmrc(document, notes)
    return Opened(file.name, layout, "span", None, spans)


def checked(opened: Opened, known: KnownLabels) -> "Iterator[Record]":
    """The records, each looked at.

    Raises:
        DataError: there is none; a label that is not known; a text that no tokenizer takes.
    """
    record = None
    for record in opened.records:
        text = "".join(texts_of(record))
        if "\0" in text or (not text.isascii() and _SURROGATES.search(text)):
            what = "NUL" if "\0" in text else "half a surrogate pair"
            raise DataError(
                f"{record.file}:{record.line}: expected text, got {what} in {shortened(text)}. Mend or remove the line."
            )
        for label in dict.fromkeys(labels_of(record)):
            known.check(label, record.file, record.line)
        yield record
    if record is None:
        raise DataError(f"{opened.file}:1: expected examples, got none. Write or fetch the file again.")


def texts_of(record: Record) -> "Iterable[str]":
    """The texts of a record that a model reads."""
    if isinstance(record, TextRecord):
        return [record.text] if record.pair is None else [record.text, record.pair]
    if isinstance(record, TokenRecord):
        return record.tokens
    if isinstance(record, SpanRecord):
        return [record.context, record.question]
    return [record.context, record.question, *record.choices]


def labels_of(record: Record) -> "Iterable[str]":
    """The labels that a record has by name."""
    if isinstance(record, TextRecord):
        return [] if record.label is None else [record.label]
    return (record.labels or ()) if isinstance(record, TokenRecord) else ()


def _of_rows(file: str, layout: str, table: Table, rows: "Iterator[Row]", known: KnownLabels, notes: Notes) -> Opened:
    records: "Iterator[Record]"
    if table.task == "token":
        records = token_records(rows, file, notes)
    elif table.task == "span":
        records = span_records(rows, file, notes)
    elif table.task == "choice":
        records = choice_records(rows, file)
    else:
        records = text_records(rows, table, file, known, notes)
    return Opened(file, layout, table.task, table, records)


def _form_of(lines: "Sequence[str]") -> str:
    """What the first lines that are not blank look like: "jsonl", a JSON "document", or other "lines"."""
    if not _JSON.match("".join(lines[:3])):
        return "lines"
    return "jsonl" if _is_object(lines[0]) else "document"


def _is_object(line: str) -> bool:
    """Whether a line is a row of a JSONL file, well-formed or not, rather than a document or its first line."""
    line = line.strip()
    if not (line.startswith("{") and line.endswith("}")):
        return False
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return True
    return not isinstance(found.get("data"), list)


def _have_entities(objects: "Sequence[Mapping[str, Any]]", task: Optional[str], columns: "Optional[Columns]") -> bool:
    """Whether objects hold a text, and in place of its label its entities; or nothing else, if it is to be tagged."""
    if columns is not None and task == "token":
        return "text" in columns  # no other layout of tokens has one
    keys = _keys(objects)
    if columns is None and "tokens" in known_names(keys, "token"):
        return False
    places = columns or {role: keys[place] for role, place in known_names(keys, "sentence").items()}
    if "text" not in places:
        return False
    if "label" not in places:
        return task == "token" and set(keys) <= {places["text"], "id"}
    return any(isinstance(found.get(str(places["label"])), dict) for found in objects)


def _layout_of_document(content: Any, file: str) -> str:
    for layout, fits in _DOCUMENTS.items():
        if fits(content):
            return layout
    raise DataError(
        f'{file}:1: expected SQuAD or CMRC ("data" with "paragraphs", or a list with "context_text"), C3 (a list of '
        "lists) or a list of objects, got another JSON document. Write one object a line, and name its keys by columns."
    )


def _refuse_other_document(layout: str, content: Any, file: str) -> None:
    if not _DOCUMENTS[layout](content):
        fitting = [name for name, fits in _DOCUMENTS.items() if fits(content)]
        remedy = (
            f"Say --layout {fitting[0]} (layout= in Python)."
            if fitting
            else "Say another layout, or give another file."
        )
        raise DataError(f"{file}:1: expected the layout {layout!r}, got another JSON document. {remedy}")


def _first(content: Any) -> Any:
    return content[0] if isinstance(content, list) and content else None


# JSON documents and what tells them, the most telling first.
_DOCUMENTS: "dict[str, Callable[[Any], bool]]" = {
    "squad": lambda content: isinstance(content, dict) and isinstance(content.get("data"), list),
    "cmrc": lambda content: isinstance(_first(content), dict) and "context_text" in content[0],
    "c3": lambda content: isinstance(_first(content), list),
    "json": lambda content: isinstance(_first(content), dict),
}


def _layout_of_lines(lines: "Sequence[str]", file: str, task: Optional[str], known: KnownLabels) -> str:
    """The layout of a file that is no JSON, from its first lines, blank ones left out."""
    if task != "token" and looks_like_conll(lines, share=0.9):
        return "conll"
    if task == "token":
        if _are_tagged(lines, known) or _are_tokens(lines):
            return "conll"
        raise DataError(
            f"{file}:1: expected a token and its tag on each line, as in '京 B-LOC', got {shortened(lines[0])}. If "
            "characters and tags stand in two files, give the folder that holds both (source.txt, target.txt). Other "
            "tags must be spelled LETTER-TYPE."
        )
    if sum("\t" in line for line in lines) >= len(lines) / 2:
        return "tsv"
    named = file.lower().endswith((".csv", ".csv.gz"))
    header = known_names(lines[0].split(","), "pair") if "," in lines[0] else {}
    return "csv" if named or header else "tsv"


# ---- files to be tagged: they need no tags, and may hold texts

SENTENCES = "lines, each taken for a sentence of characters; --layout conll (layout=) takes each for a token"
TOKENS = "sentences of lines, each taken for a token; --layout tsv (layout=) takes each for a sentence"
UNUSED = "labels beside a text, not used: what is tagged are its characters"


def open_to_tag(
    path: Paths, layout: Optional[str], columns: "Optional[Columns]", known: KnownLabels, notes: Notes
) -> Opened:
    """A file that a model is to tag: as for the token task, with tags or without; or texts, as for the sentence task,
    whose characters are the tokens.

    Lines that have no tags and are no JSON hold a token each if nine in ten of them are one character, or one word
    without Han characters; otherwise each is a sentence. What was taken is noted, and `layout` says it.

    Raises:
        DataError: as `open_records`; lines that may be either.
    """
    if not _holds_texts(path, layout, columns, known):
        opened = open_records(path, "token", layout, columns, known, notes)
        guessed = layout is None and columns is None and opened.layout == "conll"
        if guessed and opened.table is not None and "labels" not in opened.table.places:
            return replace(opened, records=_noted(opened.records, TOKENS, notes))
        return opened
    all_labels = KnownLabels(None, None)
    opened = open_records(path, "sentence", layout, columns, all_labels, notes)
    table, remark = opened.table, None
    if table is not None and "label" in table.places:
        text = {"text": table.named()["text"]}
        opened, remark = open_records(path, "sentence", opened.layout, text, all_labels, notes), UNUSED
    elif table is not None and layout is None and columns is None and opened.layout == "tsv" and table.header is None:
        remark = SENTENCES
    records: "Iterator[Record]" = (
        TokenRecord(tuple("".join(texts_of(record))), None, record.file, record.line) for record in opened.records
    )
    return replace(opened, task="token", records=records if remark is None else _noted(records, remark, notes))


def _noted(records: "Iterator[Record]", what: str, notes: Notes) -> "Iterator[Record]":
    for record in records:
        notes.add(what, record.file, record.line)
        yield record


def _holds_texts(path: Paths, layout: Optional[str], columns: "Optional[Columns]", known: KnownLabels) -> bool:
    """Whether a file to be tagged holds texts, rather than tokens."""
    if columns is not None and "text" not in columns:
        return False
    if layout not in (None, "jsonl", "json"):
        return "sentence" in LAYOUTS.get(str(layout), ())
    if not isinstance(path, TextFile):
        if not isinstance(path, (str, os.PathLike)) or Path(path).is_dir():
            return False  # two files
        path = TextFile(path)
    sample = path.sample()
    lines = [line for _, line in sample if line.strip()]
    form = layout or _form_of(lines)
    if layout is None and form == "jsonl" and _have_entities(_objects(sample, path.name), None, columns):
        return False
    if columns is not None:
        return True
    if form == "lines":
        return _are_sentences(lines, path.name, known)
    keys = _keys(_objects(sample, path.name) if form == "jsonl" else Document(path).content)
    return "tokens" not in known_names(keys, "token") and "text" in known_names(keys, "sentence")


def _are_sentences(lines: "Sequence[str]", file: str, known: KnownLabels) -> bool:
    """Whether lines that are no JSON hold a sentence each, with a header or without, rather than a token.

    Raises:
        DataError: they are single characters with blanks or tabs between them, which may be columns or a sentence.
    """
    if _are_tagged(lines, known):
        return False
    if any("text" in known_names(lines[0].split(between), "sentence") for between in "\t,"):
        return True
    if _are_tokens(lines):
        return False
    cells = map(str.split, lines)
    apart = sum(len(row) > 1 and all(map(_is_token, row)) and bool(_HAN.search("".join(row))) for row in cells)
    if apart > len(lines) / 2:
        raise DataError(
            f"{file}:1: expected a sentence on each line, or a token with or without its tag, got single characters "
            f"with blanks between them: {shortened(lines[0])}. If they are a sentence, write it without the blanks, or "
            'as {"tokens": [...]}; if they are columns, token first and tag last, say --layout conll (layout=).'
        )
    return True


def _are_tagged(lines: "Sequence[str]", known: KnownLabels) -> bool:
    """Whether most lines end in a tag, by its form or because it is known."""
    cells = map(str.split, lines)
    of_the_known = sum(len(row) > 1 and row[-1] in known for row in cells)
    return of_the_known > len(lines) / 2 or looks_like_conll(lines, share=0.5)


def _are_tokens(lines: "Sequence[str]") -> bool:
    """Whether lines without tags hold a token each."""
    return sum(map(_is_token, map(str.strip, lines))) >= 0.9 * len(lines)


def _is_token(text: str) -> bool:
    """Whether it is one character, or one word or number without Han characters."""
    return len(text) == 1 or not (" " in text or "\t" in text or _HAN.search(text))


def _sampled_cells(sample: "Sequence[tuple[int, str]]", layout: str, file: str) -> "list[tuple[int, list[str]]]":
    """The rows that are whole: the sample may end within quotes."""
    rows: "list[tuple[int, list[str]]]" = []
    try:
        for row in split_cells(sample, layout, file):
            rows.append(row)
    except DataError:
        if not rows:
            raise
    return rows


def _objects(sample: "Sequence[tuple[int, str]]", file: str) -> "list[dict[str, Any]]":
    return [found for _, found in objects_of_lines(sample, file, Notes())]


def _keys(objects: "Iterable[Any]") -> "list[str]":
    return list(dict.fromkeys(key for found in objects if isinstance(found, dict) for key in found))


def _refuse_other_task(layout: str, task: Optional[str], file: str) -> None:
    if task is not None and task not in LAYOUTS[layout]:
        raise DataError(
            f"{file}:1: expected examples of the {task} task, got the layout {layout!r}, which is for "
            f"{' or '.join(LAYOUTS[layout])}. Name that task, give another file, or say the layout if it was "
            "taken for the wrong one."
        )


def _refuse_columns(layout: str, columns: "Optional[Columns]", file: str) -> None:
    if columns is not None:
        raise DataError(f"{file}:1: the layout {layout!r} has no columns to name. Leave columns out.")
