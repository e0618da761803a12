"""What a fine-tuning is told, and the presets of Huawei's scripts."""

import math
from dataclasses import dataclass, field
from typing import Any, Optional

from paddle_nezha.training.data.readers import LAYOUTS

_OF_CLASSES = ("accuracy", "macro_f1", "mcc")
# What may decide which epoch was the best; the first does, unless told otherwise.
METRICS = {
    "sentence": _OF_CLASSES,
    "pair": _OF_CLASSES,
    "token": ("f1", "precision", "recall"),
    "span": ("f1", "em"),
    "choice": _OF_CLASSES,
}
TASKS = tuple(METRICS)
_WITHOUT_CLASSES = ("span", "choice")
# What may differ between a run and its continuation: none of it changes a number that is computed.
FREE = ("checkpoint_every", "keep_checkpoints", "log_every", "curves", "predict_tokens")
# Lengths, batches, rates and epochs of Huawei's scripts for its Chinese models.
PRESETS: "dict[str, dict[str, Any]]" = {
    "chnsenti": {"task": "sentence", "max_length": 128, "batch_size": 16, "learning_rate": 3e-5, "epochs": 10},
    "lcqmc": {"task": "pair", "max_length": 128, "batch_size": 32, "learning_rate": 3e-5, "epochs": 5},
    "xnli": {"task": "pair", "max_length": 128, "batch_size": 32, "learning_rate": 3e-5, "epochs": 3},
    "ner": {"task": "token", "max_length": 256, "batch_size": 16, "learning_rate": 3e-5, "epochs": 10},
    "cmrc": {"task": "span", "max_length": 512, "stride": 128, "batch_size": 4, "learning_rate": 3e-5, "epochs": 1},
}


def _setting(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True)
class FinetuneSettings:
    """Settings of `paddle-nezha finetune`; each field's help says what it is.

    Raises:
        ValueError: a value out of its range.
    """

    task: str = field(metadata={"help": "sentence, pair, token, span or choice"})
    model: str = field(metadata={"help": "the checkpoint to begin from: a folder or a published name"})
    train: str = field(
        metadata={
            "help": "the file to learn from; token: or a folder with source.txt and target.txt (characters, tags)",
            "metavar": "FILE",
        }
    )
    dev: str = field(metadata={"help": "the file that says which epoch was the best", "metavar": "FILE"})
    output: str = field(metadata={"help": "the folder of the run; a run that is there goes on", "metavar": "DIR"})
    test: Optional[str] = _setting(None, "a file that is judged once, at the end", metavar="FILE")
    layout: Optional[str] = _setting(
        None, f"how the files are laid out: {', '.join(LAYOUTS)} (told from their content)"
    )
    columns: Optional[dict] = _setting(None, "which columns or keys hold what, such as {text: review, label: stars}")
    seed: int = _setting(0, "what every draw follows from: the new head, order, dropout")
    max_length: int = _setting(128, "tokens of an example, special ones included")
    stride: int = _setting(128, "span: tokens from the start of a window of a long context to the next, as BERT counts")
    batch_size: int = _setting(32, "examples of a step, over all processes and micro-batches")
    micro_batch_size: Optional[int] = _setting(None, "examples computed at once in a process (all of its share)")
    epochs: int = _setting(3, "passes over the training file")
    learning_rate: float = _setting(3e-5, "the largest learning rate")
    layer_decay: float = _setting(1.0, "times the rate of the layer above, for each layer from the head down")
    warmup_ratio: float = _setting(0.1, "share of all steps until the rate is reached")
    weight_decay: float = _setting(0.01, "of all but biases and LayerNorm")
    clip_norm: Optional[float] = _setting(1.0, "the most that the norm of all gradients may be; none leaves them")
    class_weights: str = _setting("none", '"none" or "balanced": rare classes weigh as much as frequent ones')
    adversarial: float = _setting(0.0, "FGM: the length of the worst step in the word embeddings of a text; 0 is off")
    metric: Optional[str] = _setting(None, "what is best on dev (accuracy; f1 for token and span)")
    patience: Optional[int] = _setting(None, "epochs without a better one after which the run ends")
    amp: str = _setting("none", 'mixed precision on GPUs: "none", "O1" or "O2"')
    amp_dtype: str = _setting("bfloat16", '"bfloat16" or "float16", which scales the loss')
    recompute: bool = _setting(False, "keep each layer's input alone, and compute the layer again in the backward pass")
    max_answer_length: int = _setting(100, "span: tokens of an answer at most")
    checkpoint_every: int = _setting(500, "steps between checkpoints")
    keep_checkpoints: int = _setting(1, "how many of the newest are kept while it trains")
    log_every: int = _setting(1, "steps between lines in metrics.jsonl")
    predict_tokens: int = _setting(4096, "tokens computed at once where nothing is learnt")
    curves: bool = _setting(True, "also write curves for VisualDL or TensorBoard, whichever is installed")

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}, but is {self.task!r}.")
        positive = (
            "stride",
            "batch_size",
            "micro_batch_size",
            "epochs",
            "learning_rate",
            "layer_decay",
            "clip_norm",
            "patience",
        )
        for name in (
            *positive,
            "checkpoint_every",
            "keep_checkpoints",
            "log_every",
            "predict_tokens",
            "max_answer_length",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, but is {value}.")
        for name in ("seed", "weight_decay", "adversarial"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more and finite, but is {getattr(self, name)}.")
        if not 0 <= self.warmup_ratio <= 1:
            raise ValueError(f"warmup_ratio must be from 0 to 1, but is {self.warmup_ratio}.")
        if self.best_by not in METRICS[self.task]:
            raise ValueError(f"metric must be {' or '.join(METRICS[self.task])} for this task, but is {self.metric!r}.")
        if self.max_length < 8:
            raise ValueError(f"max_length must be at least 8, but is {self.max_length}.")
        for name, words in {
            "class_weights": ("none", "balanced"),
            "amp": ("none", "O1", "O2"),
            "amp_dtype": ("bfloat16", "float16"),
        }.items():
            if getattr(self, name) not in words:
                raise ValueError(f"{name} must be {' or '.join(words)}, but is {getattr(self, name)!r}.")
        if self.class_weights != "none" and self.task in _WITHOUT_CLASSES:
            raise ValueError(f"class_weights: a {self.task} task has no classes to balance; leave it out.")

    @property
    def best_by(self) -> str:
        return self.metric or METRICS[self.task][0]
