"""What can be measured: shapes, tasks, engines. No framework is imported here.

An engine is a way to compute one of two things: the whole encoder (embeddings, 12 layers, pooler) or one attention
alone. All engines of a run are given the same ids, masks and sizes, and weights of the same distribution.
"""

import re
from dataclasses import asdict, dataclass, field
from typing import Any

FORWARD = "forward"
TRAINING = "training"  # forward, and backward from a fixed gradient of the last hidden states; no optimizer
ATTENTION = "attention"  # alone: from q, k, v to the context, forward
ATTENTION_TRAINING = "attention-training"  # the same, and backward to q, k, v
TASKS = {
    FORWARD: "whole model, forward",
    TRAINING: "whole model, forward and backward",
    ATTENTION: "attention alone, forward",
    ATTENTION_TRAINING: "attention alone, forward and backward",
}
# What a run can be asked for, and the tasks it times for it.
WHATS: "dict[str, tuple[str, ...]]" = {
    "accuracy": (),
    "memory": (),
    "attention": (ATTENTION, ATTENTION_TRAINING),
    "forward": (FORWARD,),
    "training": (TRAINING,),
}


@dataclass(frozen=True, order=True)
class Case:
    """A batch B x L. `padded`: texts of L/8 .. L tokens, 56 % of a batch of eight real."""

    batch: int
    length: int
    padded: bool = False

    @property
    def lengths(self) -> "list[int]":
        """The real tokens of each text."""
        if not self.padded or self.batch == 1:
            return [self.length] * self.batch
        least = max(1, self.length // 8)
        return [least + (self.length - least) * i // (self.batch - 1) for i in range(self.batch)]

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def name(self) -> str:
        return f"{self.batch}x{self.length}{' padded' if self.padded else ''}"

    @classmethod
    def parse(cls, text: str) -> "Case":
        """
        Raises:
            ValueError: not of the form 8x128.
        """
        found = re.fullmatch(r"(\d+)x(\d+)", text.strip())
        if not found or not int(found[1]) or not int(found[2]):
            raise ValueError(f"expected a shape like 8x128 (texts x tokens), got {text!r}")
        return cls(int(found[1]), int(found[2]))


SHAPES = (Case(1, 128), Case(8, 128), Case(1, 512), Case(8, 512), Case(1, 2048))
QUICK_SHAPES = (Case(1, 16), Case(2, 24))
# Where the memory of the whole model is read: a new process each time, so not at every shape.
MEMORY_SHAPES = (Case(8, 128), Case(1, 512))
# Lengths on both sides of the table's reach of 64; two texts, one with hidden keys.
ACCURACY_LENGTHS = (7, 64, 66, 129, 200, 512)
ACCURACY_SCALES = (1.0, 3.0)  # of q, k and v; 3 gives peaked probabilities

BASE_SIZES = {
    "vocab_size": 21128,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_relative_position": 64,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
QUICK_SIZES = {
    **BASE_SIZES,
    "vocab_size": 99,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 256,
}


@dataclass(frozen=True)
class Setting:
    """What all engines of a run share.

    Args:
        sizes: of the model, by `NeZhaConfig`'s names.
        threads: of every engine that does not state its own.
        dropout: of hidden states and of probabilities, in training.
        least: seconds that a repetition lasts; shorter calls are made several times and divided.
    """

    sizes: "dict[str, int]" = field(default_factory=lambda: dict(BASE_SIZES))
    threads: int = 1
    dropout: float = 0.0
    least: float = 0.1

    @property
    def head_size(self) -> int:
        return self.sizes["hidden_size"] // self.sizes["num_attention_heads"]


@dataclass(frozen=True)
class Engine:
    """One way to compute.

    Args:
        name: what `--engines` calls it.
        title: for people.
        backend: a key of `parity.bench.backends.BACKENDS`.
        tasks: what it can compute.
        relative: False leaves the relative term out.
        form: of ours, forced; "" is what is chosen by itself.
        isa: of ours, forced.
        tuned: after `paddle_nezha.tuning.tune_cpu()`; otherwise as installed ("stock").
        threads: its own number; 0 is the run's.
        longest: inputs end here; 0 is any length.
        padded: tasks of which padded batches are measured too.
        kept: how many tensors [B, H, L, L] a layer keeps for its backward, roughly; 0 where memory grows with L.
        memory: its peak memory is read.
        needs: distributions without which it is left out.
    """

    name: str
    title: str
    backend: str
    tasks: "tuple[str, ...]"
    relative: bool = True
    form: str = ""
    isa: str = ""
    tuned: bool = False
    threads: int = 0
    longest: int = 0
    padded: "tuple[str, ...]" = ()
    kept: int = 0
    memory: bool = False
    needs: "tuple[str, ...]" = ()

    def takes(self, task: str, case: Case) -> bool:
        # One attention alone has no position table of a fixed length.
        fits = not self.longest or case.length <= self.longest or task in WHATS["attention"]
        return task in self.tasks and fits and (not case.padded or task in self.padded)

    def bytes(self, task: str, case: Case, setting: Setting) -> int:
        """What the scores of a call take at its peak, roughly; to leave out what would not fit."""
        one = 4 * case.batch * setting.sizes["num_attention_heads"] * case.length**2
        layers = setting.sizes["num_hidden_layers"] if task == TRAINING else 1
        gathered = 3 * 4 * case.length**2 * setting.head_size if self.backend == "published" else 0
        return self.kept * one * layers + gathered


_MODEL = (FORWARD, TRAINING)
_ALONE = (ATTENTION, ATTENTION_TRAINING)
_ALL = (*_MODEL, *_ALONE)
# transformers and PaddleNLP gather their table for 512 tokens in every layer.
_PUBLISHED_LENGTH = 512

ENGINES = (
    Engine("ours", "NeZha, ours", "ours", _ALL, tuned=True, padded=_MODEL, memory=True),
    Engine("ours-stock", "NeZha, ours, stock Paddle", "ours", _ALL),
    Engine("ours-blocked", "NeZha, ours, blocked form", "ours", _ALL, form="blocked", tuned=True, kept=2, memory=True),
    Engine("ours-dense", "NeZha, ours, dense form", "ours", _ALL, form="dense", tuned=True, kept=8, memory=True),
    Engine("ours-avx2", "NeZha, ours, AVX2 form", "ours", _ALONE, isa="avx2", tuned=True),
    Engine("ours-portable", "NeZha, ours, portable form", "ours", _ALONE, isa="portable", tuned=True),
    Engine("ours-2-threads", "NeZha, ours, two threads", "ours", _ALONE, tuned=True, threads=2),
    Engine("ours-inference", "NeZha, ours, Paddle Inference", "inference", (FORWARD,)),
    Engine("bound", "the same engine without the relative part", "ours", _ALL, False, tuned=True, memory=True),
    Engine("bound-inference", "the same without it, Paddle Inference", "inference", (FORWARD,), False),
    Engine("bert", "BERT in Paddle", "bert", _ALL, tuned=True, padded=(FORWARD,), kept=4, memory=True),
    Engine("bert-stock", "BERT in Paddle, stock", "bert", _ALL, kept=4),
    Engine("bert-inference", "BERT in Paddle Inference", "bert-inference", (FORWARD,), kept=4),
    Engine(
        "bert-onnxruntime", "BERT in onnxruntime", "onnxruntime", (FORWARD,), needs=("torch", "onnx", "onnxruntime")
    ),
    Engine("bert-openvino", "BERT in OpenVINO", "openvino", (FORWARD,), needs=("torch", "openvino")),
    Engine(
        "published", "NeZha, published arithmetic in Paddle", "published", _ALL,
        tuned=True, longest=_PUBLISHED_LENGTH, kept=8, memory=True,
    ),
    Engine(
        "published-stock", "NeZha, published arithmetic, stock Paddle", "published", _ALL,
        longest=_PUBLISHED_LENGTH, kept=8,
    ),
    Engine(
        "paddlenlp", "NeZha of PaddleNLP, stock Paddle", "paddlenlp", _MODEL,
        longest=_PUBLISHED_LENGTH, kept=8, needs=("paddlenlp",),
    ),
    Engine(
        "transformers", "NeZha of transformers", "transformers", _MODEL,
        longest=_PUBLISHED_LENGTH, kept=8, needs=("torch", "transformers"),
    ),
)  # fmt: skip
BY_NAME = {engine.name: engine for engine in ENGINES}
# Everybody is compared with this one, in neighbouring repetitions.
ANCHOR = "ours"


def spelled(item: Any) -> "dict[str, Any]":
    """A dataclass of this module as plain data, for the way between processes; `Engine(**…)` reads it back."""
    return asdict(item)
