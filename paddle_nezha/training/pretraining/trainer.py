"""Pre-training: from a corpus and settings to a model, stopped and taken up again at any moment."""

import contextlib
import dataclasses
import logging
import math
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from paddle_nezha._paddle import paddle
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.heads import NeZhaForMaskedLM, NeZhaForPretraining
from paddle_nezha.hub import resolve
from paddle_nezha.training import runs
from paddle_nezha.training.corpus import Corpus
from paddle_nezha.training.engine import Engine, Outcome, Precision
from paddle_nezha.training.examples import ExampleStream
from paddle_nezha.training.optimization import make_optimizer, trained_parameters
from paddle_nezha.training.pretraining.batches import Maker, Share, StepBatches, step_batches
from paddle_nezha.training.pretraining.evaluation import held_out_stream, means, with_perplexity
from paddle_nezha.training.pretraining.objective import PretrainingObjective
from paddle_nezha.training.pretraining.settings import FREE, PretrainingSettings
from paddle_nezha.training.processes import Processes
from paddle_nezha.training.throughput import product_peak, training_flops

logger = logging.getLogger("paddle_nezha")

# Steps that may be skipped one after the other: a batch can be at fault for one, the parameters are for all.
_MOST_SKIPPED = 10


class NonFiniteError(ValueError):
    """A loss or a gradient was not finite, and the settings say to stop."""


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Args:
        steps: that were made, earlier parts of the run included.
        signal: the name of what stopped it before its end, or None.
        model: the folder of the trained model, if it is finished.
        evaluation: the last one on held-out documents, if any.
    """

    steps: int
    signal: Optional[str]
    model: Optional[Path]
    evaluation: "Optional[dict[str, float]]"


def pretrain(settings: PretrainingSettings) -> Result:
    """Trains, or goes on with the run that `settings.output` holds.

    Under `paddle.distributed.launch` every process calls it; they share the folder.

    Raises:
        ValueError: settings, a corpus, a checkpoint or an earlier run that do not fit each other.
        NonFiniteError: see `on_nonfinite`.
    """
    settings = runs.without_missing_amp(settings)
    with contextlib.ExitStack() as held:
        return _Run(settings, Processes.join(settings.sharding), held).train()


class _Run:
    def __init__(self, settings: PretrainingSettings, processes: Processes, held: contextlib.ExitStack):
        self.settings, self.processes = settings, processes
        self.folder = Path(settings.output)
        self.corpus = Corpus.open(settings.corpus)
        count, size = settings.micro_batches(processes.count)
        self.share = Share(settings.batch_size, processes.rank * count * size, count, size)
        self.model = self._model()
        self.held_out = self._held_out()
        self.saved = runs.begin(self.folder, self._described(), (*FREE, "output"), processes, held)
        objective = PretrainingObjective(self.model, self.corpus.mask_id)
        objective.train()
        self.parameters = trained_parameters(self.model, settings.next_sentence)
        self.engine = Engine(objective, self.parameters, self._optimizer, self._precision(), processes)
        if self.saved is not None:
            runs.restore(self.saved, self.model, self.engine)

    # ---- beginning

    def _described(self) -> "dict[str, Any]":
        return {
            "kind": "pretraining",
            "settings": dataclasses.asdict(self.settings),
            "corpus_digest": self.corpus.digest,
            "facts": runs.conditions(self.processes),
        }

    def _model(self) -> Any:
        settings, kind = self.settings, NeZhaForPretraining if self.settings.next_sentence else NeZhaForMaskedLM
        paddle.seed(settings.seed)
        if settings.model is not None:
            model = kind.from_pretrained(settings.model, dtype=settings.dtype)
            if model.config.vocab_size != self.corpus.vocab_size:
                raise ValueError(
                    f"{settings.model} has {model.config.vocab_size} words and the corpus {self.corpus.vocab_size}: "
                    f"build the corpus with the model's own tokenizer (--tokenizer {settings.model})."
                )
            self._check_words(resolve(settings.model))
        else:
            given = {
                "vocab_size": self.corpus.vocab_size,
                "pad_token_id": self.corpus.pad_id,
                **(settings.config or {}),
            }
            try:
                model = kind(NeZhaConfig(**given))
            except TypeError as error:  # a key that no config has
                raise ValueError(f"config: {error}") from None
            model.to(dtype=settings.dtype)
        runs.check_length(model.config, settings.max_length)
        model.nezha.encoder.enable_recompute = settings.recompute
        return model

    def _check_words(self, folder: Path) -> None:
        """The ids of the corpus must mean the model's words, where it brings its words along."""
        theirs, ours = (path / "vocab.txt" for path in (folder, self.corpus.tokenizer_folder))
        if theirs.is_file() and ours.is_file() and _lines(theirs) != _lines(ours):
            raise ValueError(
                f"{theirs} lists other words than the corpus was built with, or in another order: build the corpus "
                f"with the model's own tokenizer (--tokenizer {folder})."
            )

    def _optimizer(self, master_weights: bool) -> Any:
        settings = self.settings
        return make_optimizer(
            settings.optimizer,
            self.parameters,
            settings.learning_rate,
            settings.weight_decay,
            (settings.beta1, settings.beta2),
            settings.epsilon,
            settings.clip_norm,
            master_weights,
        )

    def _precision(self) -> Precision:
        return Precision(self.settings.amp, self.settings.amp_dtype)

    def _held_out(self) -> Optional[ExampleStream]:
        if self.settings.eval_every is None:
            return None
        try:
            corpus = Corpus.open(self.settings.corpus, split="held_out")
            return held_out_stream(corpus, self.settings.examples)
        except ValueError as error:
            if self.processes.is_first:
                logger.warning("Nothing is evaluated: %s", error)
            return None

    # ---- running

    def train(self) -> Result:
        settings = self.settings
        facts: "dict[str, Any]" = {"position": None, "skipped": 0, "evaluation": None}
        if self.saved is not None:
            facts = self.saved.facts
        self.skipped, self.evaluation = facts["skipped"], facts["evaluation"]
        self.skipped_now = 0  # one after the other
        done = 0 if self.saved is None else self.saved.step
        if self.processes.is_first:
            self._tell_beginning(done)
        self.peak = self._peak()  # FLOP/s of a matrix product here
        maker = Maker(ExampleStream(self.corpus, settings.examples, settings.seed, facts["position"]), self.share)
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(runs.metrics_log(self.folder, done, settings.curves, self.processes))
            progress = _Progress(stack.enter_context(runs.progress_bar(settings.steps, done, self.processes)))
            stopping = stack.enter_context(runs.stop_signals(self.processes))
            steps = stack.enter_context(step_batches(maker, done, settings.steps, settings.workers))
            for made in steps:
                self._step(made, log, progress)
                done = made.step + 1
                is_last = done == settings.steps
                # Any process may be told to stop; all of them do after the same step.
                stopped = self.processes.sum(np.array([float(bool(stopping))]))[0] > 0
                if self.held_out is not None and (is_last or done % self._eval_every == 0):
                    self.evaluation = self._evaluate(self.held_out)
                    log.write("eval", done, self.evaluation)
                    self.peak = max(self.peak, self._peak())  # a machine that was busy then may be free now
                if is_last or stopped or done % settings.checkpoint_every == 0:
                    self._save(done, made.position)
                if stopped and not is_last:
                    return Result(done, stopping[0] if stopping else "a signal", None, self.evaluation)
        return Result(done, None, self._finish(), self.evaluation)

    def _peak(self) -> float:
        precision = self._precision()
        return product_peak(precision.dtype if precision.is_mixed else self.settings.dtype)

    @property
    def _eval_every(self) -> int:
        return self.settings.eval_every or self.settings.steps

    def _step(self, made: StepBatches, log: runs.Log, progress: Any) -> None:
        settings, rate = self.settings, self.settings.schedule.rate(made.step)
        begun = time.perf_counter()
        seed = runs.dropout_seed(settings.seed, made.step, self.processes.rank)
        outcome = self.engine.step(made.batches, rate, seed)
        self.skipped_now = 0 if outcome.updated else self.skipped_now + 1
        if not outcome.updated:
            self._not_finite(made, outcome)
        tokens, pairs = self.processes.sum(_sizes(made.batches))
        seconds = time.perf_counter() - begun
        flops = training_flops(self.model.config, tokens, pairs, outcome.sums["mlm_count"])
        values = {
            "loss": outcome.loss,
            **means(outcome.sums, self.settings.next_sentence),
            **runs.told(outcome, rate, tokens, seconds),
            "of_peak": round(flops / seconds / (self.peak * self.processes.count), 4),
        }
        if (made.step + 1) % settings.log_every == 0 or not outcome.updated or made.step + 1 == settings.steps:
            log.write("step", made.step + 1, values)
        progress.told(values)

    def _not_finite(self, made: StepBatches, outcome: Outcome) -> None:
        self.skipped += 1
        if self.engine.is_overflow(outcome):
            return
        if self.settings.on_nonfinite == "skip" and self.skipped_now < _MOST_SKIPPED:
            if self.processes.is_first:
                logger.warning(
                    "Step %d was skipped (%d so far): the loss is %s and the gradients' norm %s.",
                    made.step + 1, self.skipped, outcome.loss, outcome.norm,
                )  # fmt: skip
            return
        file = self.folder / f"not-finite-step-{made.step + 1}-process-{self.processes.rank}.npz"
        arrays: "dict[str, Any]" = {
            f"{number}.{name}": array for number, batch in enumerate(made.batches) for name, array in batch.items()
        }
        np.savez(file, **arrays)
        self._save(made.step, made.position)
        raise NonFiniteError(
            f"Step {made.step + 1}: the loss is {outcome.loss} and the gradients' norm {outcome.norm}"
            f"{f', as in the {self.skipped_now - 1} steps before it' if self.skipped_now > 1 else ''}. The parameters "
            f"are as they were before it, in a checkpoint, and the batch is in {file}. Lower the learning rate or "
            "clip_norm in a run that continues from the checkpoint"
            f"{', or skip such steps (on_nonfinite: skip)' if self.settings.on_nonfinite == 'stop' else ''}."
        )

    def _evaluate(self, stream: ExampleStream) -> "dict[str, float]":
        """On the first held-out examples, shared out over the processes."""
        settings = self.settings
        size = self.share.size
        starts = range(self.processes.rank * size, settings.eval_examples, self.processes.count * size)
        batches = [stream.batch(start, min(size, settings.eval_examples - start)) for start in starts]
        return with_perplexity(means(self.engine.measure(batches), settings.next_sentence))

    def _save(self, done: int, position: "dict[str, int]") -> None:
        settings = self.settings
        facts = {
            "position": position,
            "skipped": self.skipped,
            "evaluation": self.evaluation,
            "seed": settings.seed,
        }
        runs.save(self.folder, done, self.model, self.engine, facts, settings.keep_checkpoints)

    def _finish(self) -> Path:
        """The trained model with its tokenizer, as anyone opens it."""
        target = self.folder / runs.MODEL_FOLDER
        if self.processes.is_first:
            self.model.save_pretrained(target)
            for file in sorted(self.corpus.tokenizer_folder.iterdir()):
                if file.name != "config.json":
                    shutil.copyfile(file, target / file.name)
        self.processes.wait()
        return target

    # ---- telling

    def _tell_beginning(self, done: int) -> None:
        settings = self.settings
        count = sum(math.prod(parameter.shape) for parameter in self.parameters.values())
        logger.info(
            "%s: %s parameters, %s tokens of %s documents, steps %d to %d of %d examples, %d process(es) of %s "
            "thread(s)",
            self.folder, f"{count:,}", f"{self.corpus.n_tokens:,}", f"{self.corpus.n_documents:,}", done + 1,
            settings.steps, settings.batch_size, self.processes.count, os.environ.get("OMP_NUM_THREADS", "1"),
        )  # fmt: skip


class _Progress:
    """The line that lives while a run does."""

    def __init__(self, bar: Any):
        self._bar = bar

    def told(self, values: "dict[str, Any]") -> None:
        words = [f"loss {values['loss']:.3f}", f"MLM {values['mlm_accuracy']:.1%}"]
        if "nsp_accuracy" in values:
            words.append(f"NSP {values['nsp_accuracy']:.1%}")
        words += [f"{values['tokens_per_second']:,.0f} tokens/s", f"{values['of_peak']:.0%} of peak"]
        self._bar.set_postfix_str(", ".join(words), refresh=False)
        self._bar.update(1)


def _lines(file: Path) -> "list[str]":
    return file.read_text(encoding="utf-8").split()


def _sizes(batches: "list[dict[str, np.ndarray]]") -> np.ndarray:
    """Tokens, and the sum of squared lengths."""
    lengths = np.concatenate([batch["attention_mask"].sum(1) for batch in batches]).astype("float64")
    return np.array([lengths.sum(), (lengths**2).sum()])
