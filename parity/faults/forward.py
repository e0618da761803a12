"""Mistakes in the forward: each in one place of the model, and first seen at that place's stage."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Callable, Optional
from unittest import mock

import numpy as np

import paddle_nezha.heads
import paddle_nezha.model
import paddle_nezha.native
from paddle_nezha._paddle import paddle
from paddle_nezha.layers import ACTIVATION_FUNCTIONS
from paddle_nezha.relative import relative_table
from parity.cases import TINY
from parity.causes import sinusoids
from parity.faults.base import Fault
from parity.faults.plants import (
    Plant,
    Tensor,
    find,
    function,
    input_of,
    method,
    output_of,
    positions_by,
    swapped,
    table,
    value,
    values,
)

F, native, heads = paddle.nn.functional, paddle_nezha.native, paddle_nezha.heads
_HEAD_COUNT = int(TINY["num_attention_heads"])


def _fault(
    name: str,
    what: str,
    stage: str,
    plant: Plant,
    case: str = "plain",
    head: str = "model",
    form: str = "dense",
) -> Fault:
    return Fault(name, "forward", what, case, head, stage, plant, form)


# ---- what attention looks up


def _sinusoids(**changes: Any) -> Plant:
    return table(lambda m, size: sinusoids(m, size, **changes))


def _single(m: int, size: int) -> np.ndarray:
    return relative_table(m, size).astype(np.float32).astype(np.float64)


def _visible(change: "Callable[[Tensor], Tensor]") -> Plant:
    return function(
        paddle_nezha.model, "visible_keys", lambda original: lambda *arguments: change(original(*arguments))
    )


def _mask_turned(visible: Tensor) -> Tensor:
    return visible.transpose([0, 1, 3, 2])


_LOOKED_UP = (
    _fault("table-off-by-one", "the table starts at row 1", "table", _sinusoids(first_row=1)),
    _fault("table-cosine-first", "sines and cosines change places", "table", _sinusoids(order="cosines first")),
    _fault("table-halves", "all sines, then all cosines", "table", _sinusoids(order="halves")),
    _fault("table-base", "wave lengths grow up to 1000, not 10000", "table", _sinusoids(base=1000.0)),
    _fault("table-exponent", "the exponent is i/D, not 2i/D", "table", _sinusoids(step=1)),
    _fault("table-float32-angles", "the table is computed in float32", "table", _sinusoids(dtype="float32")),
    _fault("table-float32-buffer", "the table was kept in float32", "table", table(_single)),
    _fault(
        "table-wide",
        "the table reaches to m + 1",
        "table",
        table(lambda m, size: relative_table(m + 1, size)),
    ),
    _fault(
        "distance-sign",
        "query minus key, not key minus query",
        "rows",
        positions_by(lambda d, m: paddle.clip(m - d, 0, 2 * m)),
    ),
    _fault(
        "distance-shifted",
        "distances count from 1",
        "rows",
        positions_by(lambda d, m: paddle.clip(d + 1 + m, 0, 2 * m)),
    ),
    _fault(
        "clip-early",
        "distances end at m - 1",
        "rows",
        positions_by(lambda d, m: paddle.clip(d, 1 - m, m - 1) + m),
        "m5-length6",
    ),
    _fault(
        "clip-late",
        "distances end at m + 1, and row -1 is the last",
        "rows",
        positions_by(lambda d, m: (paddle.clip(d, -m - 1, m + 1) + m) % (2 * m + 1)),
        "m5-length10",
    ),
    _fault(
        "clip-none",
        "far distances wrap around",
        "rows",
        positions_by(lambda d, m: (d + m) % (2 * m + 1)),
        "m5-length12",
    ),
    _fault(
        "distance-absolute",
        "left and right are one",
        "rows",
        positions_by(lambda d, m: paddle.clip(d.abs() + m, 0, 2 * m)),
    ),
    _fault(
        "mask-ignored",
        "every key is visible",
        "mask",
        _visible(lambda visible: visible | ~visible),
        "pad-right",
    ),
    _fault("mask-inverted", "1 hides and 0 shows", "mask", _visible(lambda visible: ~visible), "pad-right"),
    _fault("mask-on-queries", "the mask hides queries, not keys", "mask", _visible(_mask_turned), "pad-left"),
    _fault(
        "mask-turned",
        "a 3-D mask is read as [B, key, query]",
        "mask",
        _visible(_mask_turned),
        "mask-3d-causal",
    ),
    _fault(
        "mask-first-head",
        "all heads see what the first sees",
        "mask",
        _visible(lambda visible: visible[:, :1]),
        "mask-4d-heads",
    ),
    _fault(
        "mask-of-another-row",
        "texts have each other's mask",
        "mask",
        _visible(lambda visible: visible.flip(0)),
        "pad-ragged",
    ),
)


# ---- embeddings


def _sample_variance(norm: Any, total: Tensor) -> Tensor:
    centred = total - total.mean(-1, keepdim=True)
    variance = (centred * centred).sum(-1, keepdim=True) / (total.shape[-1] - 1)
    return centred / paddle.sqrt(variance + norm._epsilon) * norm.weight + norm.bias


def _epsilon(path: str) -> Plant:
    return method(path, "_epsilon", lambda original, norm: 1e-5)


def _no_norm(path: str) -> Plant:
    return method(path, "forward", lambda original, norm: lambda total: total)


_FIRST_SEGMENT = "embeddings.token_type_embeddings"

_EMBEDDINGS = (
    _fault(
        "segments-ignored",
        "every token is of segment 0",
        "embeddings",
        input_of(_FIRST_SEGMENT, paddle.zeros_like),
        "segments",
    ),
    _fault(
        "segments-inverted",
        "segments 0 and 1 change places",
        "embeddings",
        input_of(_FIRST_SEGMENT, lambda ids: 1 - ids),
        "segments",
    ),
    _fault(
        "segment-missing",
        "without segment ids no segment is added",
        "embeddings",
        lambda model: input_of("embeddings", lambda words: words - find(model, _FIRST_SEGMENT).weight[0])(model),
    ),
    _fault(
        "positions-shifted",
        "absolute positions count from 1",
        "embeddings",
        input_of("embeddings.position_embeddings", lambda at: at + 1),
        "absolute",
    ),
    _fault(
        "words-scaled",
        "word embeddings are multiplied by sqrt(N)",
        "embeddings",
        input_of("embeddings", lambda words: words * words.shape[-1] ** 0.5),
    ),
    _fault(
        "embeddings-norm-missing",
        "no LayerNorm over the embeddings",
        "embeddings",
        _no_norm("embeddings.layer_norm"),
    ),
    _fault(
        "epsilon",
        "the LayerNorm of the embeddings adds 1e-5",
        "embeddings",
        _epsilon("embeddings.layer_norm"),
    ),
)


# ---- attention


def _turned(path: str) -> Plant:
    return value(path, lambda weight: weight.T.copy())


def _zeroed(path: str) -> Plant:
    return value(path, np.zeros_like)


def _elementwise(weight: np.ndarray) -> np.ndarray:
    weight[3, 5] += 0.05
    return weight


def _layer_from(source: int, target: int) -> Plant:
    def changes(model: Any) -> "dict[str, np.ndarray]":
        return {
            f"layer.{target}.{name}": item.numpy() for name, item in find(model, f"layer.{source}").named_parameters()
        }

    return values(changes)


def _layers_swapped(model: Any) -> "AbstractContextManager[Any]":
    names = [name for name, _ in find(model, "layer.0").named_parameters()]
    return swapped(*((f"layer.0.{name}", f"layer.1.{name}") for name in names))(model)


def _scores(change: "Callable[[Any, Tensor, Tensor, Optional[Tensor]], Tensor]") -> Plant:
    return function(
        native,
        "relative_scores",
        lambda original: lambda query, key, positions: change(original, query, key, positions),
    )


def _position_scores(query: Tensor, positions: Tensor) -> Tensor:
    return native.skew(paddle.matmul(query, positions, transpose_y=True), query.shape[2])


def _softmax(change: "Callable[[Any, Tensor, Optional[Tensor]], Tensor]") -> Plant:
    return function(
        native,
        "masked_softmax",
        lambda original: lambda scores, visible: change(original, scores, visible),
    )


def _context(change: "Callable[[Any, Tensor, Tensor, Tensor], Tensor]") -> Plant:
    return function(
        native,
        "relative_context",
        lambda original: lambda probs, value, positions: change(original, probs, value, positions),
    )


def _mirrored(positions: Tensor, queries: int) -> Tensor:
    """Row by row the positions of the opposite distance."""
    opposite = 2 * queries - paddle.arange(positions.shape[0], dtype="int64")
    return paddle.gather(positions, paddle.clip(opposite, 0, positions.shape[0] - 1))


def _heads_last(x: Tensor) -> Tensor:
    return x.reshape([0, 0, -1, _HEAD_COUNT]).transpose([0, 3, 1, 2])


def _merged_by_head(context: Tensor) -> Tensor:
    batch, length, width = context.shape
    return context.reshape([batch, length, _HEAD_COUNT, -1]).transpose([0, 2, 1, 3]).reshape([batch, length, width])


def _additive(original: Any, scores: Tensor, visible: Any) -> Tensor:
    return F.softmax(scores + (visible.astype(scores.dtype) - 1.0) * 1e4)


def _in_float32(original: Any, scores: Tensor, visible: Optional[Tensor]) -> Tensor:
    return original(scores.astype("float32"), visible).astype(scores.dtype)


_ATTENTION = (
    _fault(
        "query-turned",
        "a square matrix is not transposed",
        "layer.0.query",
        _turned("layer.0.attention.query.weight"),
    ),
    _fault(
        "value-turned",
        "a square matrix is not transposed",
        "layer.1.value",
        _turned("layer.1.attention.value.weight"),
    ),
    _fault("key-bias-dropped", "the key has no bias", "layer.0.key", _zeroed("layer.0.attention.key.bias")),
    _fault(
        "value-bias-dropped",
        "the value has no bias",
        "layer.1.value",
        _zeroed("layer.1.attention.value.bias"),
    ),
    _fault(
        "one-element",
        "one weight of thousands is 0.05 too large",
        "layer.1.key",
        value("layer.1.attention.key.weight", _elementwise),
    ),
    _fault(
        "query-key-swapped",
        "query and key have each other's weights",
        "layer.0.query",
        swapped(*((f"layer.0.attention.query.{kind}", f"layer.0.attention.key.{kind}") for kind in ("weight", "bias"))),
    ),
    _fault("layers-swapped", "layers 0 and 1 change places", "layer.0.query", _layers_swapped),
    _fault("layer-shared", "layer 1 has the weights of layer 0", "layer.1.query", _layer_from(0, 1)),
    _fault(
        "heads-last",
        "N is split into [D, H], not [H, D]",
        "layer.0.scores",
        method("layer.0.attention", "_heads", lambda original, part: _heads_last),
    ),
    _fault(
        "key-positions-missing",
        "keys have no positions",
        "layer.0.scores",
        _scores(lambda right, q, k, p: right(q, k, None)),
    ),
    _fault(
        "positions-unscaled",
        "the relative term is not divided by sqrt(D)",
        "layer.0.scores",
        _scores(lambda right, q, k, p: right(q, k, None) + _position_scores(q, p)),
    ),
    _fault(
        "positions-of-keys",
        "the relative term is the key's, not the query's",
        "layer.0.scores",
        _scores(lambda right, q, k, p: right(q, k, None) + _position_scores(k, p) / q.shape[-1] ** 0.5),
    ),
    _fault(
        "scores-by-D",
        "scores are divided by D",
        "layer.0.scores",
        _scores(lambda right, q, k, p: right(q / q.shape[-1] ** 0.5, k, p)),
    ),
    _fault(
        "scores-unscaled",
        "scores are not divided",
        "layer.0.scores",
        _scores(lambda right, q, k, p: right(q * q.shape[-1] ** 0.5, k, p)),
    ),
    _fault(
        "scores-by-N",
        "scores are divided by sqrt(N)",
        "layer.0.scores",
        _scores(lambda right, q, k, p: right(q / _HEAD_COUNT**0.5, k, p)),
    ),
    _fault(
        "positions-once",
        "only the first layer has a relative term",
        "layer.1.scores",
        method("layer.1.attention", "_tables", lambda original, part: lambda like: (None, None)),
    ),
    _fault(
        "tables-swapped",
        "keys and values have each other's learned table",
        "layer.0.scores",
        method("layer.0.attention", "_tables", lambda original, part: lambda like: original(like)[::-1]),
        "parametric",
    ),
    _fault(
        "mask-additive",
        "hidden keys get -1e4, so a query without visible keys sees them all",
        "layer.0.probs",
        _softmax(_additive),
        "mask-3d-random",
    ),
    _fault(
        "mask-unused",
        "the softmax is given no mask",
        "layer.0.probs",
        _softmax(lambda right, scores, visible: right(scores, None)),
        "pad-right",
    ),
    _fault(
        "softmax-over-queries",
        "probabilities sum to 1 over the queries",
        "layer.0.probs",
        _softmax(lambda right, scores, visible: F.softmax(scores, axis=-2)),
    ),
    _fault("softmax-float32", "the softmax is taken in float32", "layer.0.probs", _softmax(_in_float32)),
    _fault(
        "value-positions-missing",
        "values have no positions",
        "layer.0.context",
        _context(lambda right, c, v, p: right(c, v, None)),
    ),
    _fault(
        "value-positions-sign",
        "values have the positions of the opposite distance",
        "layer.0.context",
        _context(lambda right, c, v, p: right(c, v, _mirrored(p, c.shape[2]))),
    ),
    _fault(
        "heads-unmerged",
        "heads are joined before their axis is moved",
        "layer.0.context",
        input_of("layer.0.attention.dense", _merged_by_head),
    ),
    _fault(
        "block-start-lost",
        "every block of queries counts its distances from the start of the text",
        "layer.0.context",
        function(
            native,
            "by_distance",
            lambda right: lambda table, first, queries, keys: right(table, 0, queries, keys),
        ),
        form="blocked",
    ),
)


# ---- the rest of a layer


def _sum_and_norm(change: "Callable[[Any, Tensor, Tensor], Tensor]") -> Plant:
    """Another end of layer 0's attention: `change(norm, hidden, projected)` for norm(hidden + projected)."""

    @contextmanager
    def plant(model: Any) -> Iterator[None]:
        part, hidden = find(model, "layer.0.attention"), []
        norm = part.layer_norm.forward
        handle = part.register_forward_pre_hook(lambda _layer, inputs: hidden.append(inputs[0]))
        try:
            with mock.patch.object(
                part.layer_norm, "forward", lambda total: change(norm, hidden[-1], total - hidden[-1])
            ):
                yield
        finally:
            handle.remove()

    return plant


def _residual_of_input(original: Any, layer: Any) -> "Callable[..., tuple[Tensor, Optional[Tensor]]]":
    def forward(
        hidden: Tensor, visible: Optional[Tensor], want_probs: bool, *_: Any
    ) -> "tuple[Tensor, Optional[Tensor]]":
        attended, probs = layer.attention(hidden, visible, want_probs)
        return layer.layer_norm(hidden + layer.ffn_output(layer.activation(layer.ffn(attended)))), probs

    return forward


def _activation(path: str, name: str) -> Plant:
    return method(path, "activation", lambda original, part: ACTIVATION_FUNCTIONS[name])


_NORMS = tuple((f"layer.0.attention.layer_norm.{kind}", f"layer.0.layer_norm.{kind}") for kind in ("weight", "bias"))

_LAYER = (
    _fault(
        "residual-missing",
        "attention does not add its input",
        "layer.0.attention_output",
        _sum_and_norm(lambda norm, x, y: norm(y)),
    ),
    _fault(
        "norm-before-sum",
        "LayerNorm comes before the sum",
        "layer.0.attention_output",
        _sum_and_norm(lambda norm, x, y: x + norm(y)),
    ),
    _fault(
        "dense-turned",
        "a square matrix is not transposed",
        "layer.0.attention_output",
        _turned("layer.0.attention.dense.weight"),
    ),
    _fault(
        "dense-bias-dropped",
        "attention's output has no bias",
        "layer.1.attention_output",
        _zeroed("layer.1.attention.dense.bias"),
    ),
    _fault(
        "norms-swapped",
        "the LayerNorms of a layer change places",
        "layer.0.attention_output",
        swapped(*_NORMS),
    ),
    _fault(
        "norm-sample-variance",
        "a LayerNorm divides by N - 1",
        "layer.0.attention_output",
        method(
            "layer.0.attention.layer_norm",
            "forward",
            lambda original, norm: lambda total: _sample_variance(norm, total),
        ),
    ),
    _fault("gelu-tanh", "the tanh form for the exact gelu", "layer.0.ffn", _activation("layer.0", "gelu_new")),
    _fault(
        "gelu-erf",
        "the exact gelu for the tanh form",
        "layer.0.ffn",
        _activation("layer.0", "gelu"),
        "gelu-tanh",
    ),
    _fault("gelu-quick", "x sigmoid(1.702 x) for gelu", "layer.1.ffn", _activation("layer.1", "quick_gelu")),
    _fault("ffn-bias-dropped", "the feed-forward has no bias", "layer.0.ffn", _zeroed("layer.0.ffn.bias")),
    _fault(
        "residual-of-input",
        "the feed-forward adds the layer's input, not attention's output",
        "layer.0.output",
        method("layer.0", "forward", _residual_of_input),
    ),
    _fault(
        "ffn-output-bias-dropped",
        "a layer's output has no bias",
        "layer.1.output",
        _zeroed("layer.1.ffn_output.bias"),
    ),
    _fault(
        "epsilon-of-one-layer",
        "the last LayerNorm adds 1e-5",
        "layer.1.output",
        _epsilon("layer.1.layer_norm"),
    ),
    _fault(
        "gamma-beta",
        "a LayerNorm's weight and bias change places",
        "layer.0.output",
        swapped(("layer.0.layer_norm.weight", "layer.0.layer_norm.bias")),
    ),
)


# ---- pooler and heads


def _tied_to_another(model: Any) -> "AbstractContextManager[Any]":
    predictions = find(model, "cls.predictions")
    other = predictions.create_parameter(predictions.decoder_weight.shape, dtype="float64")
    other.set_value(predictions.decoder_weight.flip([0]))
    return mock.patch.object(predictions, "decoder_weight", other)


_POOLER = (
    _fault(
        "pooler-last",
        "the pooler reads the last token",
        "pooler",
        method("pooler", "forward", lambda right, pooler: lambda x: right(x[:, -1:])),
    ),
    _fault(
        "pooler-mean",
        "the pooler reads the mean",
        "pooler",
        method("pooler", "forward", lambda right, pooler: lambda x: right(x.mean(1, True))),
    ),
    _fault(
        "pooler-linear",
        "the pooler has no tanh",
        "pooler",
        method("pooler", "forward", lambda right, pooler: lambda x: pooler.dense(x[:, 0])),
    ),
    _fault("pooler-turned", "a square matrix is not transposed", "pooler", _turned("pooler.dense.weight")),
    _fault("pooler-bias-dropped", "the pooler has no bias", "pooler", _zeroed("pooler.dense.bias")),
)

_HEADS = (
    _fault(
        "mlm-turned",
        "a square matrix is not transposed",
        "mlm.transform",
        _turned("cls.predictions.dense.weight"),
        head="masked_lm",
    ),
    _fault(
        "mlm-linear",
        "the masked-LM head has no activation",
        "mlm.transform",
        _activation("cls.predictions", "linear"),
        head="masked_lm",
    ),
    _fault(
        "mlm-gelu",
        "the tanh form in the masked-LM head",
        "mlm.transform",
        _activation("cls.predictions", "gelu_new"),
        head="pretraining",
    ),
    _fault(
        "mlm-norm-missing",
        "no LayerNorm in the masked-LM head",
        "mlm.transform",
        _no_norm("cls.predictions.layer_norm"),
        head="masked_lm",
    ),
    _fault("mlm-untied", "the decoder is not the word table", "mlm.logits", _tied_to_another, head="masked_lm"),
    _fault(
        "mlm-bias-dropped",
        "the decoder has no bias",
        "mlm.logits",
        _zeroed("cls.predictions.decoder_bias"),
        head="masked_lm",
    ),
    _fault(
        "nsp-swapped",
        "class 0 is the random sentence",
        "nsp.logits",
        output_of("cls.seq_relationship", lambda logits: logits.flip([-1])),
        head="next_sentence",
    ),
    _fault(
        "nsp-bias-dropped",
        "next sentence has no bias",
        "nsp.logits",
        _zeroed("cls.seq_relationship.bias"),
        head="pretraining",
    ),
    _fault(
        "classifier-bias-dropped",
        "the classifier has no bias",
        "classifier.logits",
        _zeroed("classifier.bias"),
        head="token_classification",
    ),
    _fault(
        "span-columns",
        "the first column is the end",
        "classifier.logits",
        output_of("classifier", lambda logits: logits.flip([-1])),
        head="question_answering",
    ),
    _fault(
        "choices-turned",
        "the texts are read as [C, B]",
        "classifier.logits",
        output_of("classifier", lambda scores: scores.reshape([3, -1]).t().reshape([-1, 1])),
        head="multiple_choice",
    ),
)


# ---- losses


def _loss(change: "Callable[[Tensor, Tensor, Tensor], Tensor]") -> Plant:
    """Another cross-entropy: `change(log-probabilities [..., K], labels [...], labelled [...])`."""

    def cross_entropy(logits: Tensor, labels: Tensor, labelled: Optional[Tensor] = None) -> Tensor:
        if labelled is None:
            labelled = (labels != -100) & (labels != -1)
        return change(logits - paddle.logsumexp(logits, -1, True), labels, labelled.astype(logits.dtype))

    return function(heads, "cross_entropy", lambda original: cross_entropy)


def _of_label(log_probs: Tensor, labels: Tensor) -> Tensor:
    return -paddle.take_along_axis(log_probs, paddle.clip(labels, min=0).unsqueeze(-1), -1).squeeze(-1)


def _mean(losses: Tensor, labelled: Tensor) -> Tensor:
    return (losses * labelled).sum() / labelled.sum()


def _smoothed(log_probs: Tensor, labels: Tensor, labelled: Tensor) -> Tensor:
    return _mean(0.9 * _of_label(log_probs, labels) - 0.1 * log_probs.mean(-1), labelled)


def _wrapped_forward(change: "Callable[..., Any]") -> Plant:
    return lambda model: mock.patch.object(model, "forward", change(model.forward))


def _answer(change: "Callable[[Any], None]") -> Plant:
    """The right forward, and an answer that `change(output)` has mixed up."""

    def make(forward: "Callable[..., Any]") -> "Callable[..., Any]":
        def mixed(*arguments: Any, **keywords: Any) -> Any:
            output = forward(*arguments, **keywords)
            change(output)
            return output

        return mixed

    return _wrapped_forward(make)


def _ends_first(forward: "Callable[..., Any]") -> "Callable[..., Any]":
    def swapped_labels(start_positions: Tensor, end_positions: Tensor, **others: Any) -> Any:
        return forward(start_positions=end_positions, end_positions=start_positions, **others)

    return swapped_labels


_LOSSES = (
    _fault(
        "loss-over-all",
        "the loss is divided by all positions, ignored ones too",
        "loss",
        _loss(lambda log_probs, labels, labelled: (_of_label(log_probs, labels) * labelled).mean()),
        head="token_classification",
    ),
    _fault(
        "loss-of-minus-one",
        "a label of -1 is the first class",
        "loss",
        _loss(
            lambda log_probs, labels, labelled: _mean(
                _of_label(log_probs, labels), (labels != -100).astype(labelled.dtype)
            )
        ),
        head="token_classification",
    ),
    _fault(
        "loss-clipped",
        "no probability falls below exp(-64)",
        "loss",
        _loss(
            lambda log_probs, labels, labelled: _mean(_of_label(paddle.clip(log_probs, min=-64.0), labels), labelled)
        ),
        "far-logits",
        "masked_lm",
    ),
    _fault("loss-smoothed", "labels are smoothed by 0.1", "loss", _loss(_smoothed), head="masked_lm"),
    _fault(
        "loss-halved",
        "pre-training takes the mean of both losses",
        "loss",
        _answer(lambda output: setattr(output, "loss", output.loss * 0.5)),
        head="pretraining",
    ),
    _fault(
        "loss-doubled",
        "question answering adds both losses",
        "loss",
        _answer(lambda output: setattr(output, "loss", output.loss * 2.0)),
        head="question_answering",
    ),
    _fault(
        "span-labels-swapped",
        "starts are trained as ends",
        "loss",
        _wrapped_forward(_ends_first),
        "all-labelled",
        "question_answering",
    ),
    _fault(
        "span-outside",
        "an answer that was cut off ends at the last token",
        "loss",
        function(
            heads,
            "_position_loss",
            lambda original: lambda name, logits, at: original(name, logits, paddle.clip(at, max=logits.shape[-1] - 1)),
        ),
        head="question_answering",
    ),
    _fault(
        "loss-summed",
        "several labels at once are summed, not averaged",
        "loss",
        function(
            heads,
            "binary_cross_entropy",
            lambda original: lambda logits, labels: original(logits, labels) * logits.shape[-1],
        ),
        "multi-label",
        "sequence_classification",
    ),
    _fault(
        "regression-broadcast",
        "[B, 1] minus [B] makes [B, B]",
        "loss",
        function(
            heads,
            "mean_squared_error",
            lambda original: lambda logits, labels: original(logits.unsqueeze(-1), labels),
        ),
        "regression",
        "sequence_classification",
    ),
)

# ---- what the caller is given


def _span_mixed(output: Any) -> None:
    output.start_logits, output.end_logits = output.end_logits, output.start_logits


def _state_before_last(output: Any) -> None:
    output.last_hidden_state = output.hidden_states[-2]


def _first_token(output: Any) -> None:
    output.pooler_output = output.last_hidden_state[:, 0]


def _layers_reversed(output: Any) -> None:
    output.attentions = output.attentions[::-1]


_ANSWERS = (
    _fault(
        "answer-span",
        "start_logits and end_logits change places in the answer",
        "classifier.logits",
        _answer(_span_mixed),
        head="question_answering",
    ),
    _fault(
        "answer-state", "last_hidden_state is the state before the last", "layer.1.output", _answer(_state_before_last)
    ),
    _fault("answer-pooler", "pooler_output is the first token's state", "pooler", _answer(_first_token)),
    _fault("answer-attentions", "attentions begin with the last layer's", "layer.0.probs", _answer(_layers_reversed)),
)

FORWARD_FAULTS = (*_LOOKED_UP, *_EMBEDDINGS, *_ATTENTION, *_LAYER, *_POOLER, *_HEADS, *_LOSSES, *_ANSWERS)
