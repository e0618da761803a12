"""What a labelled file holds, one record for each example; `file` and `line` say where it stands.

`line` counts from 1. It is the line on which the example begins, and in a JSON document the line of its question.
"""

from dataclasses import dataclass
from typing import Any, Optional, Union


class DataError(ValueError):
    """A file cannot be used for training; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class TextRecord:
    """A text, or a pair of them, with a label.

    Args:
        pair: the second text; None for a single text.
        label: as in the file, a number too ("1", "3.5"); None where the file has no labels.
    """

    text: str
    pair: Optional[str]
    label: Optional[str]
    file: str
    line: int


@dataclass(frozen=True)
class TokenRecord:
    """A sentence of characters or words, each with a tag.

    Args:
        labels: tags as in the file (BIO, IOB, BIOES, ...), as many as tokens; None where the file has none.
    """

    tokens: "tuple[str, ...]"
    labels: "Optional[tuple[str, ...]]"
    file: str
    line: int


@dataclass(frozen=True)
class SpanRecord:
    """A question about a text that holds the answer.

    Args:
        answers: (start, text) of each answer. The start counts characters of `context` and is what the file states,
            right or wrong; where the file states none it is the first place of the text, -1 if there is no place.
            Empty where the question has no answer or the file no answers.
    """

    id: str
    question: str
    context: str
    answers: "tuple[tuple[int, str], ...]"
    file: str
    line: int


@dataclass(frozen=True)
class ChoiceRecord:
    """A question about a text, with answers to choose from.

    Args:
        label: index of the right one in `choices`; None where the file does not say.
    """

    id: str
    context: str
    question: str
    choices: "tuple[str, ...]"
    label: Optional[int]
    file: str
    line: int


Record = Union[TextRecord, TokenRecord, SpanRecord, ChoiceRecord]


def content_of(record: Record) -> "list[Any]":
    """What a record holds, wherever it stands."""
    *content, _, _ = vars(record).values()  # but for file and line
    return content
