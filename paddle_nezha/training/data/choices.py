"""Questions with answers to choose from: C3, and rows with the same parts.

C3 has two to four choices a question. Lines of a dialogue or document are joined by line ends.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Optional

from paddle_nezha.training.data.documents import Document
from paddle_nezha.training.data.lines import shortened
from paddle_nezha.training.data.records import ChoiceRecord, DataError
from paddle_nezha.training.data.tables import Row, is_texts, text_of


def read_c3(document: Document) -> "Iterator[ChoiceRecord]":
    """[[[line, ...], [{"question", "choice": [text, ...], "answer": text}, ...], id], ...]

    A test file has no answer, or an empty one.

    Raises:
        DataError: an entry that is not so; an answer that is none of the choices.
    """
    for p, passage in enumerate(document.content):
        if (
            not isinstance(passage, list)
            or len(passage) < 2
            or not is_texts(passage[0])
            or not isinstance(passage[1], list)
        ):
            raise document.refuse(f"[{p}]", "a list of lines, a list of questions and an id", passage)
        name = passage[2] if len(passage) > 2 else p
        for q, entry in enumerate(passage[1]):
            at = f"[{p}][1][{q}]"
            question = entry.get("question") if isinstance(entry, dict) else None
            if not isinstance(question, str):
                raise document.refuse(at, 'an object with a text under "question"', entry)
            line = document.line_of(question)
            choices, answer = entry.get("choice"), entry.get("answer") or None
            if not _are_choices(choices):
                raise document.refuse(f"{at}.choice", "a list of two texts or more", choices)
            label = None if answer is None else _index(answer, choices)
            if answer is not None and label is None:
                raise document.refuse(
                    f"{at}.answer", "one of the choices", answer, "Write it as the choice is written."
                )
            identity = str(entry.get("id", f"{name}-{q}"))
            yield ChoiceRecord(identity, "\n".join(passage[0]), question, tuple(choices), label, document.file, line)


def choice_records(rows: "Iterable[Row]", file: str) -> "Iterator[ChoiceRecord]":
    """From rows with a question, a context, a list of choices, and the right one: its text, or its index from 0.

    Raises:
        DataError: something else in their place.
    """
    for line, row in rows:
        where = f"{file}:{line}"
        context, question = (text_of(row[role], role, where) for role in ("context", "question"))
        choices, answer = row["choices"], row.get("label")
        answer = None if answer == "" else answer
        if not _are_choices(choices):
            raise DataError(f"{where}: expected a list of two choices or more, got {shortened(str(choices))}. Mend it.")
        label = None if answer is None else _index(answer, choices)
        if answer is not None and label is None:
            raise DataError(
                f"{where}: expected the text of a choice, or its index from 0 to {len(choices) - 1}, got "
                f"{shortened(str(answer))}. Mend the line."
            )
        identity = row.get("id")
        yield ChoiceRecord(
            str(line if identity is None else identity), context, question, tuple(choices), label, file, line
        )


def _index(answer: Any, choices: "list[str]") -> Optional[int]:
    if isinstance(answer, str):
        return choices.index(answer) if answer in choices else None
    if isinstance(answer, float) and answer.is_integer():  # as programs write it beside an empty cell
        answer = int(answer)
    is_index = isinstance(answer, int) and not isinstance(answer, bool)
    return answer if is_index and 0 <= answer < len(choices) else None


def _are_choices(value: Any) -> bool:
    return is_texts(value) and len(value) > 1
