"""The right class for a folder, without being told."""

from typing import Any

from paddle_nezha import heads
from paddle_nezha.checkpoint import open_checkpoint
from paddle_nezha.checkpoint.heads import head_of_class, head_of_tensors
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.model import NeZhaModel, NeZhaPretrainedModel
from paddle_nezha.pretrained import Folder

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
    for architecture in NeZhaConfig.from_pretrained(folder).architectures or ():
        head = head_of_class(architecture)
        if head:
            return head
    with open_checkpoint(folder) as opened:
        head = head_of_tensors(opened.tensors)
    if head is None:
        raise ValueError(
            f"{folder} holds a classifier, but its config names no architecture, so it may classify texts, tokens or "
            "choices. Open it with the class you know it to be: NeZhaForSequenceClassification.from_pretrained(folder)."
        )
    return head


def load(folder: Folder, *, train: bool = False, **config_overrides: Any) -> NeZhaPretrainedModel:
    """The model of a folder, of the class it was saved from; arguments as in `from_pretrained`."""
    return MODEL_CLASSES[head_of(folder)].from_pretrained(folder, train=train, **config_overrides)
