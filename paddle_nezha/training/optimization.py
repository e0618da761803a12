"""The optimizer and its state, under the names that a model's `state_dict` gives its parameters."""

import math
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from paddle_nezha._paddle import Tensor, nn, paddle


def is_decayed(name: str) -> bool:
    """Whether weight decay applies to a parameter: to all but biases and LayerNorm (Huawei's and BERT's list)."""
    return "layer_norm" not in name and not name.endswith("bias")


def trained_parameters(model: nn.Layer, reads_pooler: bool) -> "dict[str, Tensor]":
    """The parameters that get a gradient, each once under its first name in the `state_dict`.

    Args:
        reads_pooler: whether the loss does; a pooler that it never reads stays what it was.
    """
    found: "dict[int, tuple[str, Tensor]]" = {}
    for name, parameter in model.state_dict().items():
        if not parameter.stop_gradient and (reads_pooler or "pooler." not in name):
            found.setdefault(id(parameter), (name, parameter))
    return dict(found.values())


def make_optimizer(
    kind: str,
    parameters: "Mapping[str, Tensor]",
    rate: float,
    weight_decay: float,
    betas: "tuple[float, float]",
    epsilon: float,
    clip_norm: Optional[float],
    master_weights: bool = False,
) -> Any:
    """Paddle's LAMB (arXiv 1904.00962) or AdamW over named parameters.

    Args:
        kind: "lamb" or "adamw". LAMB's trust ratio is 1 for what is excluded from decay.
        parameters: what is trained; each tensor once.
        clip_norm: the most that the norm of all gradients together may be; None leaves them.
        master_weights: keep float32 copies of half-precision parameters.
    """
    clip = None if clip_norm is None else paddle.nn.ClipGradByGlobalNorm(clip_norm)
    # LAMB asks with the parameter, AdamW with the name that Paddle gave it; neither is the name in the state_dict.
    decayed = {parameter.name for name, parameter in parameters.items() if is_decayed(name)}
    common = {
        "learning_rate": rate,
        "beta1": betas[0],
        "beta2": betas[1],
        "epsilon": epsilon,
        "parameters": list(parameters.values()),
        "grad_clip": clip,
        "multi_precision": master_weights,
    }
    if kind == "lamb":
        return paddle.optimizer.Lamb(
            lamb_weight_decay=weight_decay,
            exclude_from_weight_decay_fn=lambda parameter: parameter.name not in decayed,
            **common,
        )
    return paddle.optimizer.AdamW(
        weight_decay=weight_decay, apply_decay_param_fun=lambda name: name in decayed, **common
    )


def optimizer_state(optimizer: Any, parameters: "Mapping[str, Tensor]") -> "dict[str, np.ndarray]":
    """The state of an optimizer as arrays "<parameter>/<accumulator>", such as "pooler.dense.bias/moment1_0".

    Paddle's own keys begin with a name counted up over the process, which would be another one in the next.
    """
    named = {parameter.name: name for name, parameter in parameters.items()}
    state = optimizer.state_dict()
    arrays = {}
    for key, value in {**state, **_masters(state)}.items():
        if key in ("LR_Scheduler", "master_weights"):
            continue
        owner = max((own for own in named if key.startswith(own + "_") or key == own), key=len, default=None)
        if owner is None:
            raise ValueError(f"The optimizer's state holds {key}, which belongs to none of the trained parameters.")
        arrays[f"{named[owner]}/{key[len(owner) + 1 :] or _MASTER}"] = value.numpy()
    return arrays


_MASTER = "master"


def _masters(state: "Mapping[str, Any]") -> "dict[str, Tensor]":
    masters: "dict[str, Tensor]" = state.get("master_weights", {})
    return masters


def restore_optimizer(optimizer: Any, arrays: "Mapping[str, np.ndarray]", parameters: "Mapping[str, Tensor]") -> None:
    """Gives an optimizer that has made no step yet the state that `optimizer_state` gave.

    Args:
        arrays: of all parameters, or of more: what belongs to others (another process's share) is left out.
    """
    state: "dict[str, Any]" = {}
    masters: "dict[str, Any]" = {}
    for key, array in arrays.items():
        name, _, accumulator = key.rpartition("/")
        if name not in parameters:
            continue
        own = parameters[name].name
        if accumulator == _MASTER:
            masters[own] = paddle.to_tensor(array)
        else:
            state[f"{own}_{accumulator}"] = paddle.to_tensor(array)
    if masters:
        state["master_weights"] = masters
    if state:
        optimizer.set_state_dict(state)


def gradient_norm(parameters: "Mapping[str, Tensor]") -> float:
    """The 2-norm of all gradients together; not finite where one of them is not."""
    squares = [
        parameter.grad.astype("float32").square().sum()
        for parameter in parameters.values()
        if parameter.grad is not None
    ]
    return math.sqrt(paddle.add_n(squares).item()) if squares else 0.0
