"""Questions whose answers are spans of a text: SQuAD 1.1 and 2.0 with CMRC 2018 and DRCD, and CMRC's older list.

Starts are those of the file: CMRC 2018 has some that are off, which features find or drop. Answers without text are
dropped, plausible answers of SQuAD 2.0 are not read.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from paddle_nezha.training.data.documents import Document
from paddle_nezha.training.data.lines import shortened
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.records import DataError, SpanRecord
from paddle_nezha.training.data.tables import Row, text_of

OFF = "answers that do not stand at their start"
NOWHERE = "answers that do not stand in their text at all"
WITHOUT_TEXT = "answers without text, dropped"
SAME_ID = "questions whose id an earlier one has"


def read_squad(document: Document, notes: Notes) -> "Iterator[SpanRecord]":
    """{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}]}]}]}]}

    Raises:
        DataError: an entry that is not so.
    """
    seen: "set[str]" = set()
    articles = _entries(document, document.content, "data", "$")
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(_entries(document, article, "paragraphs", f"data[{a}]")):
            at = f"data[{a}].paragraphs[{p}]"
            context = _text(document, paragraph, "context", at)
            for q, question in enumerate(_entries(document, paragraph, "qas", at)):
                yield _record(document, question, ("id", "question"), context, f"{at}.qas[{q}]", notes, seen)


def read_cmrc(document: Document, notes: Notes) -> "Iterator[SpanRecord]":
    """[{"context_text", "qas": [{"query_id", "query_text", "answers": [text]}]}], where starts are not stated.

    Raises:
        DataError: an entry that is not so.
    """
    seen: "set[str]" = set()
    for p, paragraph in enumerate(document.content):
        at = f"[{p}]"
        context = _text(document, paragraph, "context_text", at)
        for q, question in enumerate(_entries(document, paragraph, "qas", at)):
            yield _record(document, question, ("query_id", "query_text"), context, f"{at}.qas[{q}]", notes, seen)


def _record(
    document: Document, entry: Any, names: "tuple[str, str]", context: str, at: str, notes: Notes, seen: "set[str]"
) -> SpanRecord:
    """
    Args:
        names: the keys of id and question.
        seen: the ids of the questions before.
    """
    question = _text(document, entry, names[1], at)
    line = document.line_of(question)
    given = entry.get("answers")
    if given is None or entry.get("is_impossible") is True:
        given = []
    answers = _answers(given, context, document.file, line, notes, at)
    if answers is None:
        raise document.refuse(f"{at}.answers", "a list of texts, each with its answer_start", given)
    identity = str(entry.get(names[0], at))
    _note_same_id(identity, seen, notes, document.file, line, at)
    return SpanRecord(identity, question, context, answers, document.file, line)


def _note_same_id(identity: str, seen: "set[str]", notes: Notes, file: str, line: int, at: str = "") -> None:
    if identity in seen:
        notes.add(SAME_ID, file, line, at)
    seen.add(identity)


def _answers(
    given: Any, context: str, file: str, line: int, notes: Notes, at: str = ""
) -> "Optional[tuple[tuple[int, str], ...]]":
    """(start, text) of each answer; None where `given` is something else."""
    if isinstance(given, dict):  # as in {"text": [...], "answer_start": [...]}
        texts, starts = given.get("text"), given.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            return None
        given = [{"text": text, "answer_start": start} for text, start in zip(texts, starts)]
    if not isinstance(given, list):
        return None
    answers = []
    for answer in given:
        if isinstance(answer, str):
            answer = {"text": answer, "answer_start": context.find(answer)}
        if not isinstance(answer, dict):
            return None
        text, start = answer.get("text"), answer.get("answer_start")
        if not isinstance(text, str) or not isinstance(start, int):
            return None
        if not text:
            notes.add(WITHOUT_TEXT, file, line, at)
            continue
        if start < 0 or context[start : start + len(text)] != text:
            notes.add(OFF if text in context else NOWHERE, file, line, at)
        answers.append((start, text))
    return tuple(answers)


def span_records(rows: "Iterable[Row]", file: str, notes: Notes) -> "Iterator[SpanRecord]":
    """From rows with a question, a context and answers.

    Raises:
        DataError: something else in their place.
    """
    seen: "set[str]" = set()
    for line, row in rows:
        where = f"{file}:{line}"
        context, question = (text_of(row[role], role, where) for role in ("context", "question"))
        given = row.get("answers")
        answers = _answers([] if given is None else given, context, file, line, notes)
        if answers is None:
            raise DataError(
                f"{where}: expected answers with text and answer_start, got {shortened(str(given))}. Mend the line."
            )
        identity = str(line if row.get("id") is None else row["id"])
        _note_same_id(identity, seen, notes, file, line)
        yield SpanRecord(identity, question, context, answers, file, line)


def _entries(document: Document, entry: Any, name: str, at: str) -> "list[Any]":
    found = entry.get(name) if isinstance(entry, Mapping) else None
    if not isinstance(found, list):
        raise document.refuse(at, f'an object with a list under "{name}"', entry)
    return found


def _text(document: Document, entry: Any, name: str, at: str) -> str:
    found = entry.get(name) if isinstance(entry, Mapping) else None
    if not isinstance(found, str):
        raise document.refuse(at, f'an object with a text under "{name}"', entry)
    return found
