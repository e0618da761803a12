"""Which head a checkpoint was saved from, by its config or by its tensors."""

from collections.abc import Iterable
from typing import Optional

from .dialects import detect

# The ending of a class's name, in small letters, as every code base spells it after its model's name.
_ENDINGS = {
    "model": "model",
    "forpretraining": "pretraining",
    "formaskedlm": "masked_lm",
    "fornextsentenceprediction": "next_sentence",
    "forsequenceclassification": "sequence_classification",
    "fortokenclassification": "token_classification",
    "forquestionanswering": "question_answering",
    "formultiplechoice": "multiple_choice",
}


def head_of_class(name: str) -> Optional[str]:
    """The head that a class name of an `architectures` list means, be it NeZhaForMaskedLM, NezhaForMaskedLM or
    BertForMaskedLM."""
    return _ENDINGS.get(name.lower().replace("nezha", "", 1).replace("bert", "", 1))


def head_of_tensors(names: Iterable[str]) -> Optional[str]:
    """The head by the tensors' names, ours or another code base's; None where a classifier may be any of three."""
    names = list(names)
    dialect = detect(names)
    ours = {weight.ours for weight in map(dialect.to_ours, names) if weight is not None}

    def some(part: str) -> bool:
        return any(name.startswith(part) for name in ours)

    words, relation = some("cls.predictions."), some("cls.seq_relationship.")
    if words or relation:
        return "pretraining" if words and relation else "masked_lm" if words else "next_sentence"
    if any("qa_outputs." in name or "cls/squad/" in name for name in names):
        return "question_answering"
    return None if some("classifier.") else "model"
