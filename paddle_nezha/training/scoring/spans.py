"""Answers to questions: exact match and F1, as CMRC 2018 and SQuAD 2.0 define them.

cmrc    Cui et al. (2019, D19-1600) and the evaluation of the CMRC 2018 workshop, version 5. Text is lower-cased and
        stripped, and 32 punctuation marks are removed (Chinese ones and a few ASCII ones; not . , ! ? % ( ), nor the
        ellipsis). Exact match compares what is left. For F1 it is cut into segments: each character of U+4E00 - U+9FA5
        is one, and what stands between them is cut into Latin words. The overlap is the longest run of segments that
        both have (a common substring, not a bag of words); precision and recall are its share of each side.
        A removed mark does not end a word: "a-b" is the word "ab". Full-width digits are not made half-width ones.
squad   Rajpurkar et al. (2018, P18-2124): lower case, without ASCII punctuation and a, an, the; words at white space;
        F1 over the bag of words. It reads a Chinese sentence as one word: use it for English alone.

Both take the best over the answers given. A question without an answer is right with "" and wrong otherwise.

The workshop cuts Latin words with NLTK's Treebank rules. Here stand those that have to do with marks: white space cuts,
brackets, double quotes, dashes and ; @ # $ % & ? ! are segments of their own, and so are a comma that no digit follows,
dots in a row, and the full stop that ends a stretch of Latin text. Left out are the English contractions ("don't" is
one word here and do n't there) and the two names of the straight double quote. Beside NLTK's rules for words, on 14,363
questions of CMRC 2018 (train, dev and trial) with answers cut at random: 15 have another F1, the mean is 0.57624 in
place of 0.57628.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddle_nezha.training.data.records import SpanRecord

_REMOVED = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE = r"\u4e00-\u9fa5"
_MARKS = r";@#$%&?!()\[\]{}<>\"«»‘„\u2012-\u2015"
_DOTS = rf"\.\.+|\.(?=[\])}}>\"'»\s]*(?:[{_CHINESE}]|\Z))"  # several, or the one that ends a stretch of Latin text
_COMMA = r",(?!\d)"
_SEGMENTS = re.compile(rf"[{_CHINESE}]|[{_MARKS}]|{_DOTS}|{_COMMA}|(?:(?!{_DOTS}|{_COMMA})[^\s{_CHINESE}{_MARKS}])+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class SpanScore:
    """Of one question: exact match, 0 or 1, and F1."""

    em: float
    f1: float


def score_spans(
    records: "Sequence[SpanRecord]", answers: "Sequence[str]", definition: str = "cmrc"
) -> "dict[str, float]":
    """The means over all questions.

    Args:
        records: their `answers` are (start, text) pairs, none for a question without an answer.
        answers: the predicted text for each, "" for no answer.
        definition: "cmrc" or "squad".

    Returns:
        em and f1; where some questions have no answer also answered_em and answered_f1 over those that have one, and
        no_answer_accuracy over those that have none.

    Raises:
        ValueError: no questions, another number of answers, another definition.
    """
    if not len(records):
        raise ValueError("There is nothing to score: no questions came. See that the file that was read has records.")
    if len(records) != len(answers):
        raise ValueError(f"Expected an answer for each of {len(records)} questions, but got {len(answers)}.")
    sums: "Counter[str]" = Counter()
    for record, answer in zip(records, answers):
        sums.update(answer_sums([text for _, text in record.answers], answer, definition))
    return score_sums(sums)


def answer_sums(truths: "Sequence[str]", answer: str, definition: str = "cmrc") -> "dict[str, float]":
    """What one question adds to the sums of `score_sums`; arguments and errors of `score_answer`."""
    score = score_answer(truths, answer, definition)
    kind = "known" if truths else "unknown"
    return {kind: 1, f"{kind}_em": score.em, f"{kind}_f1": score.f1}


def score_sums(sums: "Mapping[str, float]") -> "dict[str, float]":
    """The means of `score_spans`, from the sums of what each question adds."""
    known, unknown = sums.get("known", 0), sums.get("unknown", 0)
    named = {
        name: (sums.get(f"known_{name}", 0) + sums.get(f"unknown_{name}", 0)) / (known + unknown)
        for name in ("em", "f1")
    }
    if unknown:
        named["no_answer_accuracy"] = sums["unknown_em"] / unknown
        if known:
            named.update({f"answered_{name}": sums[f"known_{name}"] / known for name in ("em", "f1")})
    return named


def score_answer(truths: "Sequence[str]", answer: str, definition: str = "cmrc") -> SpanScore:
    """One question: the best over its answers; arguments and errors of `score_spans`."""
    if definition not in _DEFINITIONS:
        raise ValueError(f"definition must be {' or '.join(_DEFINITIONS)}, but got {definition!r}.")
    exact, overlap = _DEFINITIONS[definition]
    if not truths:
        right = float(not answer.strip())
        return SpanScore(right, right)
    return SpanScore(
        max(float(exact(truth) == exact(answer)) for truth in truths),
        max(overlap(truth, answer) for truth in truths),
    )


def segments(text: str) -> "list[str]":
    """Chinese characters and Latin words of a text, as the F1 of `cmrc` counts them."""
    return _SEGMENTS.findall(_without_marks(text))


def _without_marks(text: str) -> str:
    return "".join(character for character in text.lower().strip() if character not in _REMOVED)


def _cmrc_f1(truth: str, answer: str) -> float:
    left, right = segments(truth), segments(answer)
    common = _longest_run(left, right)
    return 2 * common / (len(left) + len(right)) if common else 0.0


def _longest_run(left: "list[str]", right: "list[str]") -> int:
    """The length of the longest run of segments that both hold."""
    best, row = 0, [0] * (len(right) + 1)
    for one in left:
        row = [0, *(row[i] + 1 if one == other else 0 for i, other in enumerate(right))]
        best = max(best, *row)
    return best


def _squad_text(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_ASCII)).split())


def _squad_f1(truth: str, answer: str) -> float:
    left, right = _squad_text(truth).split(), _squad_text(answer).split()
    if not left or not right:
        return float(left == right)
    common = sum((Counter(left) & Counter(right)).values())
    return 2 * common / (len(left) + len(right))


_DEFINITIONS: "dict[str, tuple[Callable[[str], str], Callable[[str, str], float]]]" = {
    "cmrc": (_without_marks, _cmrc_f1),
    "squad": (_squad_text, _squad_f1),
}
