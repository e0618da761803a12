"""Mistakes in the backward alone: every value of the forward is right, and a gradient is not.

A gradient is judged in the order the backward computes it, so a mistake shows first in the parameter right behind it.
"""

import math
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Callable, Optional
from unittest import mock

import paddle_nezha.heads
import paddle_nezha.native
from paddle_nezha._paddle import paddle
from paddle_nezha.layers import ACTIVATION_FUNCTIONS
from parity.faults.base import Fault
from parity.faults.plants import (
    Plant,
    Tensor,
    find,
    function,
    gradient_of,
    input_of,
    method,
    with_gradient_of,
)

F, native, heads = paddle.nn.functional, paddle_nezha.native, paddle_nezha.heads


def _fault(
    name: str,
    what: str,
    parameter: str,
    plant: Plant,
    case: str = "plain",
    head: str = "model",
    form: str = "dense",
) -> Fault:
    base = "" if head == "model" or parameter.startswith(("cls.", "classifier.")) else "nezha."
    return Fault(name, "backward", what, case, head, f"grad:{base}{parameter}", plant, form)


# ---- attention by autograd


def _scores(wrong: "Callable[[Any, Tensor, Tensor, Optional[Tensor]], Tensor]") -> Plant:
    """Scores with the gradient of `wrong(relative_scores, query, key, positions)`."""

    def make(original: Any) -> "Callable[[Tensor, Tensor, Optional[Tensor]], Tensor]":
        return lambda q, k, p: with_gradient_of(original(q, k, p), wrong(original, q, k, p))

    return function(native, "relative_scores", make)


def _context(wrong: "Callable[[Any, Tensor, Tensor, Optional[Tensor]], Tensor]") -> Plant:
    def make(original: Any) -> "Callable[[Tensor, Tensor, Optional[Tensor]], Tensor]":
        return lambda c, v, p: with_gradient_of(original(c, v, p), wrong(original, c, v, p))

    return function(native, "relative_context", make)


def _probs(wrong: "Callable[[Any, Tensor, Optional[Tensor]], Tensor]") -> Plant:
    def make(original: Any) -> "Callable[[Tensor, Optional[Tensor]], Tensor]":
        # The scores are added to in place, so each of the two forwards gets its own.
        return lambda s, visible: with_gradient_of(original(s + 0.0, visible), wrong(original, s + 0.0, visible))

    return function(native, "masked_softmax", make)


def _without_row_sum(original: Any, scores: Tensor, visible: Optional[Tensor]) -> Tensor:
    """The gradient p * dp of an exponential, with the sum it is divided by held fixed."""
    return original(scores + 0.0, visible).detach() * scores


_TABLES = "encoder.layer.1.attention.relative_"


def _constant_table(index: int) -> Plant:
    def make(original: Any, part: Any) -> "Callable[[Tensor], tuple[Tensor, ...]]":
        return lambda like: tuple(table.detach() if at == index else table for at, table in enumerate(original(like)))

    return method("layer.1.attention", "_tables", make)


_ATTENTION = (
    _fault(
        "value-positions-detached",
        "no gradient reaches the probabilities through the positions of values",
        "encoder.layer.1.attention.key.weight",
        _context(lambda right, c, v, p: right(c, v, None)),
    ),
    _fault(
        "probabilities-detached",
        "probabilities are taken for constants",
        "encoder.layer.1.attention.key.weight",
        _context(lambda right, c, v, p: right(c.detach(), v, p)),
    ),
    _fault(
        "values-detached",
        "values are taken for constants",
        "encoder.layer.1.attention.value.bias",
        _context(lambda right, c, v, p: right(c, v.detach(), p)),
    ),
    _fault(
        "key-detached",
        "keys are taken for constants",
        "encoder.layer.1.attention.key.weight",
        _scores(lambda right, q, k, p: right(q, k.detach(), p)),
    ),
    _fault(
        "query-positions-detached",
        "no gradient reaches the query through the positions of keys",
        "encoder.layer.1.attention.query.bias",
        _scores(lambda right, q, k, p: right(q, k, None)),
    ),
    _fault(
        "scores-gradient-unscaled",
        "the gradient of the scores is not divided by sqrt(D)",
        "encoder.layer.1.attention.key.weight",
        _scores(lambda right, q, k, p: right(q, k, p) * math.sqrt(q.shape[-1])),
    ),
    _fault(
        "softmax-row-sum",
        "the softmax's gradient lacks the sum over its row",
        "encoder.layer.1.attention.key.bias",
        _probs(_without_row_sum),
    ),
    _fault(
        "softmax-gradient-unmasked",
        "the softmax's gradient sees hidden keys",
        "encoder.layer.1.attention.key.weight",
        _probs(lambda right, scores, visible: right(scores, None)),
        "pad-ragged",
    ),
    _fault(
        "value-table-constant",
        "the values' learned table has no gradient",
        _TABLES + "value.weight",
        _constant_table(1),
        "parametric",
    ),
    _fault(
        "key-table-constant",
        "the keys' learned table has no gradient",
        _TABLES + "key.weight",
        _constant_table(0),
        "parametric",
    ),
)


# ---- attention in blocks, whose backward is written by hand


def _in_backward(*plants: "Callable[[], AbstractContextManager[Any]]") -> Plant:
    """What stands in for a function while a blocked backward runs."""
    original = native._BlockedAttention.backward

    def backward(ctx: Any, grad: Tensor) -> Any:
        with ExitStack() as stack:
            for plant in plants:
                stack.enter_context(plant())
            return original(ctx, grad)

    return lambda model: mock.patch.object(native._BlockedAttention, "backward", staticmethod(backward))


def _replaced(name: str, make: "Callable[[Any], Any]") -> "Callable[[], AbstractContextManager[Any]]":
    return lambda: mock.patch.object(native, name, make(getattr(native, name)))


def _no_row_sums() -> "AbstractContextManager[Any]":
    return mock.patch.object(paddle, "ones", paddle.zeros)


def _gradients(change: "Callable[..., tuple[Tensor, ...]]") -> Plant:
    """Other gradients of a blocked attention: `change(of query, of key, of value, sqrt(D))`."""
    original = native._BlockedAttention.backward

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return paddle.stack(change(*original(ctx, grad).unbind(0), math.sqrt(grad.shape[-1])))

    return lambda model: mock.patch.object(native._BlockedAttention, "backward", staticmethod(backward))


def _first_block_remembered(model: Any) -> "AbstractContextManager[Any]":
    original = native._BlockedAttention.backward

    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.kept = ctx.kept[:1] * len(ctx.kept)
        return original(ctx, grad)

    return mock.patch.object(native._BlockedAttention, "backward", staticmethod(backward))


def _block(name: str, what: str, part: str, plant: Plant, case: str = "plain") -> Fault:
    return _fault(name, what, f"encoder.layer.1.attention.{part}", plant, case, form="blocked")


_BLOCKED = (
    _block(
        "block-row-sum",
        "the softmax's gradient lacks the sum over its row",
        "key.bias",
        _in_backward(_no_row_sums),
    ),
    _block(
        "block-query-positions",
        "the query's gradient lacks the positions of keys",
        "query.bias",
        _in_backward(_replaced("relative_context", lambda right: lambda c, v, p: right(c, v, None))),
    ),
    _block(
        "block-query-unscaled",
        "the query's gradient is not divided by sqrt(D)",
        "query.bias",
        _gradients(lambda q, k, v, d: (q * d, k, v)),
    ),
    _block(
        "block-key-unscaled",
        "the key's gradient is not divided by sqrt(D)",
        "key.weight",
        _gradients(lambda q, k, v, d: (q, k * d, v)),
    ),
    _block(
        "block-key-scaled-twice",
        "the key's gradient is divided by D",
        "key.weight",
        _gradients(lambda q, k, v, d: (q, k / d, v)),
    ),
    _block(
        "block-key-lost",
        "keys have no gradient",
        "key.weight",
        _gradients(lambda q, k, v, d: (q, paddle.zeros_like(k), v)),
    ),
    _block(
        "block-key-value-swapped",
        "keys and values have each other's gradient",
        "value.bias",
        _gradients(lambda q, k, v, d: (q, v, k)),
    ),
    _block(
        "block-last-only",
        "the gradients of keys and values are the last block's, not the sum over blocks",
        "value.bias",
        _in_backward(_replaced("_accumulate", lambda right: lambda total, term: term)),
    ),
    _block(
        "block-order",
        "the blocks of the query's gradient are joined last first",
        "query.weight",
        _in_backward(_replaced("_join", lambda right: lambda blocks: right(blocks[::-1]))),
    ),
    _block(
        "block-kept-first",
        "every block remembers the first block's probabilities",
        "value.weight",
        _first_block_remembered,
        "m5-length12",
    ),
    _block(
        "block-mask-lost",
        "the probabilities are made again without the mask",
        "value.weight",
        _in_backward(_replaced("masked_softmax", lambda right: lambda scores, visible: right(scores, None))),
        "pad-ragged",
    ),
    _block(
        "block-start-forgotten",
        "the probabilities are made again with distances from the start of the text",
        "value.weight",
        _in_backward(
            _replaced(
                "by_distance",
                lambda right: lambda table, first, queries, keys: right(table, 0, queries, keys),
            )
        ),
    ),
)


# ---- everything else


def _norm(wrong: "Callable[[Any, Tensor, Tensor, Tensor], Tensor]", path: str) -> Plant:
    """A LayerNorm with the gradient of `wrong(norm, input, mean, variance)`."""

    def make(original: Any, norm: Any) -> "Callable[[Tensor], Tensor]":
        def forward(x: Tensor) -> Tensor:
            mean = x.mean(-1, keepdim=True)
            variance = ((x - mean) ** 2).mean(-1, keepdim=True)
            return with_gradient_of(original(x), wrong(norm, x, mean, variance))

        return forward

    return method(path, "forward", make)


def _normalised(norm: Any, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return (x - mean) / paddle.sqrt(variance + norm._epsilon) * norm.weight + norm.bias


def _activation(path: str, name: str) -> Plant:
    wrong = ACTIVATION_FUNCTIONS[name]
    return method(path, "activation", lambda original, part: lambda x: with_gradient_of(original(x), wrong(x)))


def _residual_detached(original: Any, layer: Any) -> "Callable[..., tuple[Tensor, Optional[Tensor]]]":
    def forward(
        hidden: Tensor, visible: Optional[Tensor], want_probs: bool, *_: Any
    ) -> "tuple[Tensor, Optional[Tensor]]":
        attended, probs = layer.attention(hidden, visible, want_probs)
        return layer.layer_norm(attended.detach() + layer.ffn_output(layer.activation(layer.ffn(attended)))), probs

    return forward


def _tanh_gradient(right: Any, pooler: Any) -> "Callable[[Tensor], Tensor]":
    def forward(x: Tensor) -> Tensor:
        y, projected = right(x), pooler.dense(x[:, 0])
        return with_gradient_of(y, projected * (1.0 - y.detach()))

    return forward


def _untied(model: Any) -> "AbstractContextManager[Any]":
    predictions = find(model, "cls.predictions")
    copy = predictions.create_parameter(predictions.decoder_weight.shape, dtype="float64")
    copy.set_value(predictions.decoder_weight)
    return mock.patch.object(predictions, "decoder_weight", copy)


def _pad_row_zeroed(gradient: Tensor) -> Tensor:
    return paddle.concat([paddle.zeros_like(gradient[:1]), gradient[1:]])


def _all_clipped(model: Any) -> "AbstractContextManager[Any]":
    stack = ExitStack()
    for name, _ in model.named_parameters():
        stack.enter_context(gradient_of(name, lambda gradient: paddle.clip(gradient, -0.01, 0.01))(model))
    return stack


def _ignored_have_gradients(original: Any) -> "Callable[[Tensor, Tensor], Tensor]":
    def cross_entropy(logits: Tensor, labels: Tensor, labelled: Optional[Tensor] = None) -> Tensor:
        return with_gradient_of(original(logits, labels, labelled), original(logits, paddle.clip(labels, min=0)))

    return cross_entropy


def _loss_gradient_times(factor: float) -> Plant:
    return function(
        heads,
        "cross_entropy",
        lambda original: lambda *given: with_gradient_of(original(*given), original(*given) * factor),
    )


_WORDS, _SEGMENTS = "embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight"

_REST = (
    _fault(
        "norm-mean-constant",
        "a LayerNorm's mean is taken for a constant",
        "encoder.layer.1.ffn_output.bias",
        _norm(
            lambda norm, x, mean, variance: _normalised(norm, x, mean.detach(), variance),
            "layer.1.layer_norm",
        ),
    ),
    _fault(
        "norm-variance-constant",
        "a LayerNorm's variance is taken for a constant",
        "encoder.layer.0.attention.dense.bias",
        _norm(
            lambda norm, x, mean, variance: _normalised(norm, x, mean, variance.detach()),
            "layer.0.attention.layer_norm",
        ),
    ),
    _fault(
        "gelu-gradient",
        "the gradient is the tanh form's",
        "encoder.layer.0.ffn.bias",
        _activation("layer.0", "gelu_new"),
    ),
    _fault(
        "relu-gradient",
        "the gradient is relu's",
        "cls.predictions.dense.bias",
        _activation("cls.predictions", "relu"),
        head="masked_lm",
    ),
    _fault(
        "residual-detached",
        "no gradient passes the sum beside the feed-forward",
        "encoder.layer.1.attention.layer_norm.bias",
        method("layer.1", "forward", _residual_detached),
    ),
    _fault(
        "tanh-gradient",
        "tanh's gradient is 1 - y",
        "pooler.dense.bias",
        method("pooler", "forward", _tanh_gradient),
    ),
    _fault(
        "pooler-detached",
        "no gradient leaves the pooler",
        "encoder.layer.1.layer_norm.bias",
        input_of("pooler", lambda x: x.detach()),
    ),
    _fault("decoder-untied", "the word table has no gradient from the decoder", _WORDS, _untied, head="masked_lm"),
    _fault(
        "pad-row-zeroed",
        "the pad's row of the word table has no gradient",
        _WORDS,
        gradient_of(_WORDS, _pad_row_zeroed),
        head="masked_lm",
    ),
    _fault(
        "words-doubled",
        "the word table's gradient counts twice",
        _WORDS,
        gradient_of(_WORDS, lambda g: g * 2.0),
        head="pretraining",
    ),
    _fault(
        "segments-constant",
        "the segment table has no gradient",
        _SEGMENTS,
        gradient_of(_SEGMENTS, paddle.zeros_like),
        "segments",
    ),
    _fault(
        "bias-constant",
        "a bias has no gradient",
        "encoder.layer.0.ffn.bias",
        gradient_of("layer.0.ffn.bias", paddle.zeros_like),
    ),
    _fault(
        "bias-averaged",
        "a bias's gradient is the mean over the texts, not the sum",
        "encoder.layer.1.attention.layer_norm.bias",
        gradient_of("layer.1.attention.layer_norm.bias", lambda gradient: gradient / 2.0),
    ),
    _fault(
        "weight-gradient-turned",
        "the gradient of a square matrix is transposed",
        "encoder.layer.0.attention.dense.weight",
        gradient_of("layer.0.attention.dense.weight", lambda gradient: gradient.t()),
    ),
    _fault("gradients-clipped", "every gradient is clipped to 0.01", "pooler.dense.bias", _all_clipped),
    _fault(
        "ignored-labels-gradient",
        "positions without a label have gradients",
        "classifier.bias",
        function(heads, "cross_entropy", _ignored_have_gradients),
        head="token_classification",
    ),
    _fault(
        "loss-scale-left",
        "the scale of the loss stays in the gradients",
        "classifier.bias",
        _loss_gradient_times(1024.0),
        head="sequence_classification",
    ),
)

BACKWARD_FAULTS = (*_ATTENTION, *_BLOCKED, *_REST)
