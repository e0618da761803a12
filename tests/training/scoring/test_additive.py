"""Metrics out of sums are the metrics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from paddle_nezha.training.scoring.additive import additive
from paddle_nezha.training.scoring.classes import score_classes, score_values
from paddle_nezha.training.scoring.entities import score_entities
from paddle_nezha.training.scoring.spans import score_answer

SUMS = 1e-12  # the same sums in another order


def whole(metric, labels, predictions):
    found = additive(metric, labels, predictions)
    assert found.items.shape[0] == len(labels)
    return float(found.metric(found.items.sum(0)))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_classes(pairs):
    labels, predictions = map(list, zip(*pairs))
    expected = score_classes(labels, predictions, list("abcd"))
    for metric, value in expected.items():
        assert whole(metric, labels, predictions) == pytest.approx(value, abs=SUMS)
        names = [list("abcd")[i] for i in labels], [list("abcd")[i] for i in predictions]
        assert whole(metric, *names) == pytest.approx(value, abs=SUMS)


def test_sets_of_classes():
    labels, predictions = [["a", "b"], ["a"], []], [["a"], ["a", "c"], []]
    table = [[[int(kind in row) for kind in "abc"] for row in side] for side in (labels, predictions)]
    for average in ("micro", "macro"):
        expected = metrics.f1_score(*table, average=average, zero_division=0)
        assert whole(f"{average}_f1", labels, predictions) == pytest.approx(expected, abs=SUMS)
    assert whole("subset_accuracy", labels, predictions) == 1 / 3


def test_entities():
    rows = ["B-PER I-PER O", "O O", "B-LOC B-LOC"], ["B-PER I-PER B-LOC", "O O", "B-LOC I-LOC"]
    labels, predictions = ([row.split() for row in side] for side in rows)
    expected = score_entities(labels, predictions)
    for metric in ("f1", "precision", "recall"):
        assert whole(metric, labels, predictions) == expected[metric] > 0


def test_spans_and_numbers():
    labels, predictions = [["北京", "北京市"], []], ["北京的", ""]
    assert whole("f1", labels, predictions) == (score_answer(labels[0], "北京的").f1 + 1) / 2
    assert whole("em", labels, predictions) == 0.5
    assert whole("mse", [1.0, 2.0], [1.0, 4.0]) == score_values([1.0, 2.0], [1.0, 4.0])["mse"]


def test_any_choice_of_items_has_its_score_at_once(rng):
    labels, predictions = rng.integers(0, 3, 30).tolist(), rng.integers(0, 3, 30).tolist()
    choices = rng.integers(0, 30, [5, 30])
    for metric in ("accuracy", "macro_f1", "mcc"):
        found = additive(metric, labels, predictions)
        together = found.metric(found.items[choices].sum(1))
        for choice, score in zip(choices, together):
            expected = score_classes([labels[i] for i in choice], [predictions[i] for i in choice], list("abc"))
            assert score == pytest.approx(expected[metric], abs=SUMS)


def test_the_roundings_of_a_mean_over_runs_make_no_class():
    found = additive("macro_f1", [0, 0], [0, 0])
    sums = np.stack([found.items.sum(0), [2.0, 2.0, 2.0]])
    assert found.metric(sums).tolist() == [1, 1]
    assert found.metric(np.array([2.0, 0.0, 2.0, 1e-17, 2.0, 1e-17])) == 1  # two classes, the second but a rounding


def test_what_is_not_made_of_sums_has_none():
    assert additive("spearman", [1.0], [2.0]) is None
    assert additive("accuracy", [["O"]], [["O"]]) is None
