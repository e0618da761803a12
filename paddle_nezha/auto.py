"""The right class for a folder, without being told."""

from pathlib import Path
from typing import Any

from paddle_nezha import heads
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.model import NeZhaModel, NeZhaPretrainedModel
from paddle_nezha.pretrained import Folder, open_weights, weight_file

# Canonical names of the heads, used in reports and on command lines.
MODEL_CLASSES: "dict[str, type[NeZhaPretrainedModel]]" = {
    "model": NeZhaModel,
    "pretraining": heads.NeZhaForPretraining,
    "masked_lm": heads.NeZhaForMaskedLM,
    "next_sentence": heads.NeZhaForNextSentencePrediction,
    "sequence_classification": heads.NeZhaForSequenceClassification,
    "token_classification": heads.NeZhaForTokenClassification,
    "question_answering": heads.NeZhaForQuestionAnswering,
    "multiple_choice": heads.NeZhaForMultipleChoice,
}


def head_of(folder: Folder) -> str:
    """The head a folder was saved from: by its config's `architectures`, else by its tensors.

    Raises:
        ValueError: neither tells; the message says how to choose.
    """
    config = NeZhaConfig.from_pretrained(folder)
    for architecture in config.architectures or ():
        # Hugging Face writes Nezha and PreTraining; a BERT's classes bear the same endings.
        ending = architecture.lower().replace("nezha", "").replace("bert", "")
        for head, kind in MODEL_CLASSES.items():
            if kind.__name__.lower().replace("nezha", "") == ending:
                return head
    with open_weights(weight_file(Path(folder))) as tensors:
        names = list(tensors)
    has_words, has_relation = (
        any(part in name for name in names) for part in ("cls.predictions.", "cls.seq_relationship.")
    )
    if has_words or has_relation:
        return "pretraining" if has_words and has_relation else "masked_lm" if has_words else "next_sentence"
    if any("qa_outputs." in name for name in names):
        return "question_answering"
    if any("classifier." in name for name in names):
        raise ValueError(
            f"{folder} holds a classifier, but its config names no architecture, so it may classify texts, tokens or "
            "choices. Open it with the class you know it to be: NeZhaForSequenceClassification.from_pretrained(folder)."
        )
    return "model"


def load(folder: Folder, *, train: bool = False, **config_overrides: Any) -> NeZhaPretrainedModel:
    """The model of a folder, of the class it was saved from; arguments as in `from_pretrained`."""
    return MODEL_CLASSES[head_of(folder)].from_pretrained(folder, train=train, **config_overrides)
