"""Questions about a text that holds the answer: to windows of the text, and where in them the answer stands."""

from collections.abc import Iterable, Sequence
from typing import Any, Optional

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.tokenizer.rows import Cut, overlapping, spans, stepping
from paddle_nezha.training.data.records import SpanRecord

from .framing import IGNORED, check_length, chunks, encode, framed
from .report import FeatureReport

_STRIDE = 128
_LOST_SHOWN = 10
_NO_ANSWER = 0  # the position of [CLS]


def span_features(
    records: "Iterable[SpanRecord]",
    tokenizer: NeZhaTokenizer,
    *,
    max_length: int,
    stride: Optional[int] = None,
    doc_stride: Optional[int] = None,
    max_question_length: int = 64,
) -> "tuple[list[dict[str, Any]], FeatureReport]":
    """[CLS] question [SEP] part of the context [SEP], in as many windows as the context needs.

    The label is the first answer that stands at its stated start, else the first that stands anywhere in the context,
    at the place nearest to the stated one. In a window that holds the answer whole the positions are those of its first
    and last token. They are 0, that of [CLS], in windows without it, or with a part of it alone, as in BERT. They are
    -100, which the loss ignores, where they would teach something wrong: in all windows of a record whose answers are
    nowhere in the context, and in those that hold a part of an answer that no window holds whole.

    Args:
        max_length: tokens of a window at most, [CLS] and [SEP] included.
        stride: tokens of the context that neighbouring windows share, as Hugging Face counts; 128 if neither is given.
        doc_stride: tokens between the starts of neighbouring windows, as google-research/bert, Huawei's scripts and
            PaddleNLP count. Give one of the two.
        max_question_length: tokens of the question at most; it is cut at its end, to fewer where `max_length` and
            `stride` leave it less.

    Returns:
        Features with "input_ids", "token_type_ids", "start_positions" and "end_positions", both ints, "record" (the
        record's index) and "offset_mapping" (for each token its first character in the context and the one behind its
        last; None outside the context).

    Raises:
        ValueError: a setting out of its range, or both strides.
    """
    for name, value, least in (
        ("stride", stride, 0),
        ("doc_stride", doc_stride, 1),
        ("max_question_length", max_question_length, 1),
    ):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"{name} must be a whole number of at least {least}, but got {value!r}.")
    if stride is not None and doc_stride is not None:
        raise ValueError(
            f"stride={stride} and doc_stride={doc_stride} both say how windows follow each other: give the tokens they "
            "share (stride) or those between their starts (doc_stride)."
        )
    if doc_stride is None:
        shared = _STRIDE if stride is None else stride
        advance = overlapping(shared)
    else:
        shared = 0
        advance = stepping(doc_stride)
    check_length(
        max_length,
        shared + 5,
        f"room for a token of the question and {shared + 1} of the context (stride + 1) beside [CLS] and [SEP]",
    )
    cut = Cut(max_length, "only_second", advance)
    room = min(max_question_length, max_length - shared - 4)
    features: "list[dict[str, Any]]" = []
    report = FeatureReport()
    for chunk in chunks(records):
        questions = encode(tokenizer, [record.question for record in chunk])
        contexts = _contexts(tokenizer, chunk)
        for record, question in zip(chunk, questions):
            report.cut_questions += len(question) > room
            question = question[:room]
            context, offsets = contexts[record.context]
            answer = _Answer(record, offsets, report)
            windows = [
                (span.second_start, span.second_stop)
                for span in spans(len(question), len(context), tokenizer.num_special_tokens_to_add(True), cut)
            ]
            is_divided = answer.tokens is not None and not any(
                begin <= answer.tokens[0] and answer.tokens[1] < end for begin, end in windows
            )
            report.divided_answers += is_divided
            report.split_records += len(windows) > 1
            for begin, end in windows:
                feature = framed(tokenizer, question, context[begin:end])
                first = len(question) + 2
                start, stop = answer.positions(begin, end, first, is_divided)
                feature["start_positions"], feature["end_positions"] = start, stop
                feature["offset_mapping"] = [*[None] * first, *offsets[begin:end], None]
                feature["record"] = report.records
                features.append(feature)
            report.records += 1
    report.features = len(features)
    return features, report


def _contexts(
    tokenizer: NeZhaTokenizer, records: "Sequence[SpanRecord]"
) -> "dict[str, tuple[list[int], list[tuple[int, int]]]]":
    """The ids and offsets of each context, encoded once for all its questions."""
    texts = list(dict.fromkeys(record.context for record in records))
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, truncation=False)
    return dict(zip(texts, zip(encoded["input_ids"], encoded["offset_mapping"])))


class _Answer:
    """Where the answer of a record stands; `tokens` is None where it has none, or none that stands in its context."""

    def __init__(self, record: SpanRecord, offsets: "Sequence[tuple[int, int]]", report: FeatureReport) -> None:
        self.tokens: "Optional[tuple[int, int]]" = None
        self.is_lost = False
        if not record.answers:
            report.unanswered += 1
            return
        found = _found(record)
        if found is not None:
            begin, end, is_moved = found
            inside = [place for place, (first, last) in enumerate(offsets) if first < end and last > begin]
            if inside:
                self.tokens = inside[0], inside[-1]
                covered = record.context[offsets[inside[0]][0] : offsets[inside[-1]][1]]
                report.inexact_answers += covered != record.context[begin:end].strip()
                report.moved_answers += is_moved
                return
        self.is_lost = True
        report.lost_answers += 1
        if len(report.lost_at) < _LOST_SHOWN:
            report.lost_at.append(f"{record.file}, line {record.line} ({record.id})")

    def positions(self, begin: int, end: int, first: int, is_divided: bool) -> "tuple[int, int]":
        """Of the window of the context's tokens begin .. end - 1, which stand at position `first`."""
        if self.is_lost:
            return IGNORED, IGNORED
        if self.tokens is None:
            return _NO_ANSWER, _NO_ANSWER
        start, stop = self.tokens
        if begin <= start and stop < end:
            return first + start - begin, first + stop - begin
        if is_divided and start < end and stop >= begin:
            return IGNORED, IGNORED
        return _NO_ANSWER, _NO_ANSWER


def _found(record: SpanRecord) -> "Optional[tuple[int, int, bool]]":
    """First character of the answer, the one behind its last, and whether that is not the stated place."""
    for start, text in record.answers:
        if text.strip() and start >= 0 and record.context.startswith(text, start):
            return start, start + len(text), False
    for start, given in record.answers:
        text = given.strip()
        places = _places(record.context, text) if text else []
        if places:
            nearest = min(places, key=lambda place: (abs(place - start), place))
            return nearest, nearest + len(text), True
    return None


def _places(context: str, text: str) -> "list[int]":
    places = []
    place = context.find(text)
    while place >= 0:
        places.append(place)
        place = context.find(text, place + 1)
    return places
