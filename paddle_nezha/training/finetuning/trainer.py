"""Fine-tuning: from labelled files to a model that answers, with its predictions and scores."""

import contextlib
import dataclasses
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Optional

import numpy as np

from paddle_nezha._files import replaced, write_json
from paddle_nezha._paddle import paddle
from paddle_nezha.checkpoint import CheckpointError, head_of_class, open_checkpoint
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.hub import resolve
from paddle_nezha.layers import linear
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training import checkpoints, runs
from paddle_nezha.training.data.describing import Description, known_texts, read_described, texts_hash
from paddle_nezha.training.data.records import DataError
from paddle_nezha.training.engine import Engine, Precision
from paddle_nezha.training.features.framing import IGNORED
from paddle_nezha.training.finetuning.predicting import answers
from paddle_nezha.training.finetuning.settings import FREE, FinetuneSettings
from paddle_nezha.training.finetuning.tasks import FILE as TASK_FILE
from paddle_nezha.training.finetuning.tasks import KINDS, Facts, SpanTask, class_names
from paddle_nezha.training.optimization import make_optimizer, trained_parameters
from paddle_nezha.training.processes import Processes
from paddle_nezha.training.run_folders import model_in
from paddle_nezha.training.sampling import LengthBatchSampler, feature_lengths
from paddle_nezha.training.schedule import Schedule
from paddle_nezha.training.scoring import IN_TRAIN, UNSEEN
from paddle_nezha.training.vocabulary import check_vocabulary, vocabulary_digest

RESULT = "result.json"
_BEST = "best-epoch-{:03}"
_HEADS_OF_TASKS = frozenset(head_of_class(kind.head.__name__) for kind in KINDS.values())

logger = logging.getLogger("paddle_nezha")


@dataclass(frozen=True)
class Result:
    """How a run ended; `result.json` holds the same.

    Args:
        model: the folder of the best epoch's model, if the run is finished.
        dev, test: scores; test is None without a test file.
        best_epoch: counted from 1.
        signal: the name of what stopped the run before its end, or None.
    """

    task: str
    metric: str
    seed: int
    model: Optional[Path]
    dev: "dict[str, float]"
    test: "Optional[dict[str, float]]"
    best_epoch: int
    epochs: int
    signal: Optional[str]


def finetune(settings: FinetuneSettings) -> Result:
    """Trains, or goes on with the run that `settings.output` holds.

    Raises:
        ValueError (DataError): files, settings, a checkpoint or an earlier run that do not fit each other. Nothing was
            trained then.
    """
    with contextlib.ExitStack() as held:
        return _Run(runs.without_missing_amp(settings), Processes.join(), held).train()


def finetune_seeds(settings: FinetuneSettings, count: int) -> "list[Result]":
    """`finetune` with `count` seeds from `settings.seed` on, each in a folder `seed-N` of the output, and a
    `result.json` over all of them.

    Returns:
        Of each seed, in their order. One that a signal stopped is the last, and there is no `result.json` then.

    Raises:
        ValueError (DataError): as `finetune`; an output that holds something else than such seeds.
    """
    settings = runs.without_missing_amp(settings)
    folder = Path(settings.output)
    _check_seeds_folder(folder, settings)
    results: "list[Result]" = []
    for seed in range(settings.seed, settings.seed + count):
        results.append(finetune(dataclasses.replace(settings, seed=seed, output=str(folder / f"seed-{seed}"))))
        if results[-1].signal is not None:
            return results
    _write_result(folder, results, [f"seed-{result.seed}/" for result in results])
    return results


def _misfits_in_the_head_alone(error: CheckpointError) -> bool:
    account = error.account
    if account is None or account.missing or account.unexpected or account.not_finite or account.conflicts:
        return False
    return all(name.startswith("classifier.") for name in account.misshaped)


def _check_seeds_folder(folder: Path, settings: FinetuneSettings) -> None:
    """
    Raises:
        ValueError: the folder holds a single run, seeds of other settings, or files that are no run.
    """
    if not folder.is_dir():
        runs.check_folder(folder)  # a file stands there, or on the way
        return
    if (folder / runs.RUN_FILE).exists():
        raise ValueError(
            f"{folder} holds a single run, whose {RESULT} several seeds would overwrite: give another --output, or "
            "leave --seeds out to go on with that run."
        )
    if not any(folder.iterdir()):
        return
    if not any(folder.glob("seed-*")):
        raise ValueError(f"{folder} holds files, but no seed of a run: give an empty folder as --output.")
    mine = dataclasses.asdict(settings)
    for path in sorted(folder.glob(f"seed-*/{runs.RUN_FILE}")):
        if not runs.has_begun(path.parent):
            continue  # it has come to nothing yet
        differ = runs.other_settings(runs.read_description(path), mine, (*FREE, "output", "seed"))
        if differ:
            raise ValueError(
                f"{folder} holds seeds of another run ({path.parent.name}: {'; '.join(differ)}): give what it was "
                "given, or another --output."
            )


class _Run:
    """A run from its files to its result."""

    def __init__(self, settings: FinetuneSettings, processes: Processes, held: contextlib.ExitStack):
        self.settings, self.processes = settings, processes
        self.folder = Path(settings.output)
        runs.check_folder(self.folder)
        self.source = model_in(resolve(settings.model))
        self.model: Any = None
        self._prepare(self._read())
        if not (self.folder / runs.RUN_FILE).exists():
            self._build()  # before anything is written: what cannot be built leaves no folder
        mine = {
            "kind": "finetuning",
            "settings": dataclasses.asdict(settings),
            "data_digest": self._digest(),
            "facts": runs.conditions(processes),
        }
        self.saved = runs.begin(self.folder, mine, (*FREE, "output"), processes, held)

    # ---- beginning

    def _read(self) -> "Optional[list[str]]":
        """Reads and checks every file before anything is made; gives the classes."""
        settings = self.settings
        place = (settings.task, settings.layout, settings.columns)
        learnt, told = read_described(settings.train, *place)
        self._tell("train", told)
        names = class_names(settings.task, learnt)
        self.records = {"train": learnt}
        known = known_texts(learnt)
        self.in_train: "dict[str, list[bool]]" = {}  # of each record of a split, whether its texts are in train
        for split in ("dev", "test"):
            file = getattr(settings, split)
            if file is not None:
                self.records[split], told = read_described(file, *place, names, known)
                self._tell(split, told)
                self.in_train[split] = [texts_hash(record) in known for record in self.records[split]]
                self._tell_unseen(split)
        for split, records in self.records.items():
            bare = next((record for record in records if _label(record) is None), None)
            if bare is not None:
                raise ValueError(
                    f"{bare.file}, line {bare.line} has no label, which {split} needs: `paddle-nezha predict` answers "
                    "to files without labels."
                )
        return names

    def _prepare(self, names: "Optional[list[str]]") -> None:
        """The task, and the features of every file."""
        settings = self.settings
        tokenizer = NeZhaTokenizer.from_pretrained(self.source)
        facts = Facts(
            settings.task,
            names,
            settings.max_length,
            settings.stride,
            settings.max_answer_length,
            vocabulary_digest(tokenizer),
        )
        self.task = KINDS[settings.task](facts, tokenizer)
        self.features = {}
        for split, records in self.records.items():
            self.features[split], report = self.task.features(records)
            self._say("%s: %s", split, report)
        if all(feature.get("start_positions") == IGNORED for feature in self.features["train"]):
            raise DataError(
                f"{settings.train}: not one answer stands in the text that it is asked of, so there is nothing to "
                "learn. An answer must be a piece of its context, letter by letter; see the lines above."
            )
        if isinstance(self.task, SpanTask) and self.task.doc_stride < settings.stride:
            self._say(
                "Windows of long texts begin %d tokens apart, half of max_length, as a stride of %d would pass over "
                "some of them.",
                self.task.doc_stride,
                settings.stride,
            )

    def _say(self, message: str, *values: Any, level: int = logging.INFO) -> None:
        """Once, however many processes there are."""
        if self.processes.is_first:
            logger.log(level, message, *values)

    def _tell(self, split: str, told: Description) -> None:
        self._say("%s: %s", split, told.brief())

    def _tell_unseen(self, split: str) -> None:
        in_train = self.in_train[split]
        unseen, count = in_train.count(False), len(in_train)
        if not unseen:
            words = "%s has no text that train has not: its scores say nothing of other texts."
            self._say(words, split, level=logging.WARNING)
        elif unseen < count:
            name = UNSEEN + self.settings.best_by
            self._say("%s: %s is over the %d of %d examples that are not in train.", split, name, unseen, count)

    def _digest(self) -> str:
        """Of what is learnt and judged, as features."""
        told = hashlib.sha256()
        for split in sorted(self.features):
            for feature in self.features[split]:
                told.update(repr(sorted(feature.items())).encode())
        return told.hexdigest()

    def _build(self) -> None:
        settings, task = self.settings, self.task
        paddle.seed(settings.seed)
        self.model = self._pretrained()
        runs.check_length(self.model.config, settings.max_length)
        check_vocabulary(self.model.config, task.tokenizer)
        self.model.nezha.encoder.enable_recompute = settings.recompute
        weights = None
        if settings.class_weights == "balanced":
            counts = np.maximum(task.class_counts(self.features["train"]), 1)
            weights = counts.sum() / (len(counts) * counts)
        self.objective = task.objective(self.model, weights, settings.adversarial)
        self.objective.train()
        parameters = trained_parameters(self.model, reads_pooler=task.head.reads_pooled)
        if settings.layer_decay != 1:
            for name, parameter in parameters.items():
                height = _layers_below_the_head(name, self.model.config.num_hidden_layers)
                parameter.optimize_attr["learning_rate"] = settings.layer_decay**height

        def optimizer(master_weights: bool) -> Any:
            return make_optimizer(
                "adamw",
                parameters,
                settings.learning_rate,
                settings.weight_decay,
                (0.9, 0.999),
                1e-8,
                settings.clip_norm,
                master_weights,
            )

        precision = Precision(settings.amp, settings.amp_dtype)
        self.engine = Engine(self.objective, parameters, optimizer, precision, self.processes)
        self.sampler = LengthBatchSampler(
            feature_lengths(self.features["train"]),
            batch_size=settings.batch_size,
            minimum_rows=self.processes.count,
            seed=settings.seed,
        )
        self.steps_per_epoch = len(self.sampler.batches(0))
        total = self.steps_per_epoch * settings.epochs
        self.schedule = Schedule(settings.learning_rate, total, int(total * settings.warmup_ratio))

    def _pretrained(self) -> Any:
        """The source with the head of this task: its own if that answers the same question, else a new one."""
        head, settings = self.task.head, self.task.head_settings()
        try:
            model = head.from_pretrained(self.source, train=True, **settings)
        except CheckpointError as error:
            if not _misfits_in_the_head_alone(error):
                raise
            model = head.from_pretrained(self.source, train=True, ignore_mismatched_sizes=True, **settings)
        else:
            if not self._is_other_head():
                return model
            model.classifier = linear(model.config, *model.classifier.weight.shape)
        self._say(
            "%s: its head is for another task or other classes: its encoder is taken over, with a new head.",
            self.source,
        )
        return model

    def _is_other_head(self) -> bool:
        """Whether the source was fine-tuned for another task, or for other classes."""
        mine = self.task.facts
        if (self.source / TASK_FILE).exists():
            theirs = Facts.read(self.source)
            theirs.check_tokenizer(self.task.tokenizer)
            return (theirs.task, theirs.names) != (mine.task, mine.names)
        config = NeZhaConfig.from_pretrained(self.source)
        was = next(iter(config.architectures or ()), None)
        kind = head_of_class(was) if was is not None else None
        if kind not in _HEADS_OF_TASKS:
            return False  # it has no head of ours, or does not say which
        named = [name for _, name in sorted(config.id2label.items())]
        plain = [f"LABEL_{number}" for number in range(len(named))]
        has_other_names = mine.names is not None and named not in (mine.names, plain)
        return has_other_names or kind != head_of_class(self.task.head.__name__)

    def _check_best(self, done: int) -> None:
        """
        Raises:
            ValueError: the best epoch's model, which the run needs at its end, is gone or damaged.
        """
        if not self.history:
            return
        best = self.folder / _BEST.format(self._best() + 1)
        if not best.is_dir() and (done == self.steps_per_epoch * self.settings.epochs or self._is_over()):
            best = self.folder / runs.MODEL_FOLDER  # it was moved there, and the run stopped before its result
        try:
            with open_checkpoint(best):
                pass
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{best}, the model of the best epoch so far, cannot be used ({error}). Copy it back from a backup, or "
                f"remove {self.folder / runs.CHECKPOINTS}: the same command then begins from the start."
            ) from None

    # ---- running

    def train(self) -> Result:
        settings = self.settings
        finished = read_result(self.folder, settings)
        if finished is not None:
            self._check_finished()
            self._say("%s is finished: nothing is trained anew.", self.folder)
            return finished
        if self.model is None:
            self._build()
        done = 0 if self.saved is None else self.saved.step
        # Of each epoch that was judged, its scores on dev.
        self.history: "list[dict[str, float]]" = [] if self.saved is None else self.saved.facts["history"]
        total = self.steps_per_epoch * settings.epochs
        if self.saved is not None:
            self._check_best(done)
            self._say("%s goes on from step %d of %d.", self.folder, done, total)
            runs.restore(self.saved, self.model, self.engine)
        elif runs.has_begun(self.folder):
            self._say("%s was stopped before its first checkpoint: it begins anew.", self.folder)
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(runs.metrics_log(self.folder, done, settings.curves, self.processes))
            progress = stack.enter_context(runs.progress_bar(total, done, self.processes))
            stopping = stack.enter_context(runs.stop_signals(self.processes))
            while done < total and not self._is_over():
                epoch, number = divmod(done, self.steps_per_epoch)
                self._step(done, self._batches(epoch, number), log, progress)
                done += 1
                stopped = self.processes.sum(np.array([float(bool(stopping))]))[0] > 0
                if done % self.steps_per_epoch == 0:
                    self._judge(epoch, done, log)
                if stopped or done % settings.checkpoint_every == 0 or done % self.steps_per_epoch == 0:
                    self._save(done)
                if stopped and done < total:
                    return self._result(None, stopping[0] if stopping else "a signal", {})
        return self._finish()

    def _check_finished(self) -> None:
        """
        Raises:
            ValueError: the model that the run left is gone, damaged, or of another run.
        """
        model = self.folder / runs.MODEL_FOLDER
        try:
            if Facts.read(model) != self.task.facts:
                raise ValueError(f"its {TASK_FILE} is of another run")
            NeZhaTokenizer.from_pretrained(model)
            with open_checkpoint(model):
                pass
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{self.folder} holds a finished run, but its model cannot be used ({error}). Copy {model} back from a "
                f"backup, or remove {self.folder / RESULT}: the same command then trains the run anew."
            ) from None

    def _batches(self, epoch: int, number: int) -> "list[dict[str, np.ndarray]]":
        """This process's micro-batches of a step."""
        share = self.sampler.batches(epoch)[number][self.processes.rank :: self.processes.count]
        size = self.settings.micro_batch_size or len(share)
        made = self.features["train"]
        return [
            self.task.collate([made[i] for i in share[begin : begin + size]]) for begin in range(0, len(share), size)
        ]

    def _step(self, step: int, batches: "list[dict[str, np.ndarray]]", log: runs.Log, progress: Any) -> None:
        rate, begun = self.schedule.rate(step), time.perf_counter()
        outcome = self.engine.step(batches, rate, runs.dropout_seed(self.settings.seed, step, self.processes.rank))
        if not outcome.updated and not self.engine.is_overflow(outcome) and self.processes.is_first:
            logger.warning(
                "Step %d was skipped: the loss is %s and the gradients' norm %s.", step + 1, outcome.loss, outcome.norm
            )
        tokens = self.processes.sum(np.array([sum(float(batch["attention_mask"].sum()) for batch in batches)]))[0]
        seconds = time.perf_counter() - begun
        values = {
            "loss": outcome.loss,
            "accuracy": outcome.sums["correct"] / max(1.0, outcome.sums["count"]),
            **runs.told(outcome, rate, tokens, seconds),
        }
        if (step + 1) % self.settings.log_every == 0 or not outcome.updated:
            log.write("step", step + 1, values)
        progress.set_postfix_str(f"loss {outcome.loss:.3f}, {values['tokens_per_second']:,.0f} tokens/s", refresh=False)
        progress.update(1)

    def _judge(self, epoch: int, done: int, log: runs.Log) -> None:
        """Scores an epoch on dev, and keeps its model if it is the best so far."""
        scores = self._scored("dev")
        self.history.append(scores)
        log.write("eval", done, scores)
        if not self.processes.is_first:
            return
        is_best = self._best() == epoch
        if is_best:
            self.model.save_pretrained(self.folder / _BEST.format(epoch + 1))
        shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        best = f" (best {self.settings.best_by})" if is_best else ""
        logger.info("epoch %d of %d: dev %s%s", epoch + 1, self.settings.epochs, shown, best)

    def _best(self) -> int:
        """The best epoch, the first of equal ones; counted from 0."""
        values = [scores[self.settings.best_by] for scores in self.history]
        return values.index(max(values))

    def _is_over(self) -> bool:
        patience = self.settings.patience
        return patience is not None and bool(self.history) and len(self.history) - 1 - self._best() >= patience

    def _scored(self, split: str, file: Optional[Path] = None) -> "dict[str, float]":
        """The scores of a split; its predictions are written to `file`.

        Public corpora repeat texts across their files (a quarter of ChnSentiCorp's test texts are in its train): where
        some are, and not all, there is another score, over the rest alone.
        """
        settings = self.settings
        outputs = answers(self.task, self.objective, self.features[split], settings.predict_tokens, self.processes)
        rows = self.task.rows(self.records[split], self.features[split], outputs)
        unseen = [row for row, is_known in zip(rows, self.in_train[split]) if not is_known]
        is_mixed = 0 < len(unseen) < len(rows)
        if is_mixed:
            for row in compress(rows, self.in_train[split]):
                row[IN_TRAIN] = True
        if file is not None and self.processes.is_first:
            write_rows(file, rows)
        scores = self.task.score(rows)
        if is_mixed:
            best_by = self.settings.best_by
            scores[UNSEEN + best_by] = self.task.score(unseen)[best_by]
        return scores

    def _save(self, done: int) -> None:
        facts = {"history": self.history, "seed": self.settings.seed}
        runs.save(self.folder, done, self.model, self.engine, facts, self.settings.keep_checkpoints)
        if self.processes.is_first and self.history:
            for old in self.folder.glob("best-epoch-*"):
                if old.name != _BEST.format(self._best() + 1):
                    shutil.rmtree(old)

    def _finish(self) -> Result:
        """The best epoch's model, its predictions and scores."""
        best = self.folder / _BEST.format(self._best() + 1)
        target = self.folder / runs.MODEL_FOLDER
        if self.processes.is_first and best.is_dir():
            self.task.tokenizer.save_pretrained(best)
            self.task.facts.write(best)
            shutil.rmtree(target, ignore_errors=True)
            best.replace(target)
        self.processes.wait()
        self.model.load_arrays(checkpoints.model_arrays(target), str(target))
        scores: "dict[str, Any]" = {
            split: self._scored(split, self.folder / f"{split}.predictions.jsonl")
            for split in ("dev", "test")
            if split in self.features
        }
        return self._result(target, None, scores)

    def _result(self, model: Optional[Path], signal: Optional[str], scores: "dict[str, Any]") -> Result:
        best = self._best() if self.history else -1
        result = Result(
            task=self.settings.task,
            metric=self.settings.best_by,
            seed=self.settings.seed,
            model=model,
            dev=scores.get("dev", self.history[best] if self.history else {}),
            test=scores.get("test"),
            best_epoch=best + 1,
            epochs=len(self.history),
            signal=signal,
        )
        if model is not None and self.processes.is_first:
            _write_result(self.folder, [result], [""])
            shutil.rmtree(self.folder / runs.CHECKPOINTS, ignore_errors=True)  # as large as three models
        return result


def _write_result(folder: Path, results: "Sequence[Result]", places: "Sequence[str]") -> None:
    """`result.json` of a run, or of several runs with other seeds; `places` are where their files are, as seen from
    the folder: "seed-0/", or "" for the folder itself."""
    seeds = []
    for result, inside in zip(results, places):
        last = "test" if result.test is not None else "dev"
        seeds.append(
            {
                "seed": result.seed,
                "dev": result.dev,
                **({} if result.test is None else {"test": result.test}),
                "best_epoch": result.best_epoch,
                "epochs": result.epochs,
                "predictions": f"{inside}{last}.predictions.jsonl",
            }
        )
    content = {"task": results[0].task, "metric": results[0].metric, "seeds": seeds}
    write_json(folder / RESULT, content)


def read_result(folder: Path, settings: FinetuneSettings) -> Optional[Result]:
    """What the run in the folder wrote when it was finished; None where it is not.

    Raises:
        ValueError: the file is damaged, or of another run.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    remedy = "Copy it back from a backup, or remove it: the same command then trains the run anew."
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        (found,) = content["seeds"]
        result = Result(
            task=content["task"],
            metric=content["metric"],
            seed=found["seed"],
            model=folder / runs.MODEL_FOLDER,
            dev=_numbers(found["dev"]),
            test=None if found.get("test") is None else _numbers(found["test"]),
            best_epoch=int(found["best_epoch"]),
            epochs=int(found["epochs"]),
            signal=None,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is not what a run writes at its end ({type(error).__name__}: {error}). {remedy}"
        ) from None
    expected = (settings.task, settings.best_by, settings.seed, settings.test is not None)
    got = (result.task, result.metric, result.seed, result.test is not None)
    if expected != got:
        raise ValueError(
            f"{path} is of another run: expected task, metric, seed and whether there is a test to be {expected}, but "
            f"got {got}. {remedy}"
        )
    return result


def _numbers(scores: "Mapping[str, Any]") -> "dict[str, float]":
    return {name: float(value) for name, value in scores.items()}


def write_rows(file: Path, rows: "Sequence[dict[str, Any]]") -> None:
    with replaced(file) as path, open(path, "w", encoding="utf-8") as opened:
        opened.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _label(record: Any) -> Any:
    """What a record is labelled with; None where it is not."""
    if hasattr(record, "answers"):
        return record.answers  # none is an answer too
    return record.labels if hasattr(record, "labels") else record.label


def _layers_below_the_head(name: str, layers: int) -> int:
    """0 for the head and the pooler, 1 for the last layer, and so on down to the embeddings."""
    if "embeddings." in name:
        return layers + 1
    if ".layer." in name:
        return layers - int(name.split(".layer.")[1].split(".")[0])
    return 0
