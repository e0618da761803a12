"""What all tasks share: batches for the tokenizer, and rows framed by [CLS] and [SEP]."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional, TypeVar

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.data.records import DataError

IGNORED = -100  # the label that no loss counts
# So many records are encoded at a time: enough for the tokenizer's speed, and little memory.
RECORDS_AT_ONCE = 1000

Kind = TypeVar("Kind")


def chunks(records: "Iterable[Kind]") -> "Iterator[list[Kind]]":
    chunk: "list[Kind]" = []
    for record in records:
        chunk.append(record)
        if len(chunk) == RECORDS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def encode(tokenizer: NeZhaTokenizer, texts: "Sequence[str]") -> "list[list[int]]":
    """The ids of each text, unframed and uncut."""
    ids: "list[list[int]]" = tokenizer(
        list(texts), add_special_tokens=False, return_token_type_ids=False, truncation=False
    )["input_ids"]
    return ids


def framed(tokenizer: NeZhaTokenizer, first: "list[int]", second: "Optional[list[int]]" = None) -> "dict[str, Any]":
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]."""
    return {
        "input_ids": tokenizer.build_inputs_with_special_tokens(first, second),
        "token_type_ids": tokenizer.create_token_type_ids_from_sequences(first, second),
    }


def check_length(max_length: int, least: int, holds: str) -> None:
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < least:
        raise ValueError(f"max_length must be a whole number of at least {least}, {holds}, but got {max_length!r}.")


def label_ids(names: "Sequence[str]") -> "dict[str, int]":
    ids = {name: number for number, name in enumerate(names)}
    if len(ids) != len(names) or not ids:
        raise ValueError(f"label_names must be different names, at least one, but got {list(names)!r}.")
    return ids


def label_id(ids: "dict[str, int]", label: str, record: Any) -> int:
    if label not in ids:
        known = ", ".join(list(ids)[:20]) + (", ..." if len(ids) > 20 else "")
        raise DataError(
            f"{record.file}, line {record.line}: the label {label!r} is none of those to learn ({known}): correct it, "
            "or take the labels from all files together."
        )
    return ids[label]


def check_all_or_none(records: "Sequence[Any]", labelled: "Sequence[bool]", first: "Optional[bool]") -> bool:
    """Whether these records have labels, which must be as with the `first` one seen."""
    expected = labelled[0] if first is None else first
    for record, has_label in zip(records, labelled):
        if has_label != expected:
            raise DataError(
                f"{record.file}, line {record.line}: the record has {'a' if has_label else 'no'} label, unlike those "
                "before it: give all of a file a label, or none."
            )
    return expected
