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

The workshop cuts Latin words with NLTK's Treebank rules. Here white space cuts, and a mark that is no letter or digit is
a segment of its own, but for a full stop between letters or digits and a comma between digits ("3.5", "U.S.A",
"1,000"). They differ in forms with an apostrophe: "don't" is don ' t here and do n't there.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddle_nezha.training.data.records import SpanRecord

_REMOVED = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_LETTER = r"[^\W_\u4e00-\u9fa5]"  # of any script but Chinese, or a digit
_SEGMENTS = re.compile(rf"[\u4e00-\u9fa5]|(?:{_LETTER}|(?<={_LETTER})\.(?={_LETTER})|(?<=\d),(?=\d))+|[^\s\w]")
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
    each = [
        score_answer([text for _, text in record.answers], answer, definition)
        for record, answer in zip(records, answers)
    ]
    known = [score for record, score in zip(records, each) if record.answers]
    unknown = [score for record, score in zip(records, each) if not record.answers]
    named = {"em": _mean([score.em for score in each]), "f1": _mean([score.f1 for score in each])}
    if unknown:
        named["no_answer_accuracy"] = _mean([score.em for score in unknown])
        if known:
            named["answered_em"] = _mean([score.em for score in known])
            named["answered_f1"] = _mean([score.f1 for score in known])
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


def _mean(values: "Sequence[float]") -> float:
    return sum(values) / len(values)


_DEFINITIONS: "dict[str, tuple[Callable[[str], str], Callable[[str, str], float]]]" = {
    "cmrc": (_without_marks, _cmrc_f1),
    "squad": (_squad_text, _squad_f1),
}
