"""Layers as NeZha initialises them, and its activations by their names in config files.

Weights of Linear and Embedding are drawn from N(0, initializer_range); biases are 0, LayerNorm is 1 and 0, and no
row of an embedding is zeroed.
"""

import math
from collections.abc import Iterable
from typing import Any, Callable

from paddle_nezha import operator
from paddle_nezha._paddle import F, Tensor, is_eager, nn, paddle, plain_python
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.forms import by_operators


def _normal(config: NeZhaConfig) -> "paddle.ParamAttr":
    return paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, config.initializer_range))


def linear(config: NeZhaConfig, inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, weight_attr=_normal(config))


def embedding(config: NeZhaConfig, rows: int, width: int) -> nn.Embedding:
    # No padding_idx: Paddle's would zero the look-up itself, not only the gradient.
    return nn.Embedding(rows, width, weight_attr=_normal(config))


class LayerNorm(nn.LayerNorm):
    """Paddle's LayerNorm, but with the right gradient whatever else is asked for.

    Measured on CPUs, 2.6.2 and 3.3.1: when no gradient is asked for the weight, because it is frozen or because
    `paddle.grad` was given other tensors alone, Paddle's kernel leaves the weight out of the input's gradient too.
    So the kernel is given a weight that depends, by nothing at all, on the input: whoever needs the gradient of the
    input then needs that of the weight. Numbers stay the kernel's own, bit by bit.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        if is_eager():
            asked = paddle.is_grad_enabled() and not x.stop_gradient and 0 not in x.shape
        else:  # here the whole backward is built at once, so that only a frozen weight goes without
            asked = self.training and weight.stop_gradient
        if asked:
            row = paddle.reshape(x, [-1, weight.shape[0]])[0].astype(weight.dtype)
            weight = paddle.where(paddle.zeros(weight.shape, dtype="bool"), row, weight)
        return F.layer_norm(x, self._normalized_shape, weight, self.bias, self._epsilon)


# As they were when this was imported: whoever replaces a class's own forward wants it called.
_FORWARD: "dict[type, Any]" = {kind: kind.forward for kind in (nn.Linear, nn.Dropout, LayerNorm)}
_METHODS = {kind: {name for name in dir(kind) if callable(getattr(kind, name))} for kind in _FORWARD}


def is_plain(layer: Any, kind: Any) -> bool:
    """Whether a layer does what its class says and no more, so that its parameters may be used in its place.

    Adapters, observers and quantisers put something else there: another class, a hook, a method of the instance's own
    (`layer.forward = wrapped`) or of the class's, a weight of another kind, no bias. Such a layer is called.

    Args:
        layer: an nn.Layer, or what stands in its place.
        kind: nn.Linear, nn.Dropout or LayerNorm.
    """
    if type(layer) is not kind or kind.forward is not _FORWARD[kind] or not _METHODS[kind].isdisjoint(vars(layer)):
        return False
    if layer._forward_pre_hooks or layer._forward_post_hooks:
        return False
    if kind is nn.Dropout:
        return isinstance(layer.p, (int, float)) and layer.mode == "upscale_in_train" and layer.axis is None
    dtypes = {getattr(getattr(layer, name, None), "dtype", None) for name in ("weight", "bias")}
    return len(dtypes) == 1 and None not in dtypes


@plain_python
def are_plain(layers: "Iterable[nn.Layer]", like: Tensor) -> bool:
    """Whether Linear layers and LayerNorms are plain and of one dtype, that of what they are to read."""
    kinds = ((layer, LayerNorm if isinstance(layer, LayerNorm) else nn.Linear) for layer in layers)
    return all(is_plain(layer, kind) and layer.weight.dtype == like.dtype for layer, kind in kinds)


def residual_norm(x: Tensor, dense: nn.Linear, dropout: nn.Dropout, residual: Tensor, norm: LayerNorm) -> Tensor:
    """``norm(residual + dropout(dense(x)))``: all but the product by one operator, where it can run."""
    # Asked first: a tracer that simulates line by line goes no further.
    if by_operators(residual) and are_plain((dense, norm), residual) and is_plain(dropout, nn.Dropout):
        drop = dropout.p if dropout.training else 0.0
        product = paddle.matmul(x, dense.weight)
        return operator.residual_norm(
            product, residual, dense.bias, norm.weight, norm.bias, norm._epsilon, dropout=drop
        )
    return norm(residual + dropout(dense(x)))


def activated(x: Tensor, dense: nn.Linear, activation: "Callable[[Tensor], Tensor]") -> Tensor:
    """``activation(dense(x))``: bias and the exact GELU by an operator, where it can run."""
    if activation is _gelu_erf and by_operators(x) and are_plain((dense,), x):
        return operator.gelu(paddle.matmul(x, dense.weight), dense.bias)
    return activation(dense(x))


def layer_norm(config: NeZhaConfig) -> LayerNorm:
    return LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps)


def _gelu_erf(x: Tensor) -> Tensor:
    return F.gelu(x)


def _gelu_tanh(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + paddle.tanh(inner))


def _gelu_fast(x: Tensor) -> Tensor:
    # The tanh form with sqrt(2 / pi) to ten digits, as this name has always meant.
    return 0.5 * x * (1.0 + paddle.tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x)))


def _mish(x: Tensor) -> Tensor:
    # softplus written out: Paddle's own takes a straight line above 20.
    return x * paddle.tanh(F.relu(x) + paddle.log1p(paddle.exp(-paddle.abs(x))))


# "gelu" is the exact form and "gelu_new" the tanh form (4.7e-4 apart), as PaddleNLP and Hugging Face name them.
ACTIVATION_FUNCTIONS: "dict[str, Callable[[Tensor], Tensor]]" = {
    "gelu": _gelu_erf,
    "gelu_10": lambda x: paddle.clip(_gelu_erf(x), -10.0, 10.0),
    "gelu_fast": _gelu_fast,
    "gelu_new": _gelu_tanh,
    "gelu_python": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "linear": lambda x: x,
    "mish": _mish,
    "quick_gelu": lambda x: x * F.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu6": F.relu6,
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": paddle.tanh,
}
