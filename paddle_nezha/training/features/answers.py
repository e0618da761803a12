"""From the scores of all windows of a question back to its answer in the text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from paddle_nezha.training.data.records import SpanRecord


@dataclass(frozen=True)
class SpanCandidate:
    """A possible answer: context[start:end], and the sum of its start's and its end's score."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class SpanAnswer:
    """The answer to a question.

    Args:
        text: "" where there is no answer.
        no_answer_score: the lowest score of [CLS] among the windows, to hold against the best candidate's.
        candidates: the best ones, the best first; none where the context is empty.
    """

    text: str
    no_answer_score: float
    candidates: "tuple[SpanCandidate, ...]"


def best_spans(
    records: "Sequence[SpanRecord]",
    features: "Iterable[Mapping[str, Any]]",
    start_logits: "Iterable[Any]",
    end_logits: "Iterable[Any]",
    *,
    max_answer_length: int,
    n_best: int = 20,
    no_answer_threshold: Optional[float] = None,
) -> "list[SpanAnswer]":
    """The answer to each question: the span of the highest start score + end score in any window of its context.

    Every span of at most `max_answer_length` tokens is considered; of equal scores the earlier one wins. The same
    characters found in two windows are one candidate, with the higher score.

    Args:
        features: what `span_features` made of `records`, in its order.
        start_logits, end_logits: of each feature the scores of its tokens, [L] or longer where it was padded.
        max_answer_length: tokens of an answer at most.
        n_best: candidates that are kept.
        no_answer_threshold: there is no answer where the score of [CLS] exceeds the best candidate's by more than
            this. None always answers.

    Raises:
        ValueError: lengths below 1; a record without features; a feature with fewer scores than tokens.
    """
    for name, value in (("max_answer_length", max_answer_length), ("n_best", n_best)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, but got {value!r}.")
    found: "list[dict[tuple[int, int], float]]" = [{} for _ in records]
    without = np.full(len(records), np.inf)
    for feature, starts, ends in zip(features, start_logits, end_logits):
        record, offsets = feature["record"], feature["offset_mapping"]
        begin_scores, end_scores = (np.asarray(scores, "float64") for scores in (starts, ends))
        if min(len(begin_scores), len(end_scores)) < len(offsets):
            raise ValueError(
                f"A feature of {len(offsets)} tokens needs as many start and end scores, but got {len(begin_scores)} "
                f"and {len(end_scores)}: give the logits in the order of the features."
            )
        without[record] = min(without[record], begin_scores[0] + end_scores[0])
        for span, score in _window(offsets, begin_scores, end_scores, max_answer_length, n_best):
            if score > found[record].get(span, -np.inf):
                found[record][span] = score
    answers = []
    for number, (record, spans) in enumerate(zip(records, found)):
        if np.isinf(without[number]):
            raise ValueError(
                f"{record.file}, line {record.line}: the record has no feature: give the features and logits of all "
                "records."
            )
        best = sorted(spans.items(), key=lambda item: (-item[1], item[0]))[:n_best]
        candidates = tuple(SpanCandidate(record.context[slice(*span)], *span, score) for span, score in best)
        is_answered = bool(candidates) and (
            no_answer_threshold is None or without[number] - candidates[0].score <= no_answer_threshold
        )
        answers.append(SpanAnswer(candidates[0].text if is_answered else "", float(without[number]), candidates))
    return answers


def _window(
    offsets: "Sequence[Optional[tuple[int, int]]]", starts: np.ndarray, ends: np.ndarray, longest: int, n_best: int
) -> "list[tuple[tuple[int, int], float]]":
    """The best spans of one window, as characters of the context."""
    context = [place for place, offset in enumerate(offsets) if offset is not None]
    if not context:
        return []
    first, count = context[0], len(context)
    longest = min(longest, count)
    starts, ends = starts[first : first + count], ends[first : first + count]
    # Row i, column d: the span of d + 1 tokens that begins at token i; -inf where it would reach beyond the window.
    reach = np.lib.stride_tricks.sliding_window_view(np.pad(ends, (0, longest - 1), constant_values=-np.inf), longest)
    scores = (starts[:, None] + reach).ravel()
    kept = min(n_best, scores.size)
    # All that reach the kept-th best score, so that of equal ones the earlier are found.
    least = np.partition(scores, scores.size - kept)[scores.size - kept]
    places = np.flatnonzero((scores >= least) & (scores > -np.inf))
    places = places[np.argsort(-scores[places], kind="stable")][:kept]
    spans = []
    for place in places.tolist():
        begin, more = divmod(place, longest)
        spans.append(((offsets[first + begin][0], offsets[first + begin + more][1]), float(scores[place])))  # type: ignore[index]
    return spans
