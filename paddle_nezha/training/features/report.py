"""What became of the records on the way to features, counted."""

from dataclasses import asdict, dataclass, field

# Each count in words, for the text of a report.
_WORDS = {
    "cut_records": "records lost tokens to the maximum length",
    "cut_tokens": "tokens were cut off",
    "split_records": "records became several windows",
    "blank_words": "words without any piece became [UNK]",
    "cut_words": "words longer than a window were cut",
    "cut_questions": "questions were cut",
    "moved_answers": "answers did not stand at their stated start and were found elsewhere",
    "lost_answers": "records have no answer that stands in their text: no loss counts them",
    "inexact_answers": "answers begin or end within a token",
    "divided_answers": "answers fit into no window: no loss counts those that hold a part of them",
    "unanswered": "records have no answer",
    "added_choices": "empty choices were added",
}


@dataclass
class FeatureReport:
    """Counts of one call; those of other tasks stay 0.

    Args:
        records, features: how many came and how many were made.
        cut_records, cut_tokens: records of which tokens were cut off, and these tokens.
        split_records: records of more than one window.
        blank_words: words that the tokenizer drops (control characters, say). They become [UNK], to keep their tags.
        cut_words: words of more pieces than a window holds.
        cut_questions: questions longer than their share.
        moved_answers: answers found at another place than the stated one.
        lost_answers: records whose answers are nowhere in their text; `lost_at` holds where the first ten stand.
        inexact_answers: answers that begin or end within a token, so that the best prediction is a little longer.
        divided_answers: answers that no window holds whole.
        unanswered: records without answers.
        added_choices: empty choices, added to records with fewer than others.
    """

    records: int = 0
    features: int = 0
    cut_records: int = 0
    cut_tokens: int = 0
    split_records: int = 0
    blank_words: int = 0
    cut_words: int = 0
    cut_questions: int = 0
    moved_answers: int = 0
    lost_answers: int = 0
    lost_at: "list[str]" = field(default_factory=list)
    inexact_answers: int = 0
    divided_answers: int = 0
    unanswered: int = 0
    added_choices: int = 0

    def __str__(self) -> str:
        counts = asdict(self)
        parts = [f"{counts[name]:,} {words}" for name, words in _WORDS.items() if counts[name]]
        if self.lost_at:
            parts.append(f"the first of the lost: {', '.join(self.lost_at)}")
        return "; ".join([f"{self.records:,} records, {self.features:,} features", *parts])
