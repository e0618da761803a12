"""Why a stage parts, where the pattern is a known one.

Everything before the first stage that parts is right. So that stage is computed again from its own inputs, in NumPy and
float64, once with each known mistake: a mistake that gives the observed numbers is the likely cause. What no mistake
explains has no cause here.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, Optional

import numpy as np

from paddle_nezha.config import NeZhaConfig
from parity.cases import Sample
from parity.compare import distance, scale_of
from parity.sides import Observed
from parity.stages import TABLE_LIMIT

# Float64 on both sides rounds at 1e-15; a wrong hypothesis is wrong in the leading digits.
EVIDENCE = 1e-9
# A mistake must also explain most of the gap: one that hardly differs from the truth explains nothing.
EXPLAINED = 0.01

# What a mistake is called, and what it changes in a formula.
Hypotheses = tuple[tuple[str, dict[str, Any]], ...]


def likely_cause(stage: str, sample: Sample, ours: Observed, truth: Observed) -> str:
    """What went wrong at the first stage that parts.

    Args:
        stage: its name.
        sample: what both sides were given; its parameters are the right ones.
        ours, truth: both sides in float64.

    Returns:
        A few words, or "" when no known mistake gives these numbers.
    """
    if stage not in ours.named() or stage not in truth.named():
        return ""
    view = _View(stage, sample, ours, truth)
    with np.errstate(all="ignore"):  # a mistake may well overflow, and then explains nothing
        return next((words for words, predicted in _predictions(view) if view.explains(predicted)), "")


@dataclass(frozen=True)
class _View:
    """A stage, and what it was computed from."""

    stage: str
    sample: Sample
    ours: Observed
    truth: Observed

    @property
    def config(self) -> NeZhaConfig:
        return self.sample.config

    @property
    def layer(self) -> int:
        return int(self.stage.split(".")[1])

    @property
    def states(self) -> np.ndarray:
        """The input of the layer [B, L, N]."""
        return self.seen(f"layer.{self.layer - 1}.output" if self.layer else "embeddings")

    @property
    def last(self) -> np.ndarray:
        """The output of the last layer [B, L, N]."""
        return self.seen(f"layer.{self.config.num_hidden_layers - 1}.output")

    def seen(self, name: str) -> np.ndarray:
        # What a form never makes whole is taken from the truth: everything before the stage is right.
        return self.ours.stages[name] if name in self.ours.stages else self.truth.stages[name]

    def at(self, part: str) -> np.ndarray:
        return self.seen(f"layer.{self.layer}.{part}")

    def parameter(self, name: str) -> np.ndarray:
        arrays = self.sample.arrays
        return arrays[name] if name in arrays else arrays[f"nezha.{name}"]

    def of_layer(self, name: str) -> np.ndarray:
        return self.parameter(f"encoder.layer.{self.layer}.{name}")

    def explains(self, predicted: Optional[np.ndarray]) -> bool:
        """Whether these are the numbers that Paddle gave."""
        if predicted is None or not np.isfinite(predicted).all():
            return False
        right, observed = self.truth.named(), self.ours.named()[self.stage]
        scale = scale_of(self.stage, right, self.sample.real) or 1.0
        rest, _ = distance(self.stage, np.asarray(predicted), observed, scale, self.sample.real)
        gap, _ = distance(self.stage, right[self.stage], observed, scale, self.sample.real)
        return gap > TABLE_LIMIT and rest <= min(EVIDENCE, EXPLAINED * gap)


# ---- what attention looks up


def sinusoids(
    m: int,
    size: int,
    first_row: int = 0,
    base: float = 10000.0,
    step: int = 2,
    dtype: str = "float64",
    order: str = "pairs",
) -> np.ndarray:
    """The table [2m + 1, D], or what becomes of it.

    Args:
        step: 2 for the exponent 2i/D. dtype: that of the angles. order: "pairs", "cosines first" or "halves".
    """
    rows = np.arange(first_row, first_row + 2 * m + 1, dtype=dtype)[:, None]
    angle = rows / np.power(np.asarray(base, dtype), np.arange(0, size, 2, dtype=dtype) * step / 2 / size)
    sine, cosine = np.sin(angle).astype(np.float64), np.cos(angle).astype(np.float64)
    if order == "halves":
        return np.concatenate([sine, cosine], 1)
    return np.stack([cosine, sine] if order == "cosines first" else [sine, cosine], -1).reshape(len(rows), size)


def _table(view: _View, kept: str = "float64", wider: int = 0, **changes: Any) -> np.ndarray:
    table = sinusoids(view.config.max_relative_position + wider, view.config.head_size, **changes)
    return table.astype(kept).astype(np.float64)


def _rows(
    view: _View, sign: int = 1, shift: int = 0, narrower: int = 0, wraps: bool = False, absolute: bool = False
) -> np.ndarray:
    """The table's row for query f and key t, [L, L]."""
    m, length = view.config.max_relative_position, view.sample.real.shape[1]
    d = sign * (np.arange(length)[None] - np.arange(length)[:, None]) + shift
    d = np.abs(d) if absolute else d
    reach = m - narrower
    return ((d if wraps else np.clip(d, -reach, reach)) + m).astype(np.float64) % (2 * m + 1)


def _mask(view: _View, change: "Callable[[np.ndarray], np.ndarray]" = lambda mask: mask) -> np.ndarray:
    return change(view.truth.stages["mask"])


def _first_head(mask: np.ndarray) -> np.ndarray:
    return mask[:, :1]


# ---- embeddings


def _merged(view: _View, name: str) -> Optional[np.ndarray]:
    """An input with choices merged into the batch."""
    item = view.sample.inputs.get(name)
    if item is None or view.sample.head != "multiple_choice":
        return item
    return item.reshape(-1, *item.shape[2:])


def _embeddings(
    view: _View,
    segments: "Callable[[np.ndarray], Optional[np.ndarray]]" = lambda ids: ids,
    words: "Callable[[np.ndarray], np.ndarray]" = lambda table: table,
    power: float = 0.0,
    first: int = 0,
    **norm: Any,
) -> np.ndarray:
    """power: word embeddings are multiplied by N**power. first: the first absolute position."""
    total, ids = _merged(view, "inputs_embeds"), _merged(view, "input_ids")
    if total is None:
        total = words(view.parameter("embeddings.word_embeddings.weight"))[ids]
    types = _merged(view, "token_type_ids")
    types = segments(np.zeros(total.shape[:2], np.int64) if types is None else types)
    total = total * view.config.hidden_size**power
    if types is not None:
        total = total + view.parameter("embeddings.token_type_embeddings.weight")[types]
    if view.config.position_encoding == "absolute":
        total = total + view.parameter("embeddings.position_embeddings.weight")[first : first + total.shape[1]]
    return _normed(view, total, "embeddings.layer_norm", **norm)


def _shifted(table: np.ndarray) -> np.ndarray:
    return np.roll(table, 1, 0)


def _square_turned(table: np.ndarray) -> np.ndarray:
    return table.T if table.shape[0] == table.shape[1] else np.full_like(table, np.nan)


# ---- the parts of a layer


def _linear(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, turned: bool = False, with_bias: bool = True
) -> Optional[np.ndarray]:
    if turned and weight.shape[0] != weight.shape[1]:
        return None
    return x @ (weight.T if turned else weight) + (bias if with_bias else 0.0)


def _normed(
    view: _View,
    total: np.ndarray,
    norm: str,
    epsilon: Optional[float] = None,
    swapped: bool = False,
    absent: bool = False,
    freedom: int = 0,
) -> np.ndarray:
    """LayerNorm. swapped: weight and bias in each other's place. freedom: 1 divides by N - 1."""
    if absent:
        return total
    weight, bias = (view.parameter(f"{norm}.{kind}") for kind in ("weight", "bias"))
    if swapped:
        weight, bias = bias, weight
    # Paddle keeps the epsilon in float32.
    rounded = float(np.float32(view.config.layer_norm_eps if epsilon is None else epsilon))
    centred = total - total.mean(-1, keepdims=True)
    variance = (centred**2).sum(-1, keepdims=True) / (total.shape[-1] - freedom)
    return centred / np.sqrt(variance + rounded) * weight + bias


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


_ACTIVATIONS: "dict[str, Callable[[np.ndarray], np.ndarray]]" = {
    "gelu": _gelu,
    "gelu_python": _gelu,
    "gelu_new": _gelu_tanh,
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": lambda x: x / (1.0 + np.exp(-1.702 * x)),
    "relu": lambda x: np.maximum(x, 0.0),
    "linear": lambda x: x,
}


def _activated(view: _View, x: Optional[np.ndarray], name: str = "") -> Optional[np.ndarray]:
    activation = _ACTIVATIONS.get(name or view.config.hidden_act)
    return None if activation is None or x is None else activation(x)


def _projection(view: _View, of: str = "", layer: Optional[int] = None, **linear: Any) -> Optional[np.ndarray]:
    """Query, key or value. of: with the parameters of another of them. layer: with those of another layer."""
    module = f"encoder.layer.{view.layer if layer is None else layer}.attention.{of or view.stage.rsplit('.', 1)[-1]}"
    return _linear(view.states, view.parameter(f"{module}.weight"), view.parameter(f"{module}.bias"), **linear)


def _split(view: _View, x: np.ndarray, heads_last: bool = False) -> np.ndarray:
    batch, length, _ = x.shape
    heads = view.config.num_attention_heads
    if heads_last:
        return x.reshape(batch, length, -1, heads).transpose(0, 3, 1, 2)
    return x.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)


def _positions(view: _View, side: str, sign: int = 1) -> Optional[np.ndarray]:
    """A[row(f, t)], [F, T, D], of "key" or "value"; None where there is none."""
    encoding = view.config.position_encoding
    if encoding == "absolute":
        return None
    table = (
        view.truth.stages["table"]
        if encoding == "functional_relative"
        else view.of_layer(f"attention.relative_{side}.weight")
    )
    return table[_rows(view, sign).astype(int)]


def _scores(
    view: _View,
    positions: bool = True,
    sign: int = 1,
    power: float = 0.5,
    position_power: Optional[float] = None,
    by_width: bool = False,
    of_keys: bool = False,
    table: str = "key",
    heads_last: bool = False,
) -> np.ndarray:
    """power: scores are divided by D**power, the relative term by D**position_power. by_width: N for D."""
    query, key = (_split(view, view.at(part), heads_last) for part in ("query", "key"))
    size = view.config.hidden_size if by_width else view.config.head_size
    scores = np.einsum("bhfd,bhtd->bhft", query, key) / size**power
    relative = _positions(view, table, sign) if positions else None
    if relative is None:
        return scores
    term = np.einsum("bhfd,ftd->bhft", key if of_keys else query, relative)
    return scores + term / size ** (power if position_power is None else position_power)


def _probs(
    view: _View, masked: bool = True, additive: Optional[float] = None, axis: int = -1, **scores: Any
) -> np.ndarray:
    stage = f"layer.{view.layer}.scores"
    # The blocked form shows no scores; they are what the mistake gives them.
    logits = view.seen(stage) if stage in view.ours.stages and not scores else _scores(view, **scores)
    visible = view.seen("mask") > 0 if masked else np.ones((), bool)
    logits = np.where(visible, logits, -np.inf if additive is None else logits + additive)
    peak = logits.max(axis, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0.0))
    total = weights.sum(axis, keepdims=True)
    return weights / np.where(total > 0, total, 1.0)


def _context(
    view: _View,
    value_positions: bool = True,
    value_sign: int = 1,
    value_table: str = "value",
    unmerged: bool = False,
    **probs: Any,
) -> np.ndarray:
    stage = f"layer.{view.layer}.probs"
    weights = view.seen(stage) if stage in view.ours.stages and not probs else _probs(view, **probs)
    value = _split(view, view.at("value"), probs.get("heads_last", False))
    context = np.einsum("bhft,bhtd->bhfd", weights, value)
    relative = _positions(view, value_table, value_sign) if value_positions else None
    if relative is not None:
        context = context + np.einsum("bhft,ftd->bhfd", weights, relative)
    shape = view.at("value").shape
    return context.reshape(shape) if unmerged else context.transpose(0, 2, 1, 3).reshape(shape)


def _attention_output(
    view: _View,
    residual: bool = True,
    norm_first: bool = False,
    norm: str = "attention.layer_norm",
    dense: "Optional[dict[str, Any]]" = None,
    **normed: Any,
) -> Optional[np.ndarray]:
    name = f"encoder.layer.{view.layer}"
    projected = _linear(view.at("context"), *_weight_and_bias(view, f"{name}.attention.dense"), **(dense or {}))
    if projected is None:
        return None
    if norm_first:
        return view.states + _normed(view, projected, f"{name}.{norm}", **normed)
    return _normed(view, projected + (view.states if residual else 0.0), f"{name}.{norm}", **normed)


def _weight_and_bias(view: _View, module: str) -> "tuple[np.ndarray, np.ndarray]":
    return view.parameter(f"{module}.weight"), view.parameter(f"{module}.bias")


def _ffn(view: _View, activation: str = "", **linear: Any) -> Optional[np.ndarray]:
    module = f"encoder.layer.{view.layer}.ffn"
    return _activated(view, _linear(view.at("attention_output"), *_weight_and_bias(view, module), **linear), activation)


def _output(
    view: _View,
    residual: str = "attention_output",
    norm: str = "layer_norm",
    dense: "Optional[dict[str, Any]]" = None,
    **normed: Any,
) -> Optional[np.ndarray]:
    name = f"encoder.layer.{view.layer}"
    projected = _linear(view.at("ffn"), *_weight_and_bias(view, f"{name}.ffn_output"), **(dense or {}))
    if projected is None:
        return None
    added = {"attention_output": view.at("attention_output"), "input": view.states, "": 0.0}[residual]
    return _normed(view, projected + added, f"{name}.{norm}", **normed)


# ---- pooler, heads, loss


def _pooler(
    view: _View,
    token: "Callable[[np.ndarray], np.ndarray]" = lambda states: states[:, 0],
    tanh: bool = True,
    **linear: Any,
) -> Optional[np.ndarray]:
    projected = _linear(token(view.last), *_weight_and_bias(view, "pooler.dense"), **linear)
    return np.tanh(projected) if tanh and projected is not None else projected


def _transform(
    view: _View, activation: str = "", dense: "Optional[dict[str, Any]]" = None, **normed: Any
) -> Optional[np.ndarray]:
    x = _activated(
        view,
        _linear(view.last, *_weight_and_bias(view, "cls.predictions.dense"), **(dense or {})),
        activation,
    )
    return None if x is None else _normed(view, x, "cls.predictions.layer_norm", **normed)


def _word_logits(view: _View, with_bias: bool = True) -> np.ndarray:
    words, bias = (
        view.parameter("embeddings.word_embeddings.weight"),
        view.parameter("cls.predictions.decoder_bias"),
    )
    return view.seen("mlm.transform") @ words.T + (bias if with_bias else 0.0)


def _logits(view: _View, flipped: bool = False, choices_turned: bool = False, **linear: Any) -> Optional[np.ndarray]:
    module = "cls.seq_relationship" if view.stage == "nsp.logits" else "classifier"
    reads_tokens = view.sample.head in ("token_classification", "question_answering")
    logits = _linear(view.last if reads_tokens else view.seen("pooler"), *_weight_and_bias(view, module), **linear)
    if logits is not None and view.sample.head == "multiple_choice":
        batch, choices = view.seen("classifier.logits").shape
        logits = logits.reshape(choices, batch).T if choices_turned else logits.reshape(batch, choices)
    return logits[..., ::-1] if flipped and logits is not None else logits


def _loss(
    view: _View,
    over_all: bool = False,
    first_class: Optional[int] = None,
    floor: float = np.inf,
    smooth: float = 0.0,
    factor: float = 1.0,
) -> Optional[np.ndarray]:
    """first_class: the ignored label that counts as the first class. floor: the largest loss of a position."""
    if factor != 1.0:
        return view.truth.stages["loss"] * factor
    stage = {"masked_lm": "mlm.logits", "next_sentence": "nsp.logits"}.get(view.sample.head, "classifier.logits")
    logits, labels = view.ours.stages.get(stage), next(iter(view.sample.labels.values()))
    if logits is None or labels.shape != logits.shape[:-1] or labels.dtype.kind != "i":
        return None
    peak = logits.max(-1, keepdims=True)
    log_probs = logits - peak - np.log(np.exp(logits - peak).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, np.maximum(labels, 0)[..., None], -1)[..., 0]
    losses = np.minimum(-chosen, floor) * (1.0 - smooth) - smooth * log_probs.mean(-1)
    labelled = (labels >= 0) | (labels == first_class)
    return np.asarray((losses * labelled).sum() / (labels.size if over_all else max(1, labelled.sum())))


# ---- gradients


def _gradient(view: _View, change: "Callable[[np.ndarray], np.ndarray]" = lambda gradient: gradient) -> np.ndarray:
    return change(view.truth.named()[view.stage])


def _pad_row_zeroed(gradient: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(gradient[:1]), gradient[1:]])


def _multiple(view: _View) -> "Iterator[tuple[str, np.ndarray]]":
    """A gradient that is a constant multiple of the truth."""
    right, ours = view.truth.named()[view.stage], view.ours.named()[view.stage]
    square = float((right * right).sum())
    factor = float((right * ours).sum()) / square if square else 0.0
    if factor:
        yield f"the gradient is {factor:.6g} times the truth", factor * right


# ---- the table of mistakes

_TURNED: "dict[str, Any]" = {"turned": True}
_NO_BIAS: "dict[str, Any]" = {"with_bias": False}
_LINEAR: Hypotheses = (("the weight is not transposed", _TURNED), ("the bias is missing", _NO_BIAS))
_DENSE: Hypotheses = tuple((words, {"dense": change}) for words, change in _LINEAR)
_NORM: Hypotheses = (
    *((f"the LayerNorm adds {epsilon:g}", {"epsilon": epsilon}) for epsilon in (1e-5, 1e-12, 1e-6, 1e-3, 1e-8, 0.0)),
    ("the LayerNorm's weight and bias are swapped", {"swapped": True}),
    ("the LayerNorm is missing", {"absent": True}),
    ("the LayerNorm divides by N - 1", {"freedom": 1}),
)
_ACTIVATION: Hypotheses = (
    ("gelu is the tanh form in place of the erf form", {"activation": "gelu_tanh"}),
    ("gelu is the erf form in place of the tanh form", {"activation": "gelu"}),
    ("gelu is x sigmoid(1.702 x)", {"activation": "quick_gelu"}),
    ("the activation is relu", {"activation": "relu"}),
    ("the activation is missing", {"activation": "linear"}),
)
_SCORES: Hypotheses = (
    ("the sign of the distance is flipped on the keys", {"sign": -1}),
    ("the keys' relative term is missing", {"positions": False}),
    ("the relative term is not divided by sqrt(D)", {"position_power": 0.0}),
    ("the relative term is the key's in place of the query's", {"of_keys": True}),
    ("scores are divided by D in place of sqrt(D)", {"power": 1.0}),
    ("scores are not divided by sqrt(D)", {"power": 0.0}),
    ("scores are divided by sqrt(N) in place of sqrt(D)", {"by_width": True}),
    ("keys and values have each other's learned table", {"table": "value"}),
    ("heads are split in the wrong order", {"heads_last": True}),
)
_PROBS: Hypotheses = (
    ("the mask is ignored", {"masked": False}),
    ("the mask is added (-1e4) and hidden keys keep a probability", {"additive": -1e4}),
    ("the softmax runs over queries", {"axis": -2}),
)
_HYPOTHESES: "tuple[tuple[str, Callable[..., Optional[np.ndarray]], Hypotheses], ...]" = (
    (
        r"table",
        _table,
        (
            ("the table starts at row 1", {"first_row": 1}),
            ("sines and cosines are swapped", {"order": "cosines first"}),
            ("sines and cosines lie in halves", {"order": "halves"}),
            ("the base is 1000 in place of 10000", {"base": 1000.0}),
            ("the exponent is i/D in place of 2i/D", {"step": 1}),
            ("the table is computed in float32", {"dtype": "float32"}),
            ("the table was kept in float32", {"kept": "float32"}),
            ("the table reaches to m + 1", {"wider": 1}),
        ),
    ),
    (
        r"rows",
        _rows,
        (
            ("the sign of the distance is flipped", {"sign": -1}),
            ("distances count from 1", {"shift": 1}),
            ("distances are clipped at m - 1", {"narrower": 1}),
            ("distances are clipped at m + 1", {"narrower": -1}),
            ("distances are not clipped", {"wraps": True}),
            ("distances have no sign", {"absolute": True}),
        ),
    ),
    (
        r"mask",
        _mask,
        (
            ("the mask is ignored", {"change": np.ones_like}),
            ("the mask is inverted", {"change": lambda mask: 1.0 - mask}),
            ("the mask's queries and keys are swapped", {"change": lambda mask: mask.swapaxes(-1, -2)}),
            ("the mask of the first head serves all", {"change": _first_head}),
            ("the mask of another row is used", {"change": lambda mask: mask[::-1]}),
        ),
    ),
    (
        r"embeddings",
        _embeddings,
        (
            ("segment ids are ignored", {"segments": np.zeros_like}),
            ("segments are swapped", {"segments": lambda ids: 1 - ids}),
            ("no segment is added", {"segments": lambda ids: None}),
            ("word embeddings are multiplied by sqrt(N)", {"power": 0.5}),
            ("absolute positions count from 1", {"first": 1}),
            ("the word table is shifted by a row", {"words": _shifted}),
            ("the word table is transposed", {"words": _square_turned}),
            *_NORM,
        ),
    ),
    (
        r"layer\.\d+\.(query|key|value)",
        _projection,
        (
            *_LINEAR,
            *((f"the parameters are the {part}'s", {"of": part}) for part in ("query", "key", "value")),
        ),
    ),
    (r"layer\.\d+\.scores", _scores, _SCORES),
    (r"layer\.\d+\.probs", _probs, _PROBS),
    (
        r"layer\.\d+\.context",
        _context,
        (
            ("the values' relative term is missing", {"value_positions": False}),
            ("the sign of the distance is flipped on the values", {"value_sign": -1}),
            ("keys and values have each other's learned table", {"value_table": "key"}),
            ("heads are merged in the wrong order", {"unmerged": True}),
            # The blocked form shows no scores and probabilities: their mistakes are first seen here.
            *_SCORES,
            *_PROBS,
        ),
    ),
    (
        r"layer\.\d+\.attention_output",
        _attention_output,
        (
            *_DENSE,
            ("the residual is missing", {"residual": False}),
            ("the LayerNorm comes before the residual", {"norm_first": True}),
            ("the LayerNorms of the layer are swapped", {"norm": "layer_norm"}),
            *_NORM,
        ),
    ),
    (r"layer\.\d+\.ffn", _ffn, (*_LINEAR, *_ACTIVATION)),
    (
        r"layer\.\d+\.output",
        _output,
        (
            *_DENSE,
            ("the residual is missing", {"residual": ""}),
            ("the residual is the layer's input", {"residual": "input"}),
            ("the LayerNorms of the layer are swapped", {"norm": "attention.layer_norm"}),
            *_NORM,
        ),
    ),
    (
        r"pooler",
        _pooler,
        (
            *_LINEAR,
            ("the pooler reads the last token", {"token": lambda states: states[:, -1]}),
            ("the pooler reads the mean", {"token": lambda states: states.mean(1)}),
            ("tanh is missing", {"tanh": False}),
        ),
    ),
    (r"mlm\.transform", _transform, (*_DENSE, *_ACTIVATION, *_NORM)),
    (r"mlm\.logits", _word_logits, (("the bias is missing", _NO_BIAS),)),
    (
        r"(nsp|classifier)\.logits",
        _logits,
        (
            *_LINEAR,
            ("the classes are reversed", {"flipped": True}),
            ("choices are read as [C, B]", {"choices_turned": True}),
        ),
    ),
    (
        r"loss",
        _loss,
        (
            ("the loss is divided by all positions, ignored ones too", {"over_all": True}),
            ("the label -1 counts as the first class", {"first_class": -1}),
            ("the label -100 counts as the first class", {"first_class": -100}),
            ("no probability falls below exp(-64)", {"floor": 64.0}),
            ("labels are smoothed by 0.1", {"smooth": 0.1}),
            ("the loss is half the truth", {"factor": 0.5}),
            ("the loss is twice the truth", {"factor": 2.0}),
        ),
    ),
    (
        r"grad:.*",
        _gradient,
        (
            ("the gradient is zero", {"change": np.zeros_like}),
            ("the gradient is transposed", {"change": np.transpose}),
            ("the gradient of the first row (the pad) is zero", {"change": _pad_row_zeroed}),
        ),
    ),
)


def _predictions(view: _View) -> "Iterator[tuple[str, Optional[np.ndarray]]]":
    """Every known mistake, and what it would give."""
    for pattern, formula, hypotheses in _HYPOTHESES:
        if re.fullmatch(pattern, view.stage):
            for words, knobs in hypotheses:
                yield words, formula(view, **knobs)
            if formula is _projection:
                for layer in range(view.config.num_hidden_layers):
                    yield f"the parameters are layer {layer}'s", _projection(view, layer=layer)
            if formula is _gradient:
                yield from _multiple(view)
