"""A fine-tuned model's answers: a class, tags, an answer or a choice for each example.

The folder is what `paddle-nezha finetune` leaves: its `task.json` says what the model was trained for.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from paddle_nezha._files import PathLike
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.finetuning.predicting import answers
from paddle_nezha.training.finetuning.tasks import FILE, KINDS, Facts, Task
from paddle_nezha.training.processes import Processes
from paddle_nezha.training.vocabulary import check_vocabulary

from . import models
from .batches import TOKENS_PER_BATCH, windows
from .records import Example, RecordSource, characters, examples, is_one, unlabelled
from .running import Job, run_file, run_stream

FORMS = ("jsonl", "tsv")
_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes an encoder at every call
_COLUMNS = {
    "sentence": ("index", "label", "prediction", "confidence", "probabilities", "text"),
    "pair": ("index", "label", "prediction", "confidence", "probabilities", "text", "pair"),
    "token": ("index", "label", "prediction", "entities", "tokens"),
    "span": ("index", "id", "label", "prediction", "n_best", "question"),
    "choice": ("index", "id", "label", "prediction", "confidence", "answer", "question"),
}


@dataclass(frozen=True)
class Predicted:
    """How a file was answered.

    Args:
        rows: how many examples it holds.
        resumed: how many of them an earlier, stopped run had already answered.
        scores: of the examples that have labels; None where none has.
        remarks: a sentence for each thing that was odd.
    """

    rows: int
    resumed: int
    scores: "Optional[dict[str, float]]"
    remarks: "list[str]"


class Predictor:
    """A row for each example, as fine-tuning writes them: a dict with `index`, `prediction` and, by the task, more.

    sentence, pair  confidence, probabilities (in the order of `names`, in task.json too), text, pair
    token           a tag for each token, entities (type, text, start, end), tokens
    span            id, question; n_best (text, start, end, score) on request
    choice          confidence; the prediction is the index of a choice and `answer` its text

    Args:
        task: with the model's facts and tokenizer.
        tokens_per_batch: rows of a batch times the longest of them.
        n_best: span: so many answers are listed, the best first.

    Which texts share a batch follows from the texts alone, so a list gives the same bits as a file of it.
    """

    def __init__(self, task: Task, model: Any, *, tokens_per_batch: int = TOKENS_PER_BATCH, n_best: int = 0) -> None:
        if n_best < 0 or (n_best and task.facts.task != "span"):
            raise ValueError(
                f"n_best must be 0 or more, and is for span alone; got {n_best} for {task.facts.task}: leave it out."
            )
        check_vocabulary(model.config, task.tokenizer)
        task.facts.check_tokenizer(task.tokenizer)
        self.task, self.model, self.n_best = task, model, n_best
        self.tokens_per_batch = models.checked_budget(tokens_per_batch)
        self._objective = task.objective(model)
        self._alone = Processes(0, 1, False)
        self._objective.eval()

    @classmethod
    def open(cls, model: PathLike, task: Optional[str] = None, **options: Any) -> "Predictor":
        """From the folder of a fine-tuned model, or of the run that left it.

        Args:
            task: what it must have been fine-tuned for; None takes any.

        Raises:
            ValueError: it is no such folder, or of another task.
        """
        folder = models.model_folder(model)
        facts = Facts.read(folder)
        if facts.task not in KINDS:
            raise ValueError(f"{folder / FILE}: expected a task out of {', '.join(KINDS)}, but got {facts.task!r}.")
        if task is not None and facts.task != task:
            raise ValueError(
                f"{folder} was fine-tuned for {facts.task}, not {task}: name that task, or another folder."
            )
        kind = KINDS[facts.task]
        opened = kind.head.from_pretrained(folder)
        if kind.has_names and opened.config.num_labels != len(facts.names or []):
            raise ValueError(
                f"{folder / FILE} names {len(facts.names or [])} classes, and the model has "
                f"{opened.config.num_labels}: take the files of one run."
            )
        return cls(kind(facts, NeZhaTokenizer.from_pretrained(folder)), opened, **options)

    @property
    def names(self) -> "list[str]":
        """The classes, in the order of `probabilities`."""
        return self.task.names

    def __call__(self, items: Any) -> Any:
        """
        Args:
            items: one example or a list of them. An example is a text (of token: its characters are the tokens), a
                tuple of what the task reads (text and pair; tokens; question and context; context, question and a
                list of choices), or a dict with these names.

        Returns:
            The row of one example, or the list of rows of a list.

        Raises:
            ValueError: an item that is no example of the task; its number is named.
        """
        one = is_one(items)
        given = examples(self.task.facts.task, [items] if one else items)
        rows = [row for window in windows(given, self.tokens_per_batch, characters) for row in self._rows(window)]
        return rows[0] if one else rows

    def source(
        self, path: PathLike, *, layout: Optional[str] = None, columns: "Optional[dict[str, Any]]" = None
    ) -> RecordSource:
        """A file of examples, for `run`; arguments as for `RecordSource`."""
        return RecordSource(path, self.task.facts.task, self.task.facts.names, layout=layout, columns=columns)

    def run(
        self,
        source: RecordSource,
        output: PathLike,
        *,
        form: str = "jsonl",
        force: bool = False,
        progress: bool = True,
    ) -> Predicted:
        """A row for every example of a file, in its order, in memory that does not depend on its length.

        Args:
            output: the file to write, or "-" for standard output.
            form: "jsonl", or "tsv": a header and a line each, where tabs and line ends in texts become blanks, and
                what is no text is JSON.
            force: begin anew where a part has other settings, and replace an output that is there.

        Raises:
            ValueError (DataError): another form; a file that cannot be used. Nothing is computed then, but where rows
                go to standard output.
            FileExistsError, BlockingIOError: as `run_file`.
        """
        if form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, but got {form!r}.")
        gathered = _Gathered(self.task)
        columns = _COLUMNS[self.task.facts.task] if form == "tsv" else None

        def answer(window: "list[Example]") -> bytes:
            rows = self._rows(window, gathered)
            lines = [_json(row) if columns is None else _cells(row, columns) for row in rows]
            return "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace")  # lone surrogates: \ud800

        job = Job(
            answer,
            {
                "task": "predict",
                "model, sha256": models.identity(self.model, self.task.tokenizer),
                "facts": vars(self.task.facts),
                "n-best": self.n_best,
                "form": form,
            },
            models.surroundings(),
            self.tokens_per_batch,
            header=lambda lines: b"" if columns is None else ("\t".join(columns) + "\n").encode(),
            size=characters,
            memory=gathered,
        )
        if str(output) == "-":
            with source.spooled(tempfile.gettempdir()):
                done = run_stream(job, source)
        else:
            done = run_file(job, source, output, force=force, progress=progress)
        remarks = source.notes.sentences()
        if gathered.cut:
            most = self.task.facts.max_length
            remarks.append(f"{gathered.cut:,} examples lost tokens to the {most} that the model was fine-tuned with")
        rows, scored = done.account.lines, gathered.tally.scored
        if 0 < scored < rows:
            remarks.append(f"{scored:,} of {rows:,} examples have a label, and the scores are of these")
        return Predicted(rows, done.resumed, gathered.tally.scores() if scored else None, remarks)

    def _rows(self, window: "Sequence[Example]", gathered: "Optional[_Gathered]" = None) -> "list[dict[str, Any]]":
        records = [example.record for example in window]
        made, report = self.task.features([unlabelled(record) for record in records])
        outputs = answers(self.task, self._objective, made, self.tokens_per_batch, self._alone)
        rows = self.task.rows(records, made, outputs, self.n_best)
        for example, row in zip(window, rows):
            row["index"] = example.index
        if gathered is not None:
            gathered.cut += report.cut_records
            gathered.tally.add(rows)
        return rows


class _Gathered:
    """What is told at the end about all rows."""

    def __init__(self, task: Task) -> None:
        self.tally, self.cut = task.tally(), 0

    def state(self) -> "dict[str, Any]":
        return {"scored": self.tally.state(), "cut": self.cut}

    def restore(self, state: "dict[str, Any]") -> None:
        self.tally.restore(state["scored"])
        self.cut = state["cut"]


def _cells(row: "dict[str, Any]", columns: "Sequence[str]") -> str:
    return "\t".join(_cell(row.get(column, "")) for column in columns)


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        return _json(value)
    return value.translate(_BLANKS)


_BLANKS = str.maketrans("\t\n\r", "   ")
