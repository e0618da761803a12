"""Metrics as functions of sums over items, so that any choice of items has its score at once.

Accuracy is right answers over items; entity F1 is made of three counts, macro F1 and MCC of three for each class.
What cannot be written so (a rank correlation) has no entry.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from paddle_nezha.training.scoring.entities import find_entities
from paddle_nezha.training.scoring.spans import score_answer

Array = np.ndarray
_NOTHING = 1e-9  # means over runs leave roundings where there is no count; the least count is 1 over the runs


@dataclass(frozen=True)
class Additive:
    """
    Args:
        items: float [N, K], what each item adds.
        metric: sums [..., K] to scores [...]; 0 / 0 is 0.
    """

    items: Array
    metric: "Callable[[Array], Array]"


def additive(metric: str, labels: "Sequence[Any]", predictions: "Sequence[Any]") -> Optional[Additive]:
    """A metric by its name, for the labels and predictions of a file of predictions; None where it has no such form.

    Args:
        metric: accuracy, macro_f1, mcc (one class: a name or an index); macro_f1, micro_f1, subset_accuracy (a list of
            classes); f1, precision, recall (a list of tags, read leniently); em, f1 (a list of answers, and one
            predicted: the definition of CMRC); mse (numbers).
    """
    listed = isinstance(labels[0], (list, tuple))
    if metric == "accuracy" and not listed:
        return _mean([float(label == given) for label, given in zip(labels, predictions)])
    if metric == "mse" and not listed:
        return _mean([(float(label) - float(given)) ** 2 for label, given in zip(labels, predictions)])
    if metric in ("macro_f1", "mcc") and not listed:
        counts = _class_counts([[label] for label in labels], [[given] for given in predictions])
        return Additive(counts, _macro_f1 if metric == "macro_f1" else _mcc)
    if listed and isinstance(predictions[0], str) and metric in ("em", "f1"):
        scores = [score_answer(label, given) for label, given in zip(labels, predictions)]
        return _mean([getattr(score, metric) for score in scores])
    if listed and metric == "subset_accuracy":
        return _mean([float(set(label) == set(given)) for label, given in zip(labels, predictions)])
    if listed and metric in ("macro_f1", "micro_f1"):
        return Additive(_class_counts(labels, predictions), _macro_f1 if metric == "macro_f1" else _micro_f1)
    if listed and metric in _OF_ENTITIES:
        return Additive(_entity_counts(labels, predictions), _OF_ENTITIES[metric])
    return None


def _mean(scores: "list[float]") -> Additive:
    return Additive(np.stack([np.array(scores), np.ones(len(scores))], 1), lambda sums: sums[..., 0] / sums[..., 1])


def _class_counts(labels: "Sequence[Any]", predictions: "Sequence[Any]") -> Array:
    """[N, 3 C]: of each class, whether it is right, there, and found."""
    columns = {kind: i for i, kind in enumerate(sorted({k for row in (*labels, *predictions) for k in row}, key=str))}
    counts = np.zeros([len(labels), 3, len(columns)])
    for row, (label, given) in enumerate(zip(labels, predictions)):
        for place, kinds in enumerate((set(label) & set(given), set(label), set(given))):
            counts[row, place, [columns[kind] for kind in kinds]] = 1
    return counts.reshape(len(labels), -1)


def _entity_counts(labels: "Sequence[Any]", predictions: "Sequence[Any]") -> Array:
    """[N, 3]: entities right, there, and found."""
    truth, given = find_entities(labels), find_entities(predictions)
    rows = [[item.row for item in items] for items in (set(truth) & set(given), truth, given)]
    return np.stack([np.bincount(np.array(row, int), minlength=len(labels)) for row in rows], 1).astype(float)


def _split(sums: Array) -> "tuple[Array, Array, Array]":
    right, there, found = np.split(sums, 3, axis=-1)
    return right, there, found


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(below, dtype=float), where=below > _NOTHING)


def _macro_f1(sums: Array) -> Array:
    right, there, found = _split(sums)
    seen = (there + found > _NOTHING).sum(-1)
    return _ratio(_ratio(2 * right, there + found).sum(-1), seen.astype(float))


def _micro_f1(sums: Array) -> Array:
    right, there, found = (part.sum(-1) for part in _split(sums))
    return _ratio(2 * right, there + found)


def _mcc(sums: Array) -> Array:
    """Gorodkin's (2004) for any number of classes."""
    right, there, found = _split(sums)
    total = there.sum(-1)
    above = right.sum(-1) * total - (there * found).sum(-1)
    below = (total**2 - (there**2).sum(-1)) * (total**2 - (found**2).sum(-1))
    return _ratio(above, np.sqrt(np.maximum(below, 0)))


_OF_ENTITIES: "dict[str, Callable[[Array], Array]]" = {
    "f1": _micro_f1,
    "precision": lambda sums: _ratio(sums[..., 0], sums[..., 2]),
    "recall": lambda sums: _ratio(sums[..., 0], sums[..., 1]),
}
