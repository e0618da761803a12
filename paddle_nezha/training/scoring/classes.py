"""One class of several (scikit-learn): scores, the table of classes, confusion, calibration and the worst errors.

Beside it what a sequence head also does: one number (regression), and any number of classes (multi-label).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class ClassScore:
    """One class. What is 0 / 0 (never predicted, never there) counts as 0.

    Args:
        support: how many items have this label.
        predicted: how many items were given it.
    """

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


@dataclass(frozen=True)
class Bin:
    """Items whose confidence lies in (low, high]; confidence and accuracy are means over them, NaN without any."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """How far confidence is from accuracy.

    Args:
        error: the expected calibration error of Guo et al. (2017, arXiv:1706.04599): over the bins, the mean of
            |accuracy - confidence| weighted by the items in each.
        bins: of equal width over 0 .. 1, the empty ones too.
    """

    error: float
    bins: "tuple[Bin, ...]"


@dataclass(frozen=True)
class WrongClass:
    """One item that was given a wrong class; confidence is the probability of that class."""

    index: int
    text: str
    label: str
    prediction: str
    confidence: float


def score_classes(labels: Any, predictions: Any, names: "Sequence[str]") -> "dict[str, float]":
    """Accuracy, macro F1 and the Matthews correlation.

    Args:
        labels, predictions: int [N], indices into `names`.
        names: of the classes, C of them.

    Returns:
        accuracy, macro_f1, mcc. Macro F1 is the plain mean over the classes that are there or were predicted (as in
        scikit-learn); mcc is 0 where labels or predictions are all one class.

    Raises:
        ValueError: no items, shapes that differ, an index without a name.
    """
    from sklearn import metrics

    truth, given = _indices(labels, predictions, names)
    several = len(np.unique(np.concatenate([truth, given]))) > 1  # of one class alone scikit-learn warns
    return {
        "accuracy": float((truth == given).mean()),
        "macro_f1": float(metrics.f1_score(truth, given, average="macro", zero_division=0)),
        "mcc": float(metrics.matthews_corrcoef(truth, given)) if several else 0.0,
    }


def class_scores(labels: Any, predictions: Any, names: "Sequence[str]") -> "list[ClassScore]":
    """Every class in the order of `names`, those without items too; arguments and errors of `score_classes`."""
    from sklearn import metrics

    truth, given = _indices(labels, predictions, names)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        truth, given, labels=range(len(names)), zero_division=0
    )
    predicted = np.bincount(given, minlength=len(names))
    return [
        ClassScore(name, float(precision[i]), float(recall[i]), float(f1[i]), int(support[i]), int(predicted[i]))
        for i, name in enumerate(names)
    ]


def confusion(labels: Any, predictions: Any, names: "Sequence[str]") -> Array:
    """int64 [C, C]: how many items of the row's label were given the column's; as for `score_classes`."""
    truth, given = _indices(labels, predictions, names)
    size = len(names)
    return np.bincount(truth * size + given, minlength=size * size).reshape(size, size).astype(np.int64)


def calibration(labels: Any, probabilities: Any, bins: int = 15) -> Calibration:
    """The confidence of the predicted class against how often it is right.

    Args:
        labels: int [N].
        probabilities: float [N, C], each row adding up to 1; the greatest is the prediction, and its confidence.
        bins: of equal width. Guo et al. use 15; the error depends on their number, so state it beside the error.

    Raises:
        ValueError: no items, shapes that do not fit, or rows that are no probabilities (logits, say).
    """
    truth, chances = _chances(labels, probabilities)
    confidence = chances.max(1)
    right = chances.argmax(1) == truth
    edges = np.linspace(0, 1, bins + 1)
    # A confidence is above 0, and may exceed 1 by a rounding.
    home = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    table = []
    for number in range(bins):
        inside = home == number
        count = int(inside.sum())
        table.append(
            Bin(
                float(edges[number]),
                float(edges[number + 1]),
                count,
                float(confidence[inside].mean()) if count else float("nan"),
                float(right[inside].mean()) if count else float("nan"),
            )
        )
    error = sum(item.count * abs(item.accuracy - item.confidence) for item in table if item.count) / len(truth)
    return Calibration(float(error), tuple(table))


def worst_errors(
    labels: Any, probabilities: Any, names: "Sequence[str]", texts: "Sequence[str]", limit: int = 20
) -> "list[WrongClass]":
    """The wrong predictions a model was surest of, the surest first; equal ones in the order of the items.

    Args:
        labels, probabilities: int [N] and float [N, C], as for `calibration`.
        texts: N of them.
    """
    truth, chances = _chances(labels, probabilities)
    _check_range(truth, names, "labels")
    if len(texts) != len(truth) or chances.shape[1] != len(names):
        raise ValueError(
            f"texts and names must be {len(truth)} and {chances.shape[1]}, one for each row and column of the "
            f"probabilities, but are {len(texts)} and {len(names)}."
        )
    given, confidence = chances.argmax(1), chances.max(1)
    wrong = np.flatnonzero(given != truth)
    order = wrong[np.argsort(-confidence[wrong], kind="stable")][:limit]
    return [WrongClass(int(i), texts[i], names[truth[i]], names[given[i]], float(confidence[i])) for i in order]


def score_values(labels: Any, predictions: Any) -> "dict[str, float]":
    """Regression, as of sentence similarity.

    Args:
        labels, predictions: float [N].

    Returns:
        pearson, spearman, mse. A correlation is NaN where one side is constant or N is 1: it is not defined there.

    Raises:
        ValueError: no items, shapes that differ, or a value that is not finite.
    """
    from scipy import stats

    truth, given = np.asarray(labels, float), np.asarray(predictions, float)
    _check_items(truth, given)
    if not (np.isfinite(truth).all() and np.isfinite(given).all()):
        raise ValueError("labels and predictions must be finite numbers, but some are NaN or infinite.")
    constant = np.ptp(truth) == 0 or np.ptp(given) == 0
    return {
        "pearson": float("nan") if constant else float(stats.pearsonr(truth, given)[0]),
        "spearman": float("nan") if constant else float(stats.spearmanr(truth, given)[0]),
        "mse": float(((truth - given) ** 2).mean()),
    }


def score_multilabel(labels: Any, predictions: Any) -> "dict[str, float]":
    """Any number of classes for each item.

    Args:
        labels, predictions: bool or 0/1 [N, C].

    Returns:
        micro_f1 over all decisions; macro_f1, the mean over the classes that are there or were predicted; and
        subset_accuracy, the share of items with every class right. F1 is 0 where nothing is there or predicted.

    Raises:
        ValueError: no items, shapes that differ, or values other than 0 and 1.
    """
    truth, given = np.asarray(labels), np.asarray(predictions)
    _check_items(truth, given, dimensions=2)
    if not (np.isin(truth, (0, 1)).all() and np.isin(given, (0, 1)).all()):
        raise ValueError(
            "labels and predictions must hold 0 and 1 alone; compare probabilities with a threshold first."
        )
    truth, given = truth.astype(bool), given.astype(bool)
    # scikit-learn takes a single column for something else (two classes), so its formula stands here.
    right, there, found = (truth & given).sum(0), truth.sum(0), given.sum(0)
    seen = there + found > 0
    each = 2 * right[seen] / (there + found)[seen]
    return {
        "micro_f1": float(2 * right.sum() / max((there + found).sum(), 1)),
        "macro_f1": float(each.mean()) if seen.any() else 0.0,
        "subset_accuracy": float((truth == given).all(1).mean()),
    }


def _indices(labels: Any, predictions: Any, names: "Sequence[str]") -> "tuple[Array, Array]":
    truth, given = np.asarray(labels), np.asarray(predictions)
    _check_items(truth, given)
    for name, values in (("labels", truth), ("predictions", given)):
        _check_range(values, names, name)
    return truth.astype(np.int64), given.astype(np.int64)


def _check_items(truth: Array, given: Array, dimensions: int = 1) -> None:
    if truth.shape != given.shape or truth.ndim != dimensions:
        raise ValueError(
            f"labels and predictions must have one shape of {dimensions} "
            f"dimension{'s' * (dimensions > 1)}, but have {list(truth.shape)} and {list(given.shape)}."
        )
    _check_some(truth)


def _check_some(truth: Array) -> None:
    if not len(truth):
        raise ValueError("There is nothing to score: no labels came. See that the file that was read has records.")


def _check_range(values: Array, names: "Sequence[str]", what: str) -> None:
    if values.dtype.kind not in "iu":
        raise ValueError(f"{what} must be whole numbers, indices into the names, but are {values.dtype}.")
    wrong = np.flatnonzero((values < 0) | (values >= len(names)))
    if len(wrong):
        raise ValueError(
            f"{what} must lie in 0 .. {len(names) - 1}, one for each of {len(names)} names, but item {wrong[0]} "
            f"has {values[wrong[0]]}."
        )


def _chances(labels: Any, probabilities: Any) -> "tuple[Array, Array]":
    truth, chances = np.asarray(labels), np.asarray(probabilities, float)
    if truth.ndim != 1 or chances.ndim != 2 or len(truth) != len(chances):
        raise ValueError(
            "labels and probabilities must be [N] and [N, C], but have shapes "
            f"{list(truth.shape)} and {list(chances.shape)}."
        )
    _check_some(truth)
    # A float32 softmax of many classes adds up to 1 within about C roundings; logits do not come near.
    if not ((chances >= 0).all() and np.abs(chances.sum(1) - 1).max() < 1e-3):
        raise ValueError(
            "probabilities must be at least 0 and add up to 1 in each row: pass the softmax of the logits."
        )
    return truth, chances
