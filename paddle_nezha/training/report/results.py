"""What a finished fine-tuning, of one seed or several, answered: scores, tables, calibration and the worst errors."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from paddle_nezha._files import PathLike
from paddle_nezha.training import comparison
from paddle_nezha.training.report.runs import DESCRIPTION, ReportError, seed_folders
from paddle_nezha.training.scoring.classes import Calibration, ClassScore, class_scores, confusion, reliability
from paddle_nezha.training.scoring.entities import EntityScore, WrongEntity, entity_scores, joined, wrong_entities
from paddle_nezha.training.scoring.spans import score_answer
from paddle_nezha.training.statistics import Summary, summarize

SPLITS = comparison.SPLITS  # test first: dev chose the epoch
WORST = 30  # errors told
_MISSED, _ENDS, _INVENTED = "missed", "wrong ends", "no entity"
_INPUTS = ("text", "pair", "tokens", "question", "id", "probabilities")  # the same for every seed, or not used

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Score:
    """A metric over the seeds, and of each: `seeds` are its values in the order of `Results.seeds`."""

    summary: Summary
    seeds: "tuple[float, ...]"


@dataclass(frozen=True)
class ClassLine:
    """A class, or a type of entity: means over the seeds; sd is that of F1, None for one seed."""

    name: str
    precision: float
    recall: float
    f1: float
    sd: Optional[float]
    support: int
    predicted: float


@dataclass(frozen=True)
class Confusion:
    """Counts over all seeds [R, C]: items, or entities, of the row's label that were given the column's."""

    rows: "tuple[str, ...]"
    columns: "tuple[str, ...]"
    counts: "tuple[tuple[int, ...], ...]"


@dataclass(frozen=True)
class WrongItem:
    """
    Args:
        index: of the item in its file, from 0.
        inputs: what was asked: `text`, `pair` or `question`, as there are.
        predictions: what was answered instead, and by how many seeds, the most frequent first.
        wrong: how many seeds were wrong.
        confidence: the mean probability of the wrong answers; None where a task tells none.
        f1: of span tasks, the mean over all seeds.
    """

    index: int
    inputs: "dict[str, str]"
    label: "tuple[str, ...]"
    predictions: "tuple[tuple[str, int], ...]"
    wrong: int
    confidence: Optional[float] = None
    f1: Optional[float] = None


@dataclass(frozen=True)
class WrongSentence:
    """A sentence with wrong entities, and how many seeds were wrong in each."""

    index: int
    tokens: "tuple[str, ...]"
    entities: "tuple[tuple[WrongEntity, int], ...]"


@dataclass(frozen=True)
class SplitResults:
    """
    Args:
        items: texts, sentences or questions that were judged.
        scores: by metric; those of single types of entity are in `classes`.
        classes: None for span, as is `confusion`.
        calibration: over the answers of all seeds; None for token and span, whose answers tell no probability.
        outcomes: of span, the share of answers that are exact, overlap with a right one, and are wrong.
        wrong: how many items (sentences) at least one seed was wrong about; `errors` are the worst of them.
        missing: why there is no more than the scores.
    """

    items: int
    scores: "dict[str, Score]"
    classes: "Optional[tuple[ClassLine, ...]]" = None
    confusion: Optional[Confusion] = None
    calibration: Optional[Calibration] = None
    outcomes: "Optional[dict[str, float]]" = None
    wrong: int = 0
    errors: "tuple[Union[WrongItem, WrongSentence], ...]" = ()
    missing: Optional[str] = None


@dataclass(frozen=True)
class Results:
    """Of a folder of fine-tuning; `splits` holds test, where there is one, and dev."""

    folder: Path
    task: str
    metric: str
    seeds: "tuple[int, ...]"
    splits: "dict[str, SplitResults]"


def read_results(folder: PathLike) -> Optional[Results]:
    """The results of a fine-tuning; of several seeds those of `result.json`, or of all seeds that are finished.

    Returns:
        None where nothing is finished.

    Raises:
        ReportError: files that are damaged, or do not fit each other.
        ModuleNotFoundError: scikit-learn, seqeval or SciPy, without which there are no such scores.
    """
    folder = Path(folder)
    runs = _runs(folder)
    if runs is None:
        return None
    inside = {
        run.seed: folder if (folder / DESCRIPTION).exists() else folder / f"seed-{run.seed}" for run in runs.seeds
    }
    names = _class_names(inside[runs.seeds[0].seed])
    splits = {}
    for split in SPLITS:
        scores = _scores(runs, split)
        if scores:
            splits[split] = _split(runs.task, split, scores, list(inside.values()), names)
    return Results(folder, runs.task, runs.metric, tuple(inside), splits)


# ---- reading


def _runs(folder: Path) -> Optional[comparison.Runs]:
    try:
        if (folder / comparison.RESULT).exists():
            return comparison.read_runs(folder)
        finished = [each for each in seed_folders(folder) if (each / comparison.RESULT).exists()]
        each = [comparison.read_runs(one) for one in finished]
    except ValueError as error:
        raise ReportError(str(error)) from error
    if not each:
        return None
    return comparison.Runs(folder, each[0].task, each[0].metric, tuple(seed for one in each for seed in one.seeds))


def _scores(runs: comparison.Runs, split: str) -> "dict[str, Score]":
    metrics = dict.fromkeys(name for run in runs.seeds for name in getattr(run, split))
    found = {}
    for name in metrics:
        values = runs.scores(split, name)
        if values is not None and all(map(math.isfinite, values)) and not (runs.task == "token" and name[:3] == "f1_"):
            found[name] = Score(summarize(values, comparison.possible(name)), tuple(values))
    first = [name for name in (runs.metric,) if name in found]
    return {name: found[name] for name in dict.fromkeys((*first, *found))}


def _class_names(folder: Path) -> "list[str]":
    """In the order of the model's outputs; none where its folder is gone, or the task has none."""
    path = folder / "model" / "task.json"
    if not path.is_file():
        return []
    try:
        return [str(name) for name in json.loads(path.read_text(encoding="utf-8")).get("names") or []]
    except (ValueError, AttributeError, TypeError) as error:
        raise ReportError(f"{path} is damaged ({error!r}): expected an object with `names`, a list or null.") from error


def _read_rows(path: Path, task: str, keep_inputs: bool) -> Rows:
    found = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                found.append(_row(row, task) if keep_inputs else _without_inputs(_row(row, task)))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ReportError(
                    f"{path}, line {number}: expected a prediction of a {task} task as `paddle-nezha finetune` writes "
                    f"it ({error!r}). Let the run write it anew: remove {comparison.RESULT} beside it, and give the "
                    "command that started it."
                ) from error
    return found


def _row(row: "dict[str, Any]", task: str) -> "dict[str, Any]":
    """A row with the types that its task has."""
    if task == "token":
        row["label"], row["prediction"], row["tokens"] = (
            [str(each) for each in row[key]] for key in ("label", "prediction", "tokens")
        )
        if len({len(row[key]) for key in ("label", "prediction", "tokens")}) > 1:
            raise ValueError("tokens, label and prediction differ in length")
    elif task == "span":
        row["label"] = [str(each) for each in row.get("label", ())]
        row["prediction"] = str(row["prediction"])
    else:
        # Choices are counted from 1, as people do.
        row["label"], row["prediction"] = (
            str(int(row[key]) + 1) if task == "choice" else str(row[key]) for key in ("label", "prediction")
        )
        row["confidence"] = float(row["confidence"])
        if not 0 < row["confidence"] <= 1:
            raise ValueError(f"confidence is {row['confidence']}")
    return {"index": int(row.pop("index")), **row}


def _without_inputs(row: "dict[str, Any]") -> "dict[str, Any]":
    return {key: value for key, value in row.items() if key not in _INPUTS}


# ---- a split


def _split(
    task: str, split: str, scores: "dict[str, Score]", folders: "Sequence[Path]", names: "list[str]"
) -> SplitResults:
    paths = [folder / f"{split}.predictions.jsonl" for folder in folders]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        return SplitResults(0, scores, missing=f"{missing[0]} is missing, so there are scores alone.")
    seeds = [_read_rows(path, task, keep_inputs=number == 0) for number, path in enumerate(paths)]
    asked = [(row["index"], row["label"]) for row in seeds[0]]
    for path, rows in zip(paths, seeds):
        if not rows:
            raise ReportError(f"{path} is empty. Let its run write it anew.")
        if [(row["index"], row["label"]) for row in rows] != asked:
            raise ReportError(
                f"{path} has other items or labels than {paths[0]}: the seeds were judged on different files. Report "
                "each of them by itself."
            )
    if task == "token":
        return _entities(scores, seeds)
    if task == "span":
        return _spans(scores, seeds)
    return _classes(scores, seeds, names)


def _classes(scores: "dict[str, Score]", seeds: "list[Rows]", names: "list[str]") -> SplitResults:
    used = sorted({row[key] for rows in seeds for row in rows for key in ("label", "prediction")} - set(names))
    names = [*names, *used]
    places = {name: number for number, name in enumerate(names)}
    truth = np.array([places[row["label"]] for row in seeds[0]])
    given = np.array([[places[row["prediction"]] for row in rows] for rows in seeds])
    confidence = np.array([[row["confidence"] for row in rows] for rows in seeds])
    counts = sum(confusion(truth, each, names) for each in given)
    wrong = given != truth
    times = wrong.sum(0)
    # The confidence in wrong answers alone: a seed that is right says nothing of the error.
    sure = (confidence * wrong).sum(0) / np.maximum(times, 1)
    order = np.lexsort((-sure, -times))[: min(WORST, int((times > 0).sum()))]
    return SplitResults(
        len(truth),
        scores,
        _class_lines([class_scores(truth, each, names) for each in given]),
        Confusion(tuple(names), tuple(names), tuple(tuple(row) for row in np.asarray(counts).tolist())),
        reliability(confidence.ravel(), ~wrong.ravel()),
        None,
        int((times > 0).sum()),
        tuple(
            WrongItem(
                seeds[0][i]["index"],
                _inputs(seeds[0][i]),
                (names[truth[i]],),
                _answers([rows[i] for rows, missed in zip(seeds, wrong[:, i]) if missed]),
                int(times[i]),
                float(sure[i]),
            )
            for i in order.tolist()
        ),
    )


def _class_lines(seeds: "Sequence[Sequence[Union[ClassScore, EntityScore]]]") -> "tuple[ClassLine, ...]":
    """Of each name in the order of the seeds; one that a seed has not counts as 0 there."""
    tables = [{_name(line): line for line in table} for table in seeds]
    lines = []
    for name in dict.fromkeys(name for table in tables for name in table):
        found = [table[name] for table in tables if name in table]
        precision, recall, predicted = (
            sum(float(getattr(line, key)) for line in found) / len(tables)
            for key in ("precision", "recall", "predicted")
        )
        support = max(line.support for line in found)
        f1 = summarize([line.f1 for line in found] + [0.0] * (len(tables) - len(found)))
        lines.append(ClassLine(name, precision, recall, f1.mean, f1.sd, support, predicted))
    return tuple(lines)


def _name(line: "Union[ClassScore, EntityScore]") -> str:
    return line.name if isinstance(line, ClassScore) else line.type


def _inputs(row: "dict[str, Any]") -> "dict[str, str]":
    return {key: str(row[key]) for key in ("text", "pair", "question") if key in row}


def _answers(rows: Rows) -> "tuple[tuple[str, int], ...]":
    """What was answered, and how often; of a choice its place and its text."""
    texts = [f"{row['prediction']}: {row['answer']}" if "answer" in row else row["prediction"] for row in rows]
    return tuple(Counter(texts).most_common())


def _entities(scores: "dict[str, Score]", seeds: "list[Rows]") -> SplitResults:
    labels = [row["label"] for row in seeds[0]]
    tokens = [row["tokens"] for row in seeds[0]]
    given = [[row["prediction"] for row in rows] for rows in seeds]
    try:
        tables = [entity_scores(labels, each) for each in given]
        wrong = Counter(error for each in given for error in wrong_entities(tokens, labels, each))
    except ValueError as error:  # tags that are none
        raise ReportError(str(error)) from error
    lines = _class_lines([table[:-1] for table in tables])
    whole = _class_lines([table[-1:] for table in tables])
    of_sentence: "dict[int, list[tuple[WrongEntity, int]]]" = {}
    for one, count in wrong.items():
        of_sentence.setdefault(one.row, []).append((one, count))
    order = sorted(of_sentence, key=lambda row: (-sum(times for _, times in of_sentence[row]), row))
    errors = [
        WrongSentence(
            seeds[0][row]["index"],
            tuple(tokens[row]),
            tuple(sorted(of_sentence[row], key=lambda one: (_place(one[0]), -one[1]))),
        )
        for row in order[:WORST]
    ]
    return SplitResults(
        len(labels),
        scores,
        tuple(sorted(lines, key=lambda line: line.name)) + whole,
        _entity_confusion(wrong, {line.name: line.support * len(seeds) for line in lines}),
        wrong=len(of_sentence),
        errors=tuple(errors),
    )


def _place(error: WrongEntity) -> int:
    entity = error.label or error.prediction
    return entity.start if entity else 0


def _entity_confusion(wrong: "Counter[WrongEntity]", support: "dict[str, int]") -> Confusion:
    """Types against types where the ends are right; columns for wrong ends and missed ones, a row for invented ones."""
    types = sorted(support)
    rows, columns = (*types, _INVENTED), (*types, _ENDS, _MISSED)
    counts = np.zeros([len(rows), len(columns)], np.int64)
    counts[range(len(types)), range(len(types))] = [support[name] for name in types]
    for error, times in wrong.items():
        row = rows.index(error.label.type) if error.label else len(types)
        if error.label:
            counts[row, row] -= times
        if error.kind in ("type", "invented") and error.prediction:
            column = columns.index(error.prediction.type)
        else:
            column = len(types) + (error.kind == "missed")
        counts[row, column] += times
    return Confusion(rows, columns, tuple(tuple(row) for row in counts.tolist()))


def _spans(scores: "dict[str, Score]", seeds: "list[Rows]") -> SplitResults:
    each = [[score_answer(row["label"], row["prediction"]) for row in rows] for rows in seeds]
    f1 = np.array([[score.f1 for score in one] for one in each])
    exact = np.array([[score.em for score in one] for one in each]) == 1
    times = (~exact).sum(0)
    mean = f1.mean(0)
    order = np.lexsort((-times, mean))
    order = order[times[order] > 0]
    shares = {"exact": exact, "overlaps": ~exact & (f1 > 0), "wrong": ~exact & (f1 == 0)}
    return SplitResults(
        len(times),
        scores,
        outcomes={name: float(share.mean()) for name, share in shares.items()},
        wrong=len(order),
        errors=tuple(
            WrongItem(
                seeds[0][i]["index"],
                _inputs(seeds[0][i]),
                tuple(seeds[0][i]["label"]),
                _answers([rows[i] for rows, right in zip(seeds, exact[:, i]) if not right]),
                int(times[i]),
                f1=float(mean[i]),
            )
            for i in order[:WORST].tolist()
        ),
    )


# ---- for JSON


def results_summary(results: Results) -> "dict[str, Any]":
    """Ready for JSON: everything the page tells."""
    return {
        "task": results.task,
        "metric": results.metric,
        "seeds": list(results.seeds),
        "splits": {split: _split_summary(one, results.seeds) for split, one in results.splits.items()},
    }


def _split_summary(one: SplitResults, seeds: "Sequence[int]") -> "dict[str, Any]":
    told: "dict[str, Any]" = {
        "items": one.items,
        "scores": {
            name: {**vars(score.summary), "seeds": dict(zip(map(str, seeds), score.seeds))}
            for name, score in one.scores.items()
        },
        "classes": None if one.classes is None else [vars(line) for line in one.classes],
        "confusion": None if one.confusion is None else vars(one.confusion),
        "calibration": None,
        "outcomes": one.outcomes,
        "wrong": one.wrong,
        "errors": [_error_summary(error) for error in one.errors],
        "missing": one.missing,
    }
    if one.calibration is not None:
        told["calibration"] = {"error": one.calibration.error, "bins": [vars(each) for each in one.calibration.bins]}
    return told


def _error_summary(error: "Union[WrongItem, WrongSentence]") -> "dict[str, Any]":
    if isinstance(error, WrongItem):
        return {**vars(error), "predictions": [{"prediction": text, "seeds": n} for text, n in error.predictions]}
    return {
        "index": error.index,
        "text": joined(error.tokens),
        "entities": [
            {
                "kind": one.kind,
                "label": _entity_summary(one.label, one.label_text),
                "prediction": _entity_summary(one.prediction, one.prediction_text),
                "seeds": times,
            }
            for one, times in error.entities
        ],
    }


def _entity_summary(entity: Any, text: str) -> "Optional[dict[str, Any]]":
    return None if entity is None else {"type": entity.type, "start": entity.start, "end": entity.end, "text": text}
