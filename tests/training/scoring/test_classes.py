"""Scores of classes, numbers and sets of classes, by hand and beside scikit-learn and SciPy; and their edges."""

import math

import numpy as np
import pytest
from sklearn import metrics

from paddle_nezha.training.scoring.classes import (
    calibration,
    class_scores,
    confusion,
    score_classes,
    score_multilabel,
    score_values,
    worst_errors,
)

NAMES = ["正面", "负面", "中性"]
LABELS, GIVEN = [0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0]


def test_by_hand():
    # 正面 2 right of 3 there and 3 found, 负面 the same: F1 2/3 each; MCC (2*2 - 1*1) / 9.
    score = score_classes(LABELS, GIVEN, NAMES[:2])
    assert score == {"accuracy": 4 / 6, "macro_f1": pytest.approx(2 / 3), "mcc": pytest.approx(1 / 3)}
    assert confusion(LABELS, GIVEN, NAMES[:2]).tolist() == [[2, 1], [1, 2]]
    first = class_scores([0, 0, 0, 1], [0, 1, 1, 1], NAMES[:2])[0]
    assert (first.name, first.precision, first.recall, first.f1) == ("正面", 1.0, 1 / 3, 0.5)
    assert (first.support, first.predicted) == (3, 1)


def test_as_scikit_learn_has_it(rng):
    labels, given = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    names = list("abcde")
    score = score_classes(labels, given, names)
    assert score["mcc"] == metrics.matthews_corrcoef(labels, given)
    assert score["macro_f1"] == metrics.f1_score(labels, given, average="macro")
    assert (confusion(labels, given, names) == metrics.confusion_matrix(labels, given)).all()


def test_a_class_that_is_nowhere_is_in_the_table_and_not_in_the_mean():
    assert score_classes(LABELS, GIVEN, NAMES) == score_classes(LABELS, GIVEN, NAMES[:2])
    last = class_scores(LABELS, GIVEN, NAMES)[2]
    assert (last.precision, last.recall, last.f1, last.support, last.predicted) == (0, 0, 0, 0, 0)
    assert confusion(LABELS, GIVEN, NAMES)[2].tolist() == [0, 0, 0]


def test_a_class_that_is_never_predicted_counts_as_0():
    assert score_classes([0, 1], [0, 0], NAMES[:2]) == {
        "accuracy": 0.5,
        "macro_f1": pytest.approx((2 / 3 + 0) / 2),
        "mcc": 0,
    }


def test_one_class_alone():
    assert score_classes([1, 1], [1, 1], NAMES) == {"accuracy": 1, "macro_f1": 1, "mcc": 0}


@pytest.mark.parametrize(
    "labels, given, message",
    [
        ([], [], "nothing to score: no labels came"),
        ([0], [0, 1], r"one shape of 1 dimension, but have \[1\] and \[2\]"),
        ([0, 3], [0, 1], r"labels must lie in 0 .. 2, one for each of 3 names, but item 1 has 3"),
        ([0, 1], [-1, 1], "predictions must lie in 0 .. 2.*item 0 has -1"),
        (["正面"], ["正面"], "labels must be whole numbers, indices into the names"),
    ],
)
def test_what_cannot_be_scored_is_refused(labels, given, message):
    for score in (score_classes, class_scores, confusion):
        with pytest.raises(ValueError, match=message):
            score(labels, given, NAMES)


def test_calibration_by_hand():
    chances = [[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.5, 0.5]]
    found = calibration([0, 1, 1, 1], chances, bins=5)
    # (0.8, 1]: 0.9 sure, half right; (0.4, 0.6]: 0.6 and 0.5 sure, one right of two.
    assert [one.count for one in found.bins] == [0, 0, 2, 0, 2]
    assert (found.bins[2].confidence, found.bins[2].accuracy) == (pytest.approx(0.55), 0.5)
    assert math.isnan(found.bins[0].accuracy)
    assert found.error == pytest.approx((2 * 0.05 + 2 * 0.4) / 4)
    assert (found.bins[2].low, found.bins[2].high) == (pytest.approx(0.4), pytest.approx(0.6))


def test_calibration_of_a_sure_and_right_model_is_0_whatever_the_bins():
    for bins in (1, 2, 15):
        found = calibration([0, 1], [[1.0, 0.0], [0.0, 1.0]], bins)
        assert found.error == 0 and len(found.bins) == bins and found.bins[-1].count == 2


def test_a_calibrated_model_is_nearly_calibrated(rng):
    confidence = rng.uniform(0.5, 1, 20_000)
    labels = (rng.random(20_000) > confidence).astype(int)
    error = calibration(labels, np.stack([confidence, 1 - confidence], 1)).error
    # Each bin's accuracy has a standard deviation below 0.5 / sqrt(20,000 / 8) = 0.01.
    assert error < 0.02


def test_logits_are_no_probabilities():
    with pytest.raises(ValueError, match="pass the softmax of the logits"):
        calibration([0], [[2.0, -1.0]])
    with pytest.raises(ValueError, match=r"labels and probabilities must be \[N\] and \[N, C\]"):
        calibration([0, 1], [[0.5, 0.5]])
    with pytest.raises(ValueError, match="nothing to score"):
        calibration([], np.zeros([0, 2]))


def test_the_worst_errors_are_the_surest():
    chances = [[0.6, 0.4], [0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.9, 0.1]]
    found = worst_errors([1, 1, 0, 0, 1], chances, NAMES[:2], list("甲乙丙丁戊"))
    assert [(one.index, one.text, one.confidence) for one in found] == [
        (1, "乙", 0.9),
        (4, "戊", 0.9),
        (3, "丁", 0.8),
        (0, "甲", 0.6),
    ]
    assert (found[0].label, found[0].prediction) == ("负面", "正面")
    assert worst_errors([1, 1, 0, 0, 1], chances, NAMES[:2], list("甲乙丙丁戊"), limit=1) == found[:1]
    assert worst_errors([0], [[1.0, 0.0]], NAMES[:2], ["甲"]) == []
    with pytest.raises(ValueError, match="texts and names must be 1 and 2.*but are 2 and 2"):
        worst_errors([0], [[1.0, 0.0]], NAMES[:2], ["甲", "乙"])


def test_numbers():
    score = score_values([1, 2, 3, 4], [1, 2, 3, 8])
    # Pearson: sums of products 11, of squares 5 and 29.
    assert score == {"pearson": pytest.approx(11 / math.sqrt(5 * 29)), "spearman": pytest.approx(1), "mse": 4}
    constant = score_values([1, 2], [3, 3])
    assert math.isnan(constant["pearson"]) and math.isnan(constant["spearman"]) and constant["mse"] == 2.5
    with pytest.raises(ValueError, match="must be finite"):
        score_values([1, 2], [1, float("nan")])
    with pytest.raises(ValueError, match="nothing to score"):
        score_values([], [])


def test_sets_of_classes(rng):
    # Columns: 1 right; 1 there and not found; nothing at all.
    score = score_multilabel([[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 0, 0]])
    assert score == {"micro_f1": 2 * 2 / (3 + 2), "macro_f1": 0.5, "subset_accuracy": 0.5}
    labels, given = rng.integers(0, 2, [50, 4]), rng.integers(0, 2, [50, 4])
    score = score_multilabel(labels, given)
    for average in ("micro", "macro"):
        expected = metrics.f1_score(labels, given, average=average)
        assert score[f"{average}_f1"] == pytest.approx(expected, abs=1e-12)  # the same sums in another order
    assert score["subset_accuracy"] == metrics.accuracy_score(labels, given)


def test_edges_of_sets_of_classes():
    assert score_multilabel([[0]], [[0]]) == {"micro_f1": 0, "macro_f1": 0, "subset_accuracy": 1}
    with pytest.raises(ValueError, match="0 and 1 alone"):
        score_multilabel([[0, 1]], [[0.2, 0.8]])
    with pytest.raises(ValueError, match="one shape of 2 dimensions"):
        score_multilabel([0, 1], [0, 1])
