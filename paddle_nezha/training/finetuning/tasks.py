"""What differs between the tasks: how files are read, what a head answers, and what a person reads of its answers."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Optional

import numpy as np

from paddle_nezha import heads
from paddle_nezha._files import write_json
from paddle_nezha._paddle import Tensor
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training import collators, features
from paddle_nezha.training.data import readers
from paddle_nezha.training.data.labels import measures
from paddle_nezha.training.data.records import DataError, TokenRecord
from paddle_nezha.training.finetuning.objective import SpanObjective, TaskObjective, TokenObjective
from paddle_nezha.training.finetuning.settings import METRICS
from paddle_nezha.training.finetuning.tallies import ClassTally, EntityTally, SpanTally, Tally
from paddle_nezha.training.scoring.entities import find_entities, is_tag, joined
from paddle_nezha.training.vocabulary import TASK_FILE as FILE
from paddle_nezha.training.vocabulary import vocabulary_digest

_RESTORE = "Copy it back from the model that fine-tuning left."


@dataclass(frozen=True)
class Facts:
    """What a fine-tuned model must know beside its weights; `task.json` in its folder.

    Args:
        names: the classes, in the order of the head's outputs; None where the task has none.
        max_length, stride, max_answer_length: see `FinetuneSettings`.
        vocabulary: `vocabulary_digest` of the tokenizer; None where it is not known.
    """

    task: str
    names: "Optional[list[str]]"
    max_length: int
    stride: int
    max_answer_length: int
    vocabulary: Optional[str] = None

    def write(self, folder: Path) -> None:
        write_json(folder / FILE, vars(self))

    @classmethod
    def read(cls, folder: Path) -> "Facts":
        """
        Raises:
            ValueError: there is no such file, or another content.
        """
        file = Path(folder) / FILE
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(
                f"{folder} has no {FILE}, so it is no fine-tuned model of `paddle-nezha finetune`: give the folder "
                f"`model` of its run. If it was saved anew, copy {FILE} there from the model that it came from."
            ) from None
        except ValueError as error:
            raise ValueError(f"{file} is no JSON ({error}). {_RESTORE}") from None
        if not isinstance(content, dict):
            raise ValueError(f"{file} must hold an object, but holds a {type(content).__name__}. {_RESTORE}")
        known = {item.name: item.default for item in fields(cls)}
        missing = [name for name, default in known.items() if default is MISSING and name not in content]
        unknown = [key for key in content if key not in known]
        if missing or unknown:
            parts = [("lacks", missing), ("has the unknown", unknown)]
            told = " and ".join(f"{verb} {', '.join(keys)}" for verb, keys in parts if keys)
            raise ValueError(f"{file} {told}. {_RESTORE}")
        return cls(**content)

    def check_tokenizer(self, tokenizer: NeZhaTokenizer) -> None:
        """
        Raises:
            ValueError: it is not the one that the model was fine-tuned with.
        """
        if self.vocabulary not in (None, vocabulary_digest(tokenizer)):
            raise ValueError(
                "The tokenizer is not the one that the model was fine-tuned with, so it reads other words than are "
                "meant: copy vocab.txt and the tokenizer's other files back from the model that fine-tuning left. If "
                f"they were changed on purpose, write null as the `vocabulary` of {FILE}."
            )


class Task:
    """One of the tasks.

    Args:
        facts: of the model.
        tokenizer: its tokenizer.
    """

    head: "type[Any]"
    objective: "type[TaskObjective]" = TaskObjective
    has_names = True

    def __init__(self, facts: Facts, tokenizer: Any):
        self.facts, self.tokenizer = facts, tokenizer
        self.collate = self._collator()

    @property
    def names(self) -> "list[str]":
        return self.facts.names or []

    def head_settings(self) -> "dict[str, Any]":
        """What the head's config must hold; of a task without classes no name of those that a checkpoint had."""
        names = self.names or ["LABEL_0", "LABEL_1"]
        return {
            "num_labels": len(names),
            "id2label": dict(enumerate(names)),
            "label2id": {name: number for number, name in enumerate(names)},
        }

    def features(self, records: "Sequence[Any]") -> "tuple[list[dict[str, Any]], features.FeatureReport]":
        raise NotImplementedError

    def output_shape(self, feature: "dict[str, Any]") -> "tuple[int, ...]":
        """Of what is kept of the answer to a feature."""
        return (len(self.names),)

    def kept(self, logits: Tensor) -> np.ndarray:
        """What is kept of a batch's answers [B, ...]: at least `output_shape` of each."""
        return logits.numpy()

    def rows(
        self, records: "Sequence[Any]", made: "list[dict[str, Any]]", outputs: "list[np.ndarray]", n_best: int = 0
    ) -> "list[Any]":
        """A prediction for each record: a dict with `index`, `prediction`, `confidence`, `text`, and `label` where the
        record has one.

        Args:
            n_best: span: so many answers are listed under `n_best`, the best first.
        """
        raise NotImplementedError

    def tally(self) -> Tally:
        """Adds up what the scores of rows are made of."""
        raise NotImplementedError

    def score(self, rows: "list[Any]") -> "dict[str, float]":
        tally = self.tally()
        tally.add(rows)
        return tally.scores()

    def class_counts(self, made: "list[dict[str, Any]]") -> np.ndarray:
        """How often each class is labelled [K]."""
        labels = np.concatenate([np.ravel(feature["labels"]) for feature in made])
        return np.bincount(labels[labels >= 0], minlength=len(self.names))

    def _collator(self) -> Any:
        return collators.DataCollatorWithPadding(self.tokenizer)


class SequenceTask(Task):
    """A class for a text or a pair."""

    head = heads.NeZhaForSequenceClassification

    def features(self, records: "Sequence[Any]") -> "tuple[list[dict[str, Any]], features.FeatureReport]":
        return features.sentence_features(
            records, self.tokenizer, max_length=self.facts.max_length, label_names=self.names
        )

    def rows(
        self, records: "Sequence[Any]", made: "list[dict[str, Any]]", outputs: "list[np.ndarray]", n_best: int = 0
    ) -> "list[Any]":
        found = []
        for index, (record, logits) in enumerate(zip(records, outputs)):
            chances = _softmax(logits)
            best = int(chances.argmax())
            found.append(
                {
                    "index": index,
                    **({} if record.label is None else {"label": record.label}),
                    "prediction": self.names[best],
                    "confidence": round(float(chances[best]), 6),
                    "probabilities": [round(float(chance), 6) for chance in chances],
                    "text": record.text,
                    **({} if record.pair is None else {"pair": record.pair}),
                }
            )
        return found

    def tally(self) -> Tally:
        return ClassTally(self.names)


class TokenTask(Task):
    """A tag for each word of a sentence."""

    head = heads.NeZhaForTokenClassification
    objective = TokenObjective

    def features(self, records: "Sequence[Any]") -> "tuple[list[dict[str, Any]], features.FeatureReport]":
        return features.token_features(
            records,
            self.tokenizer,
            max_length=self.facts.max_length,
            label_names=self.names,
            stride=self.facts.max_length // 4,
        )

    def output_shape(self, feature: "dict[str, Any]") -> "tuple[int, ...]":
        return (len(feature["input_ids"]),)

    def kept(self, logits: Tensor) -> np.ndarray:
        """The class of each token alone: probabilities of a long file would fill the memory."""
        return logits.argmax(-1).numpy()

    def rows(
        self, records: "Sequence[Any]", made: "list[dict[str, Any]]", outputs: "list[np.ndarray]", n_best: int = 0
    ) -> "list[Any]":
        tags = features.word_tags(made, [output.astype(int).tolist() for output in outputs], self.names)
        return [
            {
                "index": index,
                **({} if record.labels is None else {"label": list(record.labels)}),
                "prediction": found,
                "entities": _entities(record.tokens, found),
                "tokens": list(record.tokens),
            }
            for index, (record, found) in enumerate(zip(records, tags))
        ]

    def tally(self) -> Tally:
        return EntityTally()

    def _collator(self) -> Any:
        return collators.DataCollatorForTokenClassification(self.tokenizer)


class SpanTask(Task):
    """A stretch of a text that answers a question."""

    head = heads.NeZhaForQuestionAnswering
    objective = SpanObjective
    has_names = False

    @property
    def doc_stride(self) -> int:
        """Tokens from the start of a window to the next; more than half of one would pass over some."""
        return min(self.facts.stride, self.facts.max_length // 2)

    def features(self, records: "Sequence[Any]") -> "tuple[list[dict[str, Any]], features.FeatureReport]":
        return features.span_features(
            records,
            self.tokenizer,
            max_length=self.facts.max_length,
            doc_stride=self.doc_stride,
        )

    def output_shape(self, feature: "dict[str, Any]") -> "tuple[int, ...]":
        return (2, len(feature["input_ids"]))

    def rows(
        self, records: "Sequence[Any]", made: "list[dict[str, Any]]", outputs: "list[np.ndarray]", n_best: int = 0
    ) -> "list[Any]":
        answers = features.best_spans(
            records,
            made,
            [output[0] for output in outputs],
            [output[1] for output in outputs],
            max_answer_length=self.facts.max_answer_length,
            n_best=max(1, n_best),
        )
        return [
            {
                "index": index,
                "id": record.id,
                **({"label": [text for _, text in record.answers]} if record.answers else {}),
                "prediction": answer.text,
                **({"n_best": [_candidate(candidate) for candidate in answer.candidates]} if n_best else {}),
                "question": record.question,
            }
            for index, (record, answer) in enumerate(zip(records, answers))
        ]

    def tally(self) -> Tally:
        return SpanTally()

    def _collator(self) -> Any:
        return collators.DataCollatorForQuestionAnswering(self.tokenizer)


class ChoiceTask(Task):
    """The best of several answers."""

    head = heads.NeZhaForMultipleChoice
    has_names = False

    def features(self, records: "Sequence[Any]") -> "tuple[list[dict[str, Any]], features.FeatureReport]":
        return features.choice_features(records, self.tokenizer, max_length=self.facts.max_length)

    def output_shape(self, feature: "dict[str, Any]") -> "tuple[int, ...]":
        return (len(feature["input_ids"]),)

    def rows(
        self, records: "Sequence[Any]", made: "list[dict[str, Any]]", outputs: "list[np.ndarray]", n_best: int = 0
    ) -> "list[Any]":
        return [
            {
                "index": index,
                "id": record.id,
                **({} if record.label is None else {"label": record.label}),
                "prediction": best,
                "confidence": round(float(_softmax(logits[: len(record.choices)])[best]), 6),
                "answer": record.choices[best],
                "question": record.question,
            }
            for index, (record, logits, best) in enumerate(
                zip(records, outputs, features.best_choices(records, outputs))
            )
        ]

    def tally(self) -> Tally:
        return ClassTally(None)

    def _collator(self) -> Any:
        return collators.DataCollatorForMultipleChoice(self.tokenizer)


KINDS: "dict[str, type[Task]]" = {
    "sentence": SequenceTask,
    "pair": SequenceTask,
    "token": TokenTask,
    "span": SpanTask,
    "choice": ChoiceTask,
}
assert set(KINDS) == set(METRICS)


def class_names(task: str, records: "Sequence[Any]") -> "Optional[list[str]]":
    """The classes that records to learn from are labelled with; None where the task has none.

    Raises:
        DataError: fewer than two; tags in which there are no entities; numbers that are no classes.
    """
    if not KINDS[task].has_names:
        return None
    names = readers.label_names(records)
    if task == "token":
        _check_tags(records)
    elif measures(names, len(records)):
        odd = next(record for record in records if not float(record.label).is_integer())
        raise DataError(
            f"{odd.file}:{odd.line}: expected classes as labels, got {len(names):,} different numbers in "
            f"{len(records):,} examples, not all of them whole, such as {odd.label}. Fine-tuning learns classes and "
            "no measures: write a class for each range of them, or say which column holds the label "
            "(--columns '{text: NAME, label: NAME}')."
        )
    return names


def _check_tags(records: "Sequence[TokenRecord]") -> None:
    good: "set[str]" = set()
    for record in records:
        for place, tag in enumerate(record.labels or (), 1):
            if tag not in good and not is_tag(tag):
                raise DataError(
                    f"{record.file}:{record.line}: expected tags of entities, such as O, B-PER and I-PER, but token "
                    f"{place} of the sentence that begins here has {tag!r}. Spell tags LETTER-TYPE (a class for each "
                    "word, such as its part of speech: S-NOUN), or say which column holds them "
                    "(--columns '{tokens: 0, labels: -1}')."
                )
            good.add(tag)


def _entities(tokens: "Sequence[str]", tags: "list[str]") -> "list[dict[str, Any]]":
    """Tokens start .. end - 1 are an entity. Of characters the text is what they spell, of words there are blanks."""
    spelled = "".join if all(len(token) == 1 for token in tokens) else joined
    return [
        {"type": found.type, "text": spelled(tokens[found.start : found.end]), "start": found.start, "end": found.end}
        for found in find_entities([tags])
    ]


def _candidate(candidate: features.SpanCandidate) -> "dict[str, Any]":
    """Characters start .. end - 1 of the context; the score is a sum of two logits."""
    return {**vars(candidate), "score": round(candidate.score, 6)}


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()
