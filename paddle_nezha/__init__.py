"""NeZha, the Chinese BERT with functional relative positions (arXiv 1909.00204), on PaddlePaddle.

    from paddle_nezha import NeZhaForMaskedLM, NeZhaTokenizer
    tokenizer, model = NeZhaTokenizer.from_pretrained(folder), NeZhaForMaskedLM.from_pretrained(folder)
    logits = model(**tokenizer("今天天气很[MASK]。", return_tensors="pd"))

Names are imported when first used: configs, tokenizers and checkpoint files work where Paddle is not installed.
"""

import zlib  # noqa: F401  before Paddle, whose release 2.6.2 exports a zlib of its own
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "config": (
        "NEZHA_PRETRAINED_INIT_CONFIGURATION",
        "NEZHA_PRETRAINED_RESOURCE_FILES_MAP",
        "NeZhaConfig",
    ),
    "tokenizer": ("NeZhaTokenizer",),
    "checkpoint": ("CheckpointError",),
    "attention": ("NeZhaAttention",),
    "model": (
        "NeZhaEmbeddings",
        "NeZhaEncoder",
        "NeZhaLayer",
        "NeZhaModel",
        "NeZhaPooler",
        "NeZhaPretrainedModel",
    ),
    "heads": (
        "NeZhaForMaskedLM",
        "NeZhaForMultipleChoice",
        "NeZhaForNextSentencePrediction",
        "NeZhaForPretraining",
        "NeZhaForQuestionAnswering",
        "NeZhaForSequenceClassification",
        "NeZhaForTokenClassification",
        "NeZhaLMPredictionHead",
        "NeZhaPretrainingHeads",
    ),
    "outputs": (
        "BaseModelOutputWithPoolingAndCrossAttentions",
        "MaskedLMOutput",
        "MultipleChoiceModelOutput",
        "NeZhaForPreTrainingOutput",
        "NextSentencePredictorOutput",
        "QuestionAnsweringModelOutput",
        "SequenceClassifierOutput",
        "TokenClassifierOutput",
    ),
    "auto": ("load",),
    "export": ("load_op",),
    "pipelines": ("pipeline",),
    "tuning": ("tune_cpu",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from paddle_nezha.attention import *  # noqa: F403
    from paddle_nezha.auto import *  # noqa: F403
    from paddle_nezha.checkpoint import *  # noqa: F403
    from paddle_nezha.config import *  # noqa: F403
    from paddle_nezha.export import load_op  # noqa: F401
    from paddle_nezha.heads import *  # noqa: F403
    from paddle_nezha.model import *  # noqa: F403
    from paddle_nezha.outputs import *  # noqa: F403
    from paddle_nezha.pipelines import pipeline  # noqa: F401
    from paddle_nezha.tokenizer import *  # noqa: F403
    from paddle_nezha.tuning import tune_cpu  # noqa: F401


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'paddle_nezha' has no attribute {name!r}")
    return getattr(import_module(f"paddle_nezha.{_HOME_OF[name]}"), name)


def __dir__() -> "list[str]":
    return [*__all__, "__version__"]
