"""Pre-training and what it needs: text to examples without any framework, and the trainer on Paddle."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "collators": (
        "DataCollatorForLanguageModeling",
        "DataCollatorForMultipleChoice",
        "DataCollatorForQuestionAnswering",
        "DataCollatorForTokenClassification",
        "DataCollatorWithPadding",
    ),
    "features": (
        "FeatureReport",
        "best_choices",
        "best_spans",
        "choice_features",
        "language_features",
        "sentence_features",
        "span_features",
        "token_features",
        "word_tags",
    ),
    "sampling": ("LengthBatchSampler", "feature_lengths"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from paddle_nezha.training.collators import *  # noqa: F403
    from paddle_nezha.training.features import *  # noqa: F403
    from paddle_nezha.training.sampling import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'paddle_nezha.training' has no attribute {name!r}")
    return getattr(import_module(f"paddle_nezha.training.{_HOME_OF[name]}"), name)


def __dir__() -> "list[str]":
    return list(__all__)
