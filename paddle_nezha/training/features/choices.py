"""A text, a question and answers to choose from: one row for each of these."""

from collections.abc import Iterable, Sequence
from typing import Any, Optional

import numpy as np

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.data.records import ChoiceRecord, DataError

from .framing import check_all_or_none, check_length, chunks, encode, framed
from .report import FeatureReport

STYLES = ("pair", "c3")
CUTS = ("back", "front")


def choice_features(
    records: "Iterable[ChoiceRecord]",
    tokenizer: NeZhaTokenizer,
    *,
    max_length: int,
    style: str = "pair",
    cut_context: str = "back",
    num_choices: Optional[int] = None,
) -> "tuple[list[dict[str, Any]], FeatureReport]":
    """A row for each choice, with the context, the question and the choice.

    All rows of a record keep the same part of the context: what fits beside the question and the longest choice. A
    choice longer than half of the room, or a question longer than what the choices leave, is cut at its end.

    Args:
        max_length: tokens of a row at most, [CLS] and [SEP] included.
        style: "pair" is [CLS] context question [SEP] choice [SEP]; "c3" is [CLS] context [SEP] question [SEP] choice
            [SEP] with the question among the second segment, as in the published baseline of C3 (nlpdata/c3,
            bert/run_classifier.py; which takes tokens from the longest of the three in place of the context alone).
        cut_context: where long contexts lose tokens, at the "back" or at the "front".
        num_choices: rows of each feature. Records with fewer choices get empty ones behind, which `best_choices` never
            chooses. None is the most that a record has.

    Returns:
        One feature for each record, with "input_ids" and "token_type_ids", lists [C] of lists, and, where the records
        have labels, "labels", the index of the right choice.

    Raises:
        DataError: a record without choices, with more than `num_choices`, or with a label that is none of them; labels
            in some of the records alone.
        ValueError: a setting out of its range.
    """
    for name, value, known in (("style", style, STYLES), ("cut_context", cut_context, CUTS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, but got {value!r}.")
    special = 4 if style == "c3" else 3
    check_length(max_length, special + 3, "room for context, question and choice beside [CLS] and [SEP]")
    records = list(records)
    if num_choices is None:
        num_choices = max((len(record.choices) for record in records), default=1)
    features: "list[dict[str, Any]]" = []
    report = FeatureReport(records=len(records), features=len(records))
    labelled: Optional[bool] = None
    for chunk in chunks(records):
        labelled = check_all_or_none(chunk, [record.label is not None for record in chunk], labelled)
        contexts = encode(tokenizer, [record.context for record in chunk])
        questions = encode(tokenizer, [record.question for record in chunk])
        choices = iter(encode(tokenizer, [choice for record in chunk for choice in record.choices]))
        for record, context, question in zip(chunk, contexts, questions):
            _check(record, num_choices)
            own = [next(choices) for _ in record.choices]
            own += [[] for _ in range(num_choices - len(own))]
            report.added_choices += num_choices - len(record.choices)
            rows = _rows(tokenizer, style, _fitted(context, question, own, max_length - special, cut_context, report))
            feature: "dict[str, Any]" = {name: [row[name] for row in rows] for name in rows[0]}
            if record.label is not None:
                feature["labels"] = record.label
            features.append(feature)
    return features, report


def best_choices(records: "Sequence[ChoiceRecord]", logits: "Sequence[Any]") -> "list[int]":
    """The index of the choice with the highest score [C] among those that each record has."""
    return [int(np.argmax(np.asarray(row)[: len(record.choices)])) for record, row in zip(records, logits)]


def _fitted(
    context: "list[int]", question: "list[int]", choices: "list[list[int]]", room: int, cut: str, report: FeatureReport
) -> "tuple[list[int], list[int], list[list[int]]]":
    """Context, question and choices, so that each row holds at most `room` tokens."""
    whole = len(context) + len(question) + sum(map(len, choices))
    choices = [choice[: room // 2] for choice in choices]
    left = room - max(map(len, choices))
    report.cut_questions += len(question) > left
    question = question[:left]
    left -= len(question)
    if len(context) > left:
        context = context[:left] if cut == "back" else context[len(context) - left :]
    lost = whole - len(context) - len(question) - sum(map(len, choices))
    report.cut_records += lost > 0
    report.cut_tokens += lost
    return context, question, choices


def _rows(
    tokenizer: NeZhaTokenizer, style: str, parts: "tuple[list[int], list[int], list[list[int]]]"
) -> "list[dict[str, Any]]":
    context, question, choices = parts
    if style == "pair":
        return [framed(tokenizer, context + question, choice) for choice in choices]
    return [framed(tokenizer, context, [*question, tokenizer.sep_token_id, *choice]) for choice in choices]


def _check(record: ChoiceRecord, num_choices: int) -> None:
    count = len(record.choices)
    if not 1 <= count <= num_choices:
        raise DataError(
            f"{record.file}, line {record.line}: the record must have 1 to {num_choices} choices, but has {count}: "
            "correct it, or give num_choices."
        )
    if record.label is not None and not 0 <= record.label < count:
        raise DataError(
            f"{record.file}, line {record.line}: the label must be one of the choices 0 to {count - 1}, but is "
            f"{record.label}: correct it."
        )
