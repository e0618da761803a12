"""Two sets of fine-tuning runs: which is better, by how much, and whether that is more than noise, in one sentence."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from paddle_nezha._files import PathLike
from paddle_nezha.training.scoring import IN_TRAIN, UNSEEN
from paddle_nezha.training.scoring.additive import additive
from paddle_nezha.training.statistics import (
    MOST_SEEDS,
    SIGNIFICANT,
    ItemTest,
    SeedTest,
    Summary,
    compare_items,
    compare_seeds,
    summarize,
)

RESULT = "result.json"
SPLITS = ("test", "dev")
OF_SEEDS = "Intervals are of the mean over seeds: what other seeds would give, not what other texts would."
LOWER_IS_BETTER = ("mse", "loss")
_CORRELATIONS = ("mcc", "pearson", "spearman")
_SAME_SCORE = 1e-4  # a result may have been written with four digits


@dataclass(frozen=True)
class SeedRun:
    """One seed's scores, and the file of its test predictions."""

    seed: int
    dev: "dict[str, float]"
    test: "dict[str, float]"
    predictions: Optional[Path]


@dataclass(frozen=True)
class Runs:
    """A folder of fine-tuning: every seed of one setting."""

    folder: Path
    task: str
    metric: str
    seeds: "tuple[SeedRun, ...]"

    def scores(self, split: str, metric: str) -> "Optional[list[float]]":
        """Of every seed, in their order; None where one has none."""
        found = [getattr(run, split).get(metric) for run in self.seeds]
        return None if None in found else found

    def summaries(self, metric: str) -> "dict[str, Summary]":
        """Of dev and test, where every seed has the metric."""
        scores = {split: self.scores(split, metric) for split in SPLITS}
        return {split: summarize(values, possible(metric)) for split, values in scores.items() if values is not None}


@dataclass(frozen=True)
class Comparison:
    """
    Args:
        names: what the sentence calls the two.
        summaries: for each of the two, of each split.
        differs: whether every test that could be made says so; None where none could.
        difference: the first's mean minus the second's.
        notes: what could not be tested, and why.
    """

    names: "tuple[str, str]"
    metric: str
    split: str
    summaries: "tuple[dict[str, Summary], dict[str, Summary]]"
    difference: float
    seeds: Optional[SeedTest]
    items: Optional[ItemTest]
    differs: Optional[bool]
    sentence: str
    notes: "tuple[str, ...]"


def read_runs(folder: PathLike) -> Runs:
    """
    Raises:
        FileNotFoundError: no result in the folder.
        ValueError: one that is no such result, or without a seed, or with a seed twice.
    """
    path = Path(folder) / RESULT
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: give the output folder of a fine-tuning that has finished.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        runs = Runs(
            Path(folder),
            str(content["task"]),
            str(content["metric"]),
            tuple(_seed_run(Path(folder), item) for item in content["seeds"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is no result of a fine-tuning ({type(error).__name__}: {error}); run it anew."
        ) from None
    numbers = [run.seed for run in runs.seeds]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"{path} must hold seeds, each of them once, but holds {numbers}.")
    return runs


def compare_runs(
    first: Runs, second: Runs, metric: Optional[str] = None, split: Optional[str] = None, rounds: int = 10_000
) -> Comparison:
    """
    Args:
        metric: by default the one that both results name.
        split: test or dev; by default test where both have it.
        rounds: of permutation and bootstrap over test items.

    Raises:
        ValueError: another task on either side, another metric without `metric`, or a metric that one side has not.
    """
    if first.task != second.task:
        raise ValueError(f"{first.folder} is of the task {first.task}, {second.folder} of {second.task}.")
    if metric is None and first.metric != second.metric:
        raise ValueError(
            f"{first.folder} was judged by {first.metric}, {second.folder} by {second.metric}: say which with --metric."
        )
    metric = metric or first.metric
    split, left, right = _scores(first, second, metric, split)
    names = _names(first, second)
    notes: "list[str]" = []
    if split == "dev":
        notes.append("dev scores chose the checkpoints, so they flatter both; compare test scores where you can")
    seeds = _by_seeds(first, second, left, right, notes)
    items = _by_items(first, second, metric, rounds, notes) if split == "test" else None
    chances = [test.p for test in (seeds, items) if test is not None]
    differs = all(p < SIGNIFICANT for p in chances) if chances else None
    difference = float(np.mean(left) - np.mean(right))
    one, other = first.folder.resolve(), second.folder.resolve()
    if one == other or one in other.parents or other in one.parents:
        whole = second.folder if other in one.parents else first.folder
        sentence = f"Both are runs of {whole}, so there is nothing to compare: name the folder of others."
    else:
        sentence = _sentence(names, metric, split, (len(left), len(right)), difference, seeds, items, differs)
    return Comparison(
        names,
        metric,
        split,
        (first.summaries(metric), second.summaries(metric)),
        difference,
        seeds,
        items,
        differs,
        sentence,
        tuple(notes),
    )


def possible(metric: str) -> "tuple[float, float]":
    """The least and the greatest that a score can be."""
    if metric in LOWER_IS_BETTER:
        return 0.0, math.inf
    return (-1.0, 1.0) if metric.removeprefix(UNSEEN) in _CORRELATIONS else (0.0, 1.0)


def shown(score: float, metric: str) -> str:
    """A score or a spread as people write it: points, 91.23 for 0.9123; what is better lower, as it is."""
    return f"{score:.4g}" if metric in LOWER_IS_BETTER else f"{100 * score:.2f}"


# ---- reading


def _seed_run(folder: Path, item: Any) -> SeedRun:
    given = item.get("predictions")
    dev, test = (
        {
            name: float(value)
            for name, value in (item.get(split) or {}).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for split in ("dev", "test")
    )
    return SeedRun(int(item["seed"]), dev, test, folder / given if given else None)


def _read_predictions(path: Path, unseen: bool) -> "dict[Any, tuple[Any, Any]]":
    """index to (label, prediction).

    Args:
        unseen: leaves out what is marked as being in train.

    Raises:
        ValueError: a line that is none, or an index that comes twice.
        OSError: no such file.
    """
    found: "dict[Any, tuple[Any, Any]]" = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                content = json.loads(line)
                index, pair = content["index"], (content["label"], content["prediction"])
                is_left_out = unseen and bool(content.get(IN_TRAIN))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{path}, line {number}: expected JSON with index, label and prediction "
                    f"({type(error).__name__}: {error})"
                ) from None
            if index in found:
                raise ValueError(f"{path}, line {number}: index {index} comes a second time")
            if not is_left_out:
                found[index] = pair
    return found


# ---- what is compared with what


def _scores(first: Runs, second: Runs, metric: str, split: Optional[str]) -> "tuple[str, list[float], list[float]]":
    for name in SPLITS if split is None else (split,):
        left, right = first.scores(name, metric), second.scores(name, metric)
        if left is not None and right is not None:
            return name, left, right
    known = sorted(
        set.intersection(*({*run.dev, *run.test} for runs in (first, second) for run in runs.seeds)),
    )
    raise ValueError(
        f"Not every seed of {first.folder} and {second.folder} has {metric} on {split or 'test or on dev'}; "
        f"all of them have {', '.join(known) or 'no metric in common'}."
    )


def _names(first: Runs, second: Runs) -> "tuple[str, str]":
    short = first.folder.resolve().name, second.folder.resolve().name
    return short if short[0] != short[1] else (str(first.folder), str(second.folder))


def _by_seeds(
    first: Runs, second: Runs, left: "list[float]", right: "list[float]", notes: "list[str]"
) -> Optional[SeedTest]:
    if min(len(left), len(right)) < 2:
        notes.append("seeds were not compared: that takes two runs or more on each side")
        return None
    one = {run.seed: score for run, score in zip(first.seeds, left)}
    other = {run.seed: score for run, score in zip(second.seeds, right)}
    if set(one) != set(other):
        notes.append("the seeds are not the same on both sides, so runs were compared unpaired")
        return compare_seeds(left, right, paired=False)
    return compare_seeds([one[seed] for seed in one], [other[seed] for seed in one], paired=True)


def _by_items(first: Runs, second: Runs, metric: str, rounds: int, notes: "list[str]") -> Optional[ItemTest]:
    runs = [*first.seeds, *second.seeds]
    paths = [run.predictions for run in runs if run.predictions is not None]
    if len(paths) < len(runs) or not all(path.is_file() for path in paths):
        notes.append("test items were not compared: not every seed has its file of predictions")
        return None
    unseen = metric.startswith(UNSEEN)
    files = [_read_predictions(path, unseen) for path in paths]
    index = list(files[0])
    labels = [files[0][i][0] for i in index]
    if any(set(file) != set(index) or [file[i][0] for i in index] != labels for file in files[1:]):
        if unseen:
            raise ValueError(
                f"{metric} is over other texts in {first.folder} than in {second.folder}, since they were not trained "
                f"or tested on the same files: compare {metric[len(UNSEEN) :]}, or train both on the same."
            )
        notes.append("test items were not compared: the two sides were tested on different files")
        return None
    if not index or None in labels:
        notes.append("test items were not compared: not all of them have a label")
        return None
    # Together, so that every run has the same sums.
    whole = additive(metric.removeprefix(UNSEEN), labels * len(files), [file[i][1] for file in files for i in index])
    if whole is None:
        notes.append(f"test items were not compared: {metric} is not made of what single items add")
        return None
    items = whole.items.reshape(len(files), len(index), -1)
    for run, path, score in zip(runs, paths, whole.metric(items.sum(1))):
        if abs(float(score) - run.test[metric]) > _SAME_SCORE:
            notes.append(
                f"test items were not compared: {path} makes {metric} {float(score):.4f}, the result says "
                f"{run.test[metric]:.4f}"
            )
            return None
    count = len(first.seeds)
    return compare_items(items[:count].mean(0), items[count:].mean(0), whole.metric, rounds)


# ---- the sentence


def _sentence(
    names: "tuple[str, str]",
    metric: str,
    split: str,
    runs: "tuple[int, int]",
    difference: float,
    seeds: Optional[SeedTest],
    items: Optional[ItemTest],
    differs: Optional[bool],
) -> str:
    ahead = (difference < 0) == (metric in LOWER_IS_BETTER)
    lead, lag = names if ahead else names[::-1]
    unit = "" if metric in LOWER_IS_BETTER else " points"
    by = f"by {shown(abs(difference), metric)}"
    if seeds is not None:
        by += f" ± {shown(seeds.high - seeds.difference, metric)}"
    by += f"{unit} on {split} {metric}"
    basis = "; ".join(_basis(runs, difference, seeds, items, metric, unit))
    if differs is None:
        ahead_by = f"{lead} is ahead of {lag} {by}" if difference else f"{lead} and {lag} are equal on {split} {metric}"
        return (
            f"Nothing can be said yet: {ahead_by}, but there is no second run on each side and no "
            "comparison item by item; train three seeds of each or more."
        )
    if differs:
        warning = "" if seeds is not None else "; what other seeds would do is not known"
        return f"{lead} is better than {lag} {by} ({basis}){warning}."
    if not difference:
        return f"{names[0]} and {names[1]} are equal on {split} {metric} ({basis})."
    return f"The difference is within noise: {lead} is ahead of {lag} {by} ({basis}); {_remedy(seeds)}."


def _basis(
    runs: "tuple[int, int]",
    difference: float,
    seeds: Optional[SeedTest],
    items: Optional[ItemTest],
    metric: str,
    unit: str,
) -> "list[str]":
    parts = []
    if seeds is not None:
        parts.append(f"{_number(runs, 'seed')}, {'paired' if seeds.paired else 'unpaired'}, {_chance(seeds.p)}")
    if items is not None:
        ends = (items.low, items.high) if difference >= 0 else (-items.high, -items.low)  # of the lead
        low, high = (shown(end, metric) for end in ends)
        over = f"over {items.items:,} test items {low} to {high}{unit}, {_chance(items.p)}"
        parts.append(over if seeds is not None else f"{_number(runs, 'run')}, {over}")
    return parts


def _remedy(seeds: Optional[SeedTest]) -> str:
    if seeds is None:
        return "several seeds of each, or more test items, would tell more"
    if seeds.more_seeds == 0:
        return "more seeds would not tell, more test items would"
    if seeds.more_seeds is None:
        return f"{MOST_SEEDS:,} seeds of each would not tell, so take them as equal"
    return f"if it is real, about {seeds.more_seeds} more seed{'s' * (seeds.more_seeds > 1)} of each would tell"


def _number(runs: "tuple[int, int]", what: str) -> str:
    if runs[0] == runs[1]:
        return f"{runs[0]} {what}{'s' * (runs[0] > 1)} each"
    return f"{runs[0]} and {runs[1]} {what}s"


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def table(comparison: Comparison) -> "Sequence[str]":
    """Lines of mean, standard deviation, interval, least and greatest of either side, dev and test apart."""
    width = max(map(len, comparison.names))
    lines = []
    for name, summaries in zip(comparison.names, comparison.summaries):
        for split in reversed(SPLITS):
            if split in summaries:
                lines.append(f"{name:{width}}  {split:4}  {_line(summaries[split], comparison.metric)}")
    return lines


def _line(one: Summary, metric: str) -> str:
    if one.sd is None or one.low is None or one.high is None:
        return f"{shown(one.mean, metric)} (1 seed)"
    mean, sd, low, high, least, greatest = (
        shown(value, metric) for value in (one.mean, one.sd, one.low, one.high, one.least, one.greatest)
    )
    return f"{mean} ± {sd} (sd of {one.n} seeds), 95 % interval {low} to {high}, from {least} to {greatest}"
