"""What a pre-training is told. The defaults are the paper's and Huawei's scripts' for the base model."""

from dataclasses import dataclass, field, fields
from typing import Any, Optional

from paddle_nezha.training.examples import ExampleSettings
from paddle_nezha.training.schedule import OPTIMIZERS, Schedule

# What may differ between a run and its continuation: none of it changes a number that is computed.
FREE = ("checkpoint_every", "keep_checkpoints", "log_every", "workers", "curves")


def _setting(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True)
class PretrainingSettings:
    """Settings of `paddle-nezha pretrain`; each field's help says what it is.

    Raises:
        ValueError: a value out of its range.
    """

    corpus: str = field(metadata={"help": "the folder that `paddle-nezha corpus build` wrote", "metavar": "DIR"})
    output: str = field(metadata={"help": "the folder of the run; a run that is there goes on", "metavar": "DIR"})
    steps: int = field(metadata={"help": "optimizer steps of the whole training"})
    model: Optional[str] = _setting(
        None, "a checkpoint to continue from: a folder or a published name; without it a new model is drawn"
    )
    config: Optional[dict] = _setting(
        None, "settings of a new model, such as {hidden_size: 256, num_hidden_layers: 4}; the rest is the base model's"
    )
    seed: int = _setting(0, "what every draw follows from: weights, order, pairs, masks, dropout")
    batch_size: int = _setting(128, "examples of a step, over all processes and micro-batches")
    micro_batch_size: Optional[int] = _setting(None, "examples computed at once in a process (all of its share)")
    max_length: int = _setting(128, "tokens of an example, special ones included")
    next_sentence: bool = _setting(True, "learn from pairs which sentence follows; else full sentences and MLM alone")
    short_sequence_probability: float = _setting(0.1, "share of pairs that are made shorter")
    whole_word: bool = _setting(True, "mask words, not tokens")
    mask_probability: float = _setting(0.15, "share of tokens to predict")
    max_predictions: Optional[int] = _setting(None, "the most tokens to predict in an example")
    draw_per: str = _setting("token", '"token" or "word": what is drawn to become [MASK], another token or stay')
    dupe_factor: Optional[int] = _setting(None, "static masking: as many sets of masks; else new ones each epoch")
    optimizer: str = _setting("lamb", '"lamb" or "adamw"')
    learning_rate: float = _setting(1.8e-4, "the largest learning rate")
    warmup_steps: Optional[int] = _setting(None, "steps until it is reached (a hundredth of all)")
    end_learning_rate: float = _setting(0.0, "what the decay leads to")
    decay_power: float = _setting(1.0, "of the polynomial decay")
    weight_decay: float = _setting(0.01, "of all but biases and LayerNorm")
    beta1: float = _setting(0.9, "of the optimizer")
    beta2: float = _setting(0.999, "of the optimizer")
    epsilon: float = _setting(1e-6, "of the optimizer")
    clip_norm: Optional[float] = _setting(1.0, "the most that the norm of all gradients may be; none leaves them")
    amp: str = _setting("none", 'mixed precision on GPUs: "none", "O1" or "O2"')
    amp_dtype: str = _setting("bfloat16", '"bfloat16" or "float16", which scales the loss')
    dtype: str = _setting("float32", '"float32" or "float64"')
    recompute: bool = _setting(False, "keep each layer's input alone, and compute the layer again in the backward pass")
    sharding: bool = _setting(False, "several processes: each keeps its share of the optimizer's state (stage 1)")
    on_nonfinite: str = _setting("skip", 'a loss or gradient that is not finite: "skip" the step, or "stop" the run')
    checkpoint_every: int = _setting(1000, "steps between checkpoints")
    keep_checkpoints: int = _setting(2, "how many of the newest are kept")
    eval_every: Optional[int] = _setting(1000, "steps between evaluations on held-out documents; none leaves them out")
    eval_examples: int = _setting(2048, "examples of an evaluation")
    log_every: int = _setting(1, "steps between lines in metrics.jsonl")
    workers: int = _setting(1, "processes that make batches, beside each that trains; 0: that one does it itself")
    curves: bool = _setting(True, "also write curves for VisualDL or TensorBoard, whichever is installed")

    def __post_init__(self) -> None:
        positive = ("steps", "batch_size", "micro_batch_size", "checkpoint_every", "keep_checkpoints", "eval_every")
        for name in (*positive, "eval_examples", "log_every", "learning_rate", "epsilon", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, but is {value}.")
        for name in ("workers", "warmup_steps", "weight_decay", "end_learning_rate", "decay_power", "seed"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be 0 or more, but is {value}.")
        for name, words in {
            "optimizer": OPTIMIZERS,
            "amp": ("none", "O1", "O2"),
            "amp_dtype": ("bfloat16", "float16"),
            "dtype": ("float32", "float64"),
            "on_nonfinite": ("skip", "stop"),
        }.items():
            if getattr(self, name) not in words:
                raise ValueError(f"{name} must be {' or '.join(words)}, but is {getattr(self, name)!r}.")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, but is {getattr(self, name)}.")
        if self.model is not None and self.config is not None:
            raise ValueError("Give model, to continue from a checkpoint, or config, to draw a new one, but not both.")
        if self.warmup > self.steps:
            raise ValueError(f"warmup_steps ({self.warmup}) must not be above steps ({self.steps}).")
        self.examples  # noqa: B018  checks its own

    @property
    def warmup(self) -> int:
        return self.steps // 100 if self.warmup_steps is None else self.warmup_steps

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.learning_rate, self.steps, self.warmup, self.end_learning_rate, self.decay_power)

    @property
    def examples(self) -> ExampleSettings:
        """What the settings say of examples."""
        names = {item.name for item in fields(ExampleSettings)} & {item.name for item in fields(self)}
        return ExampleSettings(**{name: getattr(self, name) for name in names})

    def micro_batches(self, processes: int) -> "tuple[int, int]":
        """How many micro-batches each process makes for a step, and how many examples each of them holds.

        Raises:
            ValueError: they do not divide the batch.
        """
        if self.batch_size % processes:
            raise ValueError(f"batch_size ({self.batch_size}) must be a multiple of the {processes} processes.")
        share = self.batch_size // processes
        size = min(share, self.micro_batch_size or share)
        if share % size:
            raise ValueError(
                f"micro_batch_size ({size}) must divide a process's share of batch_size, {share} examples of a step."
            )
        return share // size, size
