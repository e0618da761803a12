"""Means, intervals and tests of several runs: by hand, beside SciPy, and their rate of false alarms."""

import math

import numpy as np
import pytest
from scipy import stats

from paddle_nezha.training.scoring.additive import additive
from paddle_nezha.training.statistics import compare_items, compare_seeds, mcnemar, summarize

SUMS = 1e-12  # the same sums in another order
LEFT, RIGHT = [0.92, 0.93, 0.915, 0.94, 0.925], [0.91, 0.925, 0.913, 0.921, 0.922]


def mean(sums):
    return sums[..., 0] / sums[..., 1]


def rows(right):
    return np.stack([np.asarray(right, float), np.ones(len(right))], 1)


def test_several_runs_by_hand():
    found = summarize([0.1, 0.2, 0.3])
    assert (found.n, found.least, found.greatest) == (3, 0.1, 0.3)
    assert (found.mean, found.sd) == (pytest.approx(0.2), pytest.approx(0.1))
    half = 4.302652729911275 * 0.1 / math.sqrt(3)  # t of 2 degrees of freedom at 0.975, from a table
    assert (found.low, found.high) == (pytest.approx(0.2 - half), pytest.approx(0.2 + half))


def test_one_run_has_no_spread():
    found = summarize([0.5])
    assert (found.n, found.mean, found.sd, found.low, found.high) == (1, 0.5, None, None, None)
    assert (found.least, found.greatest) == (0.5, 0.5)


@pytest.mark.parametrize("values", [[], [0.5, float("nan")], [float("inf")]])
def test_what_is_no_score_is_refused(values):
    with pytest.raises(ValueError, match="the scores of one run or more, all finite numbers"):
        summarize(values)


def test_seeds_as_scipy_has_them():
    for paired, expected in (
        (True, stats.ttest_rel(LEFT, RIGHT)),
        (False, stats.ttest_ind(LEFT, RIGHT, equal_var=False)),
    ):
        found, ends = compare_seeds(LEFT, RIGHT, paired), expected.confidence_interval()
        assert found.p == pytest.approx(expected.pvalue, rel=1e-9)  # SciPy adds up in another order
        assert (found.low, found.high) == (pytest.approx(ends.low, abs=SUMS), pytest.approx(ends.high, abs=SUMS))
        assert found.difference == pytest.approx(np.mean(LEFT) - np.mean(RIGHT), abs=SUMS)
    assert compare_seeds(LEFT, RIGHT, True).wilcoxon_p == 2 / 2**5  # all five on one side
    assert compare_seeds(LEFT, RIGHT, False).wilcoxon_p is None
    unequal = compare_seeds(LEFT, RIGHT[:3], False)
    assert unequal.n == (5, 3)
    assert unequal.p == pytest.approx(stats.ttest_ind(LEFT, RIGHT[:3], equal_var=False).pvalue, rel=1e-9)


def test_pairs_see_what_independent_sets_do_not(rng):
    common = rng.normal(0.8, 0.05, 6)
    better = common + 0.01 + rng.normal(0, 0.002, 6)
    assert compare_seeds(better, common, True).p < 0.01 < 0.5 < compare_seeds(better, common, False).p


def test_runs_without_spread():
    equal = compare_seeds([0.5, 0.6], [0.5, 0.6], True)
    assert (equal.difference, equal.p, equal.wilcoxon_p, equal.more_seeds) == (0, 1, 1, None)
    # 0.1 each time: two signs alike are as rare as 1 in 2, six are 1 in 32.
    steady = compare_seeds([0.6, 0.7], [0.5, 0.6], True)
    assert (steady.p, steady.more_seeds) == (0.5, 4)
    # Two and two on either side of a line: 2 of 6 ways; four and four are 2 of 70.
    apart = compare_seeds([0.6, 0.6], [0.5, 0.5], False)
    assert (apart.p, apart.more_seeds) == (2 / 6, 2)
    assert compare_seeds([0.5, 0.5], [0.5, 0.5], False).p == 1


def test_more_seeds_are_those_of_the_published_tables():
    # Cohen's d of 0.5 at 80 % and two-sided 0.05 takes 34 pairs, or 64 on each side.
    pairs = np.array([-1.0, 1.0, 0.0]) + 0.5  # mean 0.5, sd 1
    assert compare_seeds(pairs, [0, 0, 0], True).more_seeds == 34 - 3
    side = np.array([-1.0, 0.0, 1.0])
    assert compare_seeds(side + 0.5, side, False).more_seeds == 64 - 3
    assert compare_seeds(side + 0.01, side, False).more_seeds is None
    assert compare_seeds(side + 100, side, False).more_seeds == 0


def test_too_few_runs_are_refused():
    with pytest.raises(ValueError, match="from two runs on each side, but there are 1 and 2"):
        compare_seeds([0.5], [0.5, 0.6], False)
    with pytest.raises(ValueError, match="as many on each side, but there are 3 and 2"):
        compare_seeds([0.5, 0.6, 0.7], [0.5, 0.6], True)


def test_mcnemar_by_hand():
    # 8 right in the first alone, 1 in the second alone: 2 * (1 + 9) / 2**9.
    first, second = [1] * 8 + [0] + [1] * 5 + [0] * 3, [0] * 8 + [1] + [1] * 5 + [0] * 3
    assert mcnemar(first, second) == pytest.approx(20 / 512)
    assert mcnemar(first, first) == 1
    found = compare_items(rows(first), rows(second), mean)
    assert (found.test, found.items, found.rounds) == ("McNemar", 17, 0)
    assert found.p == mcnemar(first, second) and found.difference == pytest.approx(7 / 17)


def test_the_permutation_of_single_runs_is_mcnemar(rng):
    first, second = rng.random(300) < 0.8, rng.random(300) < 0.75
    exact = mcnemar(first, second)
    # With -1 beside it as a third sum, unused, the items are not of the kind that McNemar's test takes.
    wide = [np.concatenate([rows(side), -np.ones([300, 1])], 1) for side in (first, second)]
    found = compare_items(*wide, mean, rounds=20_000)
    assert found.test == "permutation" and 0.02 < exact < 0.98
    assert abs(found.p - exact) < 5 * math.sqrt(exact * (1 - exact) / 20_000)  # five standard deviations of the draw


def test_the_bootstrap_interval_is_that_of_the_mean(rng):
    first, second = rng.random(4000) < 0.8, rng.random(4000) < 0.7
    found = compare_items(rows(first), rows(second), mean, rounds=4000)
    differences = first.astype(float) - second
    half = 1.959964 * differences.std() / math.sqrt(4000)
    # The quantile of 4,000 draws is good to about 4 % of the half.
    assert found.low == pytest.approx(differences.mean() - half, abs=0.12 * half)
    assert found.high == pytest.approx(differences.mean() + half, abs=0.12 * half)


def test_means_of_several_runs_and_metrics_of_sets(rng):
    labels = rng.integers(0, 3, 400)
    good = [np.where(rng.random(400) < 0.9, labels, (labels + 1) % 3) for _ in range(3)]
    bad = [np.where(rng.random(400) < 0.7, labels, (labels + 1) % 3) for _ in range(3)]
    for metric in ("accuracy", "macro_f1", "mcc"):
        whole = additive(metric, labels.tolist() * 6, np.concatenate(good + bad).tolist())
        items = whole.items.reshape(6, 400, -1)
        found = compare_items(items[:3].mean(0), items[3:].mean(0), whole.metric, rounds=500)
        assert found.test == "permutation" and found.p == 1 / 501
        assert 0.1 < found.low < found.difference < found.high < 0.4
        back = compare_items(items[3:].mean(0), items[:3].mean(0), whole.metric, rounds=500)
        assert back.difference == pytest.approx(-found.difference, abs=SUMS)
        same = compare_items(items[:3].mean(0), items[:3].mean(0), whole.metric, rounds=500)
        assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_the_same_draws_give_the_same_answer(rng):
    first, second = (rng.integers(0, 4, [50, 1]) / 3 for _ in range(2))
    pair = [np.concatenate([side, np.ones([50, 1])], 1) for side in (first, second)]
    assert compare_items(*pair, mean, 500) == compare_items(*pair, mean, 500)
    assert compare_items(*pair, mean, 500) != compare_items(*pair, mean, 500, seed=1)


def test_false_alarms_are_as_rare_as_they_should_be(rng):
    """Two systems that are equally good differ at 0.05 in one of twenty comparisons at most."""
    alarms = {"seeds": 0, "items": 0}
    for _ in range(300):
        alarms["seeds"] += compare_seeds(*rng.normal(0.9, 0.01, [2, 5]), True).p < 0.05
        # Half-right answers: a permutation, not McNemar.
        items = rng.integers(0, 3, [2, 60, 1]) / 2
        first, second = np.concatenate([items, np.ones_like(items)], 2)
        alarms["items"] += compare_items(first, second, mean, rounds=200).p < 0.05
    # 15 are expected, and 1 time in 100,000 there are more than 33 or fewer than 2.
    assert stats.binom.sf(33, 300, 0.05) < 1e-5 and stats.binom.cdf(1, 300, 0.05) < 1e-5
    assert all(2 <= count <= 33 for count in alarms.values())


def test_items_must_fit():
    with pytest.raises(ValueError, match=r"two arrays \[items, sums\], but got \[3, 2\] and \[2, 2\]"):
        compare_items(np.ones([3, 2]), np.ones([2, 2]), mean)
    with pytest.raises(ValueError, match=r"but got \[0, 2\] and \[0, 2\]"):
        compare_items(np.ones([0, 2]), np.ones([0, 2]), mean)
