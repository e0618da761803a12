"""Mistakes in what the operators are given, or give back: each first seen at the operator's own stage."""

from typing import Any, Callable

import paddle_nezha.operator
from paddle_nezha._paddle import paddle
from parity.faults.base import Fault
from parity.faults.plants import Plant, Tensor, function, with_gradient_of

_KIND = "operator"


def _fault(name: str, what: str, stage: str, plant: Plant, case: str = "plain", head: str = "model") -> Fault:
    return Fault(name, "backward" if stage.startswith("grad:") else "forward", what, case, head, stage, plant, _KIND)


def _attention(change: "Callable[[dict[str, Any]], dict[str, Any]]") -> Plant:
    """Attention called with other arguments than it was: `change` of them by name."""

    def make(right: Any) -> "Callable[..., Tensor]":
        def attention(qkv: Tensor, visible: Any, starts: Any, **named: Any) -> Tensor:
            given = {"qkv": qkv, "visible": visible, "starts": starts, **named}
            return right(**{**given, **change(given)})

        return attention

    return function(paddle_nezha.operator, "packed_attention", make)


def _part(index: int, change: "Callable[[Tensor], Tensor]") -> "Callable[[dict[str, Any]], dict[str, Any]]":
    """Queries (0), keys (1) or values (2) changed."""

    def changed(named: "dict[str, Any]") -> "dict[str, Any]":
        parts = paddle.split(named["qkv"], 3, -1)
        parts[index] = change(parts[index])
        return {"qkv": paddle.concat(parts, -1)}

    return changed


def _gelu(change: "Callable[[Any, Tensor, Tensor], Tensor]") -> Plant:
    return function(paddle_nezha.operator, "gelu", lambda right: lambda x, bias: change(right, x, bias))


def _norm(**changes: "Callable[[Any], Any]") -> Plant:
    """The last step of a block called with some arguments changed."""
    names = ("x", "residual", "bias", "weight", "shift", "epsilon")

    def make(right: Any) -> "Callable[..., Tensor]":
        def norm(*arguments: Any, **named: Any) -> Tensor:
            given = {**dict(zip(names, arguments)), **named}
            return right(**{**given, **{name: change(given[name]) for name, change in changes.items()}})

        return norm

    return function(paddle_nezha.operator, "residual_norm", make)


def _half_gradient(x: Tensor) -> Tensor:
    return with_gradient_of(x, x * 0.5)


OPERATOR_FAULTS = (
    _fault(
        "operator-reach-short",
        "distances are clipped at m - 1",
        "layer.0.context",
        _attention(lambda named: {"max_relative_position": named["max_relative_position"] - 1}),
        "m5-length23",
    ),
    _fault(
        "operator-not-relative",
        "the relative part is left out",
        "layer.0.context",
        _attention(lambda named: {"max_relative_position": 0}),
    ),
    _fault(
        "operator-mask-ignored",
        "hidden keys are seen",
        "layer.0.context",
        _attention(lambda named: {"visible": None}),
        "pad-ragged",
    ),
    _fault(
        "operator-starts-lost",
        "texts without their padding see each other",
        "layer.0.context",
        _attention(
            lambda named: (
                {}
                if named["starts"] is None
                else {"starts": paddle.concat([named["starts"][:1], named["starts"][-1:]])}
            ),
        ),
        "pad-right",
        "sequence_classification",
    ),
    _fault(
        "operator-bias-dropped",
        "query, key and value lose their biases",
        "layer.0.context",
        _attention(lambda named: {"bias": None}),
    ),
    _fault(
        "operator-parts-swapped",
        "keys are taken for values",
        "layer.0.context",
        _attention(lambda named: {"qkv": paddle.concat([paddle.split(named["qkv"], 3, -1)[i] for i in (0, 2, 1)], -1)}),
    ),
    _fault(
        "operator-tables-swapped",
        "the table of keys is taken for that of values",
        "layer.0.context",
        _attention(lambda named: {"tables": named["tables"].flip(0)}),
        "parametric",
    ),
    _fault(
        "operator-gelu-bias-dropped",
        "GELU forgets the bias",
        "layer.0.ffn",
        _gelu(lambda right, x, bias: right(x, paddle.zeros_like(bias))),
    ),
    _fault(
        "operator-gelu-tanh",
        "GELU in its tanh form",
        "layer.0.ffn",
        _gelu(lambda right, x, bias: paddle.nn.functional.gelu(x + bias, approximate=True)),
    ),
    _fault(
        "operator-norm-epsilon",
        "LayerNorm's epsilon is 1e-5",
        "layer.0.attention_output",
        _norm(epsilon=lambda value: 1e-5),
    ),
    _fault(
        "operator-norm-residual-dropped",
        "the residual is left out",
        "layer.0.attention_output",
        _norm(residual=paddle.zeros_like),
    ),
    _fault(
        "operator-norm-bias-dropped",
        "the product's bias is left out",
        "layer.0.attention_output",
        _norm(bias=paddle.zeros_like),
    ),
    _fault(
        "operator-norm-parameters-swapped",
        "LayerNorm's weight and bias change places",
        "layer.0.attention_output",
        function(
            paddle_nezha.operator,
            "residual_norm",
            lambda right: (
                lambda x, residual, bias, weight, shift, *rest, **named: right(
                    x, residual, bias, shift, weight, *rest, **named
                )
            ),
        ),
    ),
    _fault(
        "operator-query-gradient",
        "queries get half their gradient",
        "grad:encoder.layer.1.attention.query.weight",
        _attention(_part(0, _half_gradient)),
    ),
    _fault(
        "operator-value-gradient",
        "values get half their gradient",
        "grad:encoder.layer.1.attention.value.weight",
        _attention(_part(2, _half_gradient)),
    ),
    _fault(
        "operator-bias-gradient",
        "the biases of query, key and value get half their gradient",
        "grad:encoder.layer.1.attention.value.bias",
        _attention(lambda named: {"bias": _half_gradient(named["bias"])}),
    ),
    _fault(
        "operator-table-gradient",
        "learned tables get half their gradient",
        "grad:encoder.layer.1.attention.relative_value.weight",
        _attention(lambda named: {"tables": _half_gradient(named["tables"])}),
        "parametric",
    ),
    _fault(
        "operator-gelu-bias-gradient",
        "GELU's bias gets half its gradient",
        "grad:encoder.layer.1.ffn.bias",
        _gelu(lambda right, x, bias: right(x, _half_gradient(bias))),
    ),
    _fault(
        "operator-norm-shift-gradient",
        "LayerNorm's bias gets half its gradient",
        "grad:encoder.layer.1.layer_norm.bias",
        _norm(shift=_half_gradient),
    ),
    _fault(
        "operator-norm-weight-gradient",
        "LayerNorm's weight gets half its gradient",
        "grad:encoder.layer.1.layer_norm.weight",
        _norm(weight=_half_gradient),
    ),
    _fault(
        "operator-norm-residual-gradient",
        "the residual gets half its gradient",
        "grad:encoder.layer.1.attention.layer_norm.bias",
        _norm(residual=_half_gradient),
    ),
)
