"""A checkpoint of a user's own, judged on text of their own.

The two sides open the files by different code: paddle_nezha by its own readers and name map, the reference by torch and
safetensors with its own list of names, or, for `.pdparams`, through `paddle.load` in a process of its own. So a wrong
loader cannot hide.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

import numpy as np

import torch_ref
from paddle_nezha.auto import MODEL_CLASSES, head_of
from paddle_nezha.checkpoint import pdparams
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.pretrained import PDPARAMS_NAME, weight_file
from paddle_nezha.tokenizer import NeZhaTokenizer
from parity.cases import Sample, make_labels
from parity.device import torch_device
from parity.judge import arithmetic_rows, formula_rows
from parity.result import Row
from parity.sides import FORMS, Observed, PaddleSide, TorchSide
from parity.stages import ratio_limit, trained_ratio_limit

BATCHES = 8  # as many samples as seeded cases have
MORE_BATCHES = 32  # where a row is beyond its limit, by chance or truly: the verdict over these stands
ROWS = 4  # texts in a batch
CHOICES = 3
_NO_DROPOUT: "dict[str, Any]" = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
}

_PADDLE_LOAD = """
import zlib, sys, numpy, paddle
arrays = paddle.load(sys.argv[1], return_numpy=True)
arrays.pop("StructuredToParameterName@@", None)
numpy.savez(sys.argv[2], **{name: numpy.asarray(array) for name, array in arrays.items()})
"""


@dataclass(frozen=True)
class Subject:
    """A checkpoint folder and the text to read with it."""

    folder: Path
    head: str
    config: NeZhaConfig
    samples: "list[Sample]"

    @classmethod
    def open(cls, folder: Path, texts: "list[str]", head: Optional[str] = None) -> "Subject":
        """
        Args:
            texts: read in turn, and again from the first, in other pairs, when they do not suffice.
            head: None finds it in the folder.

        Raises:
            FileNotFoundError, ValueError: files that are missing, or cannot be understood; the message says which.
        """
        head = head or head_of(folder)
        config = NeZhaConfig.from_pretrained(folder, **_NO_DROPOUT)
        tokenizer = NeZhaTokenizer.from_pretrained(folder)
        if len(tokenizer) > config.vocab_size:
            raise ValueError(
                f"{folder}: the tokenizer has {len(tokenizer)} tokens, but the model's vocab_size is "
                f"{config.vocab_size}: they do not belong together."
            )
        return cls(folder, head, config, list(_samples(tokenizer, config, head, texts)))


def _samples(tokenizer: NeZhaTokenizer, config: NeZhaConfig, head: str, lines: "list[str]") -> Iterator[Sample]:
    choices = CHOICES if head == "multiple_choice" else 1
    for number in range(MORE_BATCHES):
        rng = np.random.default_rng(number)
        rows = ROWS * choices
        places = range(number * rows, number * rows + rows)
        turn = places[0] // len(lines)  # how often all texts were read before
        first = [lines[place % len(lines)] for place in places]
        # Every other batch reads pairs, so that the second segment is judged too; texts that come again are in others.
        second = [lines[(place + 1 + turn) % len(lines)] for place in places] if number % 2 or turn else None
        encoded = tokenizer(
            first, second, padding=True, truncation=True, max_length=min(128, config.max_position_embeddings),
            return_attention_mask=True, return_tensors="np",
        )  # fmt: skip
        real = encoded["attention_mask"].astype(bool)
        inputs = {name: np.asarray(value) for name, value in encoded.items()}
        if choices > 1:
            inputs = {name: value.reshape(ROWS, choices, -1) for name, value in inputs.items()}
        cotangents: "tuple[np.ndarray, ...]" = ()
        if head == "model":
            sequence = rng.standard_normal((rows, real.shape[1], config.hidden_size)) * real[:, :, None]
            cotangents = (sequence, rng.standard_normal((rows, config.hidden_size)))
        yield Sample(config, head, {}, inputs, make_labels(config, head, ROWS, real, rng), real, cotangents)


def observe_text(subject: Subject, number: int, form: str) -> "tuple[Sample, Observed, Observed]":
    """One batch in float64, with the parameters as the reference read them: what a likely cause is found from."""
    paddle_side, truth_side = _paddle_side(subject, "float64"), _torch_side(subject, "float64")
    arrays = {name: np.asarray(array, np.float64) for name, array in torch_ref.parameters(truth_side.model).items()}
    sample = replace(subject.samples[number], arrays=arrays)
    return sample, paddle_side.observe(sample, form), truth_side.observe(sample)


def judge_formula_of(subject: Subject) -> "list[Row]":
    """Float64 on both sides, over the first two batches (single texts, and pairs)."""
    paddle_side, truth_side = _paddle_side(subject, "float64"), _torch_side(subject, "float64")
    rows: "list[Row]" = []
    for number, sample in enumerate(subject.samples[:2]):
        truth = truth_side.observe(sample)
        for form in FORMS:
            rows += formula_rows(
                f"{subject.folder.name}-text{number}", form, sample, paddle_side.observe(sample, form), truth
            )
    return rows


def judge_arithmetic_of(subject: Subject, device: str = "cpu") -> "list[Row]":
    """Float32 on both sides against float64, over all batches; a quarter of them first, which mostly suffices."""
    rows = _arithmetic_over(subject, subject.samples[:BATCHES], device)
    if all(row.passed for row in rows) or len(subject.samples) <= BATCHES:
        return rows
    return _arithmetic_over(subject, subject.samples, device)


def _arithmetic_over(subject: Subject, samples: "list[Sample]", device: str) -> "list[Row]":
    ours, theirs = _paddle_side(subject, "float32"), _torch_side(subject, "float32", torch_device(device))
    truth_side = _torch_side(subject, "float64")
    rows: "list[Row]" = []
    for form in FORMS:
        seen = [(s, ours.observe(s, form), theirs.observe(s), truth_side.observe(s)) for s in samples]
        by_paddle = form != "operator" and subject.config.hidden_act in ("gelu", "gelu_10", "gelu_python")
        limit = trained_ratio_limit if by_paddle else ratio_limit
        rows += arithmetic_rows(f"{subject.folder.name}-text", form, seen, ratio_limit=limit)
    return rows


def _paddle_side(subject: Subject, dtype: str) -> PaddleSide:
    model = MODEL_CLASSES[subject.head].from_pretrained(subject.folder, dtype=dtype, **_NO_DROPOUT)
    return PaddleSide(subject.config, subject.head, dtype, model)


def _torch_side(subject: Subject, dtype: str, device: str = "cpu") -> TorchSide:
    side = TorchSide(subject.config, subject.head, dtype, device)
    file = weight_file(subject.folder)
    if file.name == PDPARAMS_NAME:
        torch_ref.load_paddle(side.model, paddle_load(file))
    else:
        torch_ref.load_file(side.model, file)
    return side


def paddle_load(file: Path) -> "dict[str, np.ndarray]":
    """A `.pdparams` file as Paddle itself reads it, in a process of its own.

    `paddle.load` executes what a pickle says. It is called only on files that our own reader, which executes nothing,
    has read: those hold plain arrays.

    Raises:
        RuntimeError: Paddle could not read the file.
    """
    pdparams.read(file)
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "arrays.npz"
        done = subprocess.run(
            [sys.executable, "-c", _PADDLE_LOAD, str(file), str(arrays)], capture_output=True, text=True
        )
        if done.returncode:
            said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise RuntimeError(f"paddle.load could not read {file}: {said}")
        with np.load(arrays) as stored:
            return {name: stored[name] for name in stored.files}
