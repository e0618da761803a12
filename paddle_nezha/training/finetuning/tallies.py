"""Scores of rows that come a few at a time: sums that stay small however many rows there are, and go into a file."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from paddle_nezha.training.scoring import classes, entities, spans


class Tally:
    """Adds up what the scores of predictions are made of. Rows without a label count for nothing."""

    def __init__(self) -> None:
        self.sums: "Counter[str]" = Counter()

    @property
    def scored(self) -> int:
        """How many rows the scores are of; 0 where there are none."""
        raise NotImplementedError

    def add(self, rows: "Iterable[Mapping[str, Any]]") -> None:
        """
        Args:
            rows: with `prediction`, and `label` where it is known.
        """
        raise NotImplementedError

    def scores(self) -> "dict[str, float]":
        """
        Raises:
            ValueError: no row had a label.
        """
        raise NotImplementedError

    def state(self) -> "dict[str, float]":
        """The sums so far. JSON."""
        return dict(self.sums)

    def restore(self, state: "Mapping[str, float]") -> None:
        """Goes on from what `state` gave."""
        self.sums = Counter(state)  # type: ignore[arg-type]


class ClassTally(Tally):
    """How often each class was given for each label.

    Args:
        names: the classes; None where rows hold their numbers.
    """

    def __init__(self, names: "Optional[Sequence[str]]") -> None:
        super().__init__()
        self._places = None if names is None else {name: number for number, name in enumerate(names)}

    @property
    def scored(self) -> int:
        return int(sum(self.sums.values()))

    def add(self, rows: "Iterable[Mapping[str, Any]]") -> None:
        for row in rows:
            if "label" in row:
                pair = (row["label"], row["prediction"])
                label, given = pair if self._places is None else (self._places[name] for name in pair)
                self.sums[f"{label} {given}"] += 1

    def scores(self) -> "dict[str, float]":
        pairs = np.array([key.split() for key in self.sums], int).reshape(-1, 2)
        truth, given = np.repeat(pairs, list(self.sums.values()), axis=0).T
        most = int(pairs.max(initial=-1)) + 1
        return classes.score_classes(truth, given, [str(number) for number in range(most)])


class EntityTally(Tally):
    """How many entities of each type are right, there, and found."""

    _KINDS = ("right", "there", "found")

    @property
    def scored(self) -> int:
        return int(self.sums["rows"])

    def add(self, rows: "Iterable[Mapping[str, Any]]") -> None:
        labelled = [row for row in rows if "label" in row]
        if not labelled:
            return
        counts = entities.count_entities([row["label"] for row in labelled], [row["prediction"] for row in labelled])
        self.sums["rows"] += len(labelled)
        for kind, count in zip(self._KINDS, counts):
            self.sums.update({f"{kind} {name}": number for name, number in count.items()})

    def scores(self) -> "dict[str, float]":
        if not self.scored:
            raise ValueError("There is nothing to score: no labels came.")
        counts: "list[Counter[str]]" = [Counter() for _ in self._KINDS]
        for key, number in self.sums.items():
            kind, _, name = key.partition(" ")
            if kind in self._KINDS:
                counts[self._KINDS.index(kind)][name] = number
        return entities.named_scores(entities.score_counts(*counts))


class SpanTally(Tally):
    """Exact matches and F1. A row without a label is a question without an answer, if others have one."""

    @property
    def scored(self) -> int:
        return int(self.sums["known"] + self.sums["unknown"]) if self.sums["known"] else 0

    def add(self, rows: "Iterable[Mapping[str, Any]]") -> None:
        for row in rows:
            self.sums.update(spans.answer_sums(row.get("label", []), row["prediction"]))  # type: ignore[arg-type]

    def scores(self) -> "dict[str, float]":
        if not self.sums:
            raise ValueError("There is nothing to score: no questions came.")
        return spans.score_sums(self.sums)
