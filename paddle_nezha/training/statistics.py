"""Numbers of several runs: their mean, spread and interval, and whether two sets of them differ beyond noise.

Two kinds of noise are kept apart. Seeds: another seed gives another model; tested over runs, with Student's t on the
differences where the runs pair, and Welch's otherwise. Test items: another test file gives another score; tested over
items with a permutation of the two systems' answers; for single runs and answers right or wrong that is McNemar's test.

Scores are shares, 0 .. 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

Array = np.ndarray
CONFIDENCE = 0.95
SIGNIFICANT = 1 - CONFIDENCE
POWER = 0.8  # the field's custom: four of five such experiments would tell
MOST_SEEDS = 1000
_ROUNDING = 1e-12  # far above what float64 loses on shares, far below one test item
_AT_ONCE = 500  # rounds of resampling held in memory together


@dataclass(frozen=True)
class Summary:
    """Several runs of one metric.

    Args:
        sd: the sample standard deviation (n - 1); None for one run, as are the ends.
        low, high: the interval of 95 % for the mean, by the t distribution, cut at the ends of what a score can be. No
            mean lies beyond them, so that an interval holds it as often as without the cut. (Two runs or three often
            give an interval that reaches both ends: they say little, and no transformation of the scores would make
            them say more.)
    """

    n: int
    mean: float
    sd: Optional[float]
    low: Optional[float]
    high: Optional[float]
    least: float
    greatest: float


@dataclass(frozen=True)
class SeedTest:
    """Two sets of runs over their seeds; every difference is the first's mean minus the second's.

    Args:
        paired: over the differences of each seed, or over two independent sets.
        low, high: the interval of 95 % of the difference, as far on either side of it; nothing is cut.
        p: two-sided, of the t test; exact over all swaps where runs have no spread at all.
        wilcoxon_p: the signed-rank test beside it, paired alone; with n seeds it is never below 2 / 2**n.
        more_seeds: how many seeds on each side, beyond those of the larger, would find a difference as great as this
            in four of five experiments; 0 where it is found already, None where 1,000 would not do.
    """

    paired: bool
    n: "tuple[int, int]"
    difference: float
    low: float
    high: float
    p: float
    wilcoxon_p: Optional[float]
    more_seeds: Optional[int]


@dataclass(frozen=True)
class ItemTest:
    """Two systems over the items of one test file.

    Args:
        test: "McNemar" or "permutation".
        low, high: the interval of 95 % of the difference, by a paired bootstrap over items.
        rounds: of permutation and of bootstrap; 0 where p is exact.
    """

    test: str
    items: int
    difference: float
    low: float
    high: float
    p: float
    rounds: int


def summarize(values: "Sequence[float]", within: "tuple[float, float]" = (-math.inf, math.inf)) -> Summary:
    """
    Args:
        values: the scores of at least one run.
        within: the least and the greatest that such a score can be.

    Raises:
        ValueError: none, or one that is no finite number.
    """
    scores = _finite(values)
    mean = float(scores.mean())
    if len(scores) == 1:
        return Summary(1, mean, None, None, None, mean, mean)
    sd = float(scores.std(ddof=1))
    half = _t_quantile(len(scores) - 1) * sd / math.sqrt(len(scores))
    low, high = max(mean - half, within[0]), min(mean + half, within[1])
    return Summary(len(scores), mean, sd, low, high, float(scores.min()), float(scores.max()))


def compare_seeds(first: "Sequence[float]", second: "Sequence[float]", paired: bool) -> SeedTest:
    """Whether two ways of training differ beyond what seeds do.

    Args:
        first, second: scores, at least two each; paired ones have the same seed at the same place.

    Raises:
        ValueError: fewer than two, pairs of different numbers, or a score that is no finite number.
    """
    left, right = _finite(first), _finite(second)
    if min(len(left), len(right)) < 2:
        raise ValueError(
            f"Seeds can be compared from two runs on each side, but there are {len(left)} and {len(right)}."
        )
    if not paired:
        return _welch(left, right)
    if len(left) != len(right):
        raise ValueError(f"Paired runs are as many on each side, but there are {len(left)} and {len(right)}.")
    return _paired(left - right)


def _paired(differences: Array) -> SeedTest:
    from scipy import stats

    n = len(differences)
    mean, sd = _rounded(differences.mean(), differences), _rounded(differences.std(ddof=1), differences)
    error = sd / math.sqrt(n)
    if sd:
        p = float(2 * stats.t.sf(abs(mean) / error, n - 1))
    else:
        p = _all_signs_alike(n) if mean else 1.0
    half = _t_quantile(n - 1) * error
    signed = differences[np.abs(differences) > _ROUNDING]  # rounding makes ties look like none
    wilcoxon = float(stats.wilcoxon(signed).pvalue) if len(signed) else 1.0
    more = _more_seeds(p, abs(mean), sd, n, lambda n: (n - 1, math.sqrt(n)), _all_signs_alike)
    return SeedTest(True, (n, n), mean, mean - half, mean + half, p, wilcoxon, more)


def _all_signs_alike(n: int) -> float:
    return 2.0 ** (1 - n)


def _welch(left: Array, right: Array) -> SeedTest:
    from scipy import stats

    n, m = len(left), len(right)
    mean = _rounded(left.mean() - right.mean(), np.concatenate([left, right]))
    a, b = (_rounded(side.std(ddof=1), side) ** 2 / len(side) for side in (left, right))
    half = 0.0
    if a + b:
        freedom = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
        p = float(2 * stats.t.sf(abs(mean) / math.sqrt(a + b), freedom))
        half = _t_quantile(freedom) * math.sqrt(a + b)
    else:
        p = _apart(n, m) if mean else 1.0
    spread = math.sqrt((a * n + b * m) / 2)
    more = _more_seeds(p, abs(mean), spread, max(n, m), lambda n: (2 * n - 2, math.sqrt(n / 2)), lambda n: _apart(n, n))
    return SeedTest(False, (n, m), mean, mean - half, mean + half, p, None, more)


def _apart(n: int, m: int) -> float:
    """How rare it is that two sets fall on either side of a line."""
    return 2 / math.comb(n + m, n)


def compare_items(
    first: Array,
    second: Array,
    metric: "Callable[[Array], Array]",
    rounds: int = 10_000,
    seed: int = 0,
) -> ItemTest:
    """Whether two systems differ on a test file beyond what its choice of items does.

    Args:
        first, second: float [N, K], what each item adds to the sums of which the metric is made, such as right answers
            and 1; of several runs, their mean.
        metric: sums [..., K] to scores [...].
        rounds: of permutation (each item's answers change sides or not) and of bootstrap (N items drawn anew).
        seed: of their draws.

    Raises:
        ValueError: no items, or shapes that differ.
    """
    first, second = np.asarray(first, float), np.asarray(second, float)
    if first.shape != second.shape or first.ndim != 2 or not len(first):
        raise ValueError(f"Expected two arrays [items, sums], but got {list(first.shape)} and {list(second.shape)}.")
    # Items alike in both systems are drawn together: a few kinds in place of all items.
    kinds, counts = np.unique(np.hstack([first, second]), axis=0, return_counts=True)
    left, right = np.split(kinds, 2, axis=1)
    difference = float(metric(counts @ left) - metric(counts @ right))
    draw = np.random.default_rng(seed)
    low, high = _bootstrap(left, right, counts, metric, rounds, draw)
    if _right_or_wrong(first) and _right_or_wrong(second):
        return ItemTest("McNemar", len(first), difference, low, high, mcnemar(first[:, 0], second[:, 0]), 0)
    p = _permutation(left, right, counts, metric, rounds, draw)
    return ItemTest("permutation", len(first), difference, low, high, p, rounds)


def mcnemar(first: Any, second: Any) -> float:
    """The exact two-sided p of McNemar's test.

    Args:
        first, second: bool or 0/1 [N], whether each item was right.
    """
    from scipy import stats

    left, right = np.asarray(first, bool), np.asarray(second, bool)
    ahead, behind = int((left & ~right).sum()), int((right & ~left).sum())
    return float(stats.binomtest(ahead, ahead + behind).pvalue) if ahead + behind else 1.0


def _right_or_wrong(items: Array) -> bool:
    return items.shape[1] == 2 and bool(np.isin(items[:, 0], (0, 1)).all() and (items[:, 1] == 1).all())


def _bootstrap(
    left: Array, right: Array, counts: Array, metric: "Callable[[Array], Array]", rounds: int, draw: np.random.Generator
) -> "tuple[float, float]":
    total = int(counts.sum())
    differences = []
    for size in _portions(rounds):
        times = draw.multinomial(total, counts / total, size)
        differences.append(metric(times @ left) - metric(times @ right))
    low, high = np.quantile(np.concatenate(differences), [SIGNIFICANT / 2, 1 - SIGNIFICANT / 2])
    return float(low), float(high)


def _permutation(
    left: Array, right: Array, counts: Array, metric: "Callable[[Array], Array]", rounds: int, draw: np.random.Generator
) -> float:
    sums, other = counts @ left, counts @ right
    observed = abs(float(metric(sums) - metric(other)))
    change = right - left
    moving = change.any(1)
    beyond = 0
    for size in _portions(rounds):
        moved = draw.binomial(counts[moving], 0.5, (size, int(moving.sum()))) @ change[moving]
        beyond += int((np.abs(metric(sums + moved) - metric(other - moved)) >= observed - _ROUNDING).sum())
    return (beyond + 1) / (rounds + 1)  # the observed one is one of them


def _portions(rounds: int) -> "list[int]":
    return [min(_AT_ONCE, rounds - done) for done in range(0, rounds, _AT_ONCE)]


def _more_seeds(
    p: float,
    difference: float,
    spread: float,
    n: int,
    design: "Callable[[int], tuple[float, float]]",
    exact: "Callable[[int], float]",
) -> Optional[int]:
    """
    Args:
        n: seeds on a side now, which did not find the difference if p says so.
        design: seeds on a side to the degrees of freedom, and to what makes difference / spread the noncentrality.
        exact: seeds on a side to the p of runs without any spread.
    """
    from scipy import stats

    if p < SIGNIFICANT:
        return 0
    if not difference:
        return None

    def enough(count: int) -> bool:
        if not spread:
            return exact(count) < SIGNIFICANT
        freedom, factor = design(count)
        return bool(stats.nct.sf(_t_quantile(freedom), freedom, factor * difference / spread) >= POWER)

    if not enough(MOST_SEEDS):
        return None
    low, high = n, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high - n


def _t_quantile(freedom: float) -> float:
    from scipy import stats

    return float(stats.t.ppf(1 - SIGNIFICANT / 2, freedom))


def _rounded(value: float, among: Array) -> float:
    """The value, or 0 where it is but the rounding of numbers of this size."""
    return float(value) if abs(value) > _ROUNDING * max(1.0, float(np.abs(among).max())) else 0.0


def _finite(values: "Sequence[float]") -> Array:
    scores = np.asarray(values, float)
    if not scores.size or not np.isfinite(scores).all():
        raise ValueError(f"Expected the scores of one run or more, all finite numbers, but got {list(values)}.")
    return scores
