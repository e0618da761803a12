"""The right class for a folder, without being told."""

from typing import Any, Optional

from paddle_nezha import heads
from paddle_nezha.checkpoint import open_checkpoint
from paddle_nezha.checkpoint.heads import head_of_class, head_of_tensors
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.hub import resolve
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


def load(name_or_folder: Folder, *, cache_dir: Optional[Folder] = None, **options: Any) -> NeZhaPretrainedModel:
    """The model of a published name or a folder, of the class it was saved from; options as in `from_pretrained`."""
    folder = resolve(name_or_folder, cache_dir=cache_dir)
    return MODEL_CLASSES[head_of(folder)].from_pretrained(folder, **options)
