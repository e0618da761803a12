"""Texts and pairs of texts, each with one label."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.tokenizer.rows import Cut, spans
from paddle_nezha.training.data.records import DataError, TextRecord

from .framing import check_all_or_none, check_length, chunks, encode, framed, label_id, label_ids
from .report import FeatureReport


def sentence_features(
    records: "Iterable[TextRecord]",
    tokenizer: NeZhaTokenizer,
    *,
    max_length: int,
    label_names: "Optional[Sequence[str]]" = None,
) -> "tuple[list[dict[str, Any]], FeatureReport]":
    """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

    Args:
        max_length: tokens of a feature at most, [CLS] and [SEP] included. Longer ones lose tokens at the end, pairs at
            the end of the longer text, as with the tokenizer's `truncation=True`.
        label_names: the classes; a label is the index of its name. None reads labels as numbers, for regression.

    Returns:
        One feature for each record, with "input_ids", "token_type_ids" and, where the records have labels, "labels": an
        int, or a float where `label_names` is None.

    Raises:
        DataError: a label that is no class, or no number; labels or pairs in some of the records alone.
    """
    classes = None if label_names is None else label_ids(label_names)
    features: "list[dict[str, Any]]" = []
    report = FeatureReport()
    labelled: Optional[bool] = None
    paired: Optional[bool] = None
    for chunk in chunks(records):
        labelled = check_all_or_none(chunk, [record.label is not None for record in chunk], labelled)
        paired = _check_pairs(chunk, paired)
        check_length(max_length, 4 if paired else 3, "room for a token beside [CLS] and [SEP]")
        firsts = encode(tokenizer, [record.text for record in chunk])
        seconds: "list[Optional[list[int]]]" = [None] * len(chunk)
        if paired:
            seconds = [*encode(tokenizer, [record.pair or "" for record in chunk])]
        cut = Cut(max_length, "longest_first")
        for record, first, second in zip(chunk, firsts, seconds):
            pair = None if second is None else len(second)
            kept = spans(len(first), pair, tokenizer.num_special_tokens_to_add(paired), cut)[0]
            lost = len(first) - kept.first_stop + (pair or 0) - kept.second_stop
            report.cut_records += lost > 0
            report.cut_tokens += lost
            short = None if second is None else second[: kept.second_stop]
            feature = framed(tokenizer, first[: kept.first_stop], short)
            if record.label is not None:
                feature["labels"] = _number(record) if classes is None else label_id(classes, record.label, record)
            features.append(feature)
    report.records = report.features = len(features)
    return features, report


def _check_pairs(records: "Sequence[TextRecord]", first: Optional[bool]) -> bool:
    expected = records[0].pair is not None if first is None else first
    for record in records:
        if (record.pair is not None) != expected:
            raise DataError(
                f"{record.file}, line {record.line}: the record is {'a single text' if expected else 'a pair'}, unlike "
                "those before it: give all of them a second text, or none."
            )
    return expected


def _number(record: TextRecord) -> float:
    try:
        number = float(record.label or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            f"{record.file}, line {record.line}: without label_names a label must be a number, but got "
            f"{record.label!r}: give the names of the classes, or correct it."
        )
    return number
