"""Records to features, the numbers a model reads, through `NeZhaTokenizer`. Needs no Paddle.

A feature is a dict of plain lists and numbers; `paddle_nezha.training.collators` makes padded arrays of lists of them.
Every function returns its features and a `FeatureReport` that counts what was cut, dropped or mended on the way.
"""

from .answers import SpanAnswer, SpanCandidate, best_spans
from .choices import best_choices, choice_features
from .report import FeatureReport
from .sentences import sentence_features
from .spans import span_features
from .tokens import token_features, word_tags
from .words import language_features

__all__ = [
    "FeatureReport",
    "SpanAnswer",
    "SpanCandidate",
    "best_choices",
    "best_spans",
    "choice_features",
    "language_features",
    "sentence_features",
    "span_features",
    "token_features",
    "word_tags",
]
