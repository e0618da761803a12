"""Run on a library that has just been compiled, in a process of its own: does it load, and does it compute right?

    python -m paddle_nezha.operator.trial LIBRARY

Attention, GELU and LayerNorm are held to their definitions in float64, forward and backward, in every instruction set
that the processor runs. Exit code 0 if they agree; else a message on stderr (or no process any more).
"""

import ctypes
import math
import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddle_nezha._paddle import load_operators, paddle, run_operator
from paddle_nezha.relative import relative_table

_LENGTH, _HEADS, _SIZE, _REACH = 70, 2, 8, 5
_ROWS, _WIDTH = 70, 37  # more than a piece of rows, and no whole number of vectors
_EPSILON = 2.0**-10  # the same in float32
_LIMITS = {"float64": 1e-12, "float32": 1e-4}
_ABSENT = ("Visible@OPTIONAL", "Starts@OPTIONAL", "Seed@OPTIONAL")


@dataclass(frozen=True)
class _Trial:
    """A call of an operator, and what it must give: the first output, and the inputs' gradients under `grad`."""

    operator: str
    inputs: "dict[str, np.ndarray]"
    absent: "tuple[str, ...]"
    settings: "dict[str, Any]"
    outputs: "tuple[str, ...]"
    grad: np.ndarray
    output: np.ndarray
    slopes: "dict[str, np.ndarray]"


def main() -> None:
    load_operators(sys.argv[1])
    trials = (_attention(), _gelu(), _norm())
    for name in _instruction_sets():
        os.environ["PADDLE_NEZHA_ISA"] = name
        for dtype, limit in _LIMITS.items():
            for trial in trials:
                _hold(trial, dtype, limit, f"{name}, {dtype}")


def _hold(trial: _Trial, dtype: str, limit: float, where: str) -> None:
    inputs = {key: paddle.to_tensor(x.astype(dtype), stop_gradient=False) for key, x in trial.inputs.items()}
    given = {**inputs, **dict.fromkeys(trial.absent)}
    out = run_operator(trial.operator, given, trial.settings, trial.outputs)[0]
    out.backward(paddle.to_tensor(trial.grad.astype(dtype)))
    found = {"output": (out.numpy(), trial.output)}
    found.update({f"gradient of {key}": (inputs[key].grad.numpy(), slope) for key, slope in trial.slopes.items()})
    for what, (got, truth) in found.items():
        worst = np.abs(got - truth).max()
        if not worst <= limit:
            raise SystemExit(f"{where}: the {what} of {trial.operator} is off by {worst:.1e}, more than {limit:.0e}")


def _drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _instruction_sets() -> "list[str]":
    names = ctypes.CDLL(sys.argv[1]).nezha_instruction_sets
    names.restype = ctypes.c_char_p
    return str(names().decode()).split(", ")


def _attention() -> _Trial:
    """With every relative row written out."""
    width = _HEADS * _SIZE
    qkv, bias, grad = _drawn(0, 1, _LENGTH, 3 * width), _drawn(2, 3 * width), _drawn(1, 1, _LENGTH, width)
    q, k, v = (x.reshape(_LENGTH, _HEADS, _SIZE).transpose(1, 0, 2) for x in np.split((qkv + bias)[0], 3, -1))
    distance = np.arange(_LENGTH)[None] - np.arange(_LENGTH)[:, None]
    rows = relative_table(_REACH, _SIZE)[np.clip(distance, -_REACH, _REACH) + _REACH]
    scale = _SIZE**-0.5
    scores = (q @ k.transpose(0, 2, 1) + np.einsum("hfd,ftd->hft", q, rows)) * scale
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    context = probs @ v + np.einsum("hft,ftd->hfd", probs, rows)
    out = grad[0].reshape(_LENGTH, _HEADS, _SIZE).transpose(1, 0, 2)
    grad_probs = out @ v.transpose(0, 2, 1) + np.einsum("hfd,ftd->hft", out, rows)
    grad_scores = probs * (grad_probs - (grad_probs * probs).sum(-1, keepdims=True)) * scale
    grad_q = grad_scores @ k + np.einsum("hft,ftd->hfd", grad_scores, rows)
    grad_k, grad_v = grad_scores.transpose(0, 2, 1) @ q, probs.transpose(0, 2, 1) @ out

    def flat(x: np.ndarray) -> np.ndarray:
        return x.transpose(1, 0, 2).reshape(1, _LENGTH, -1)

    slope = np.concatenate([flat(grad_q), flat(grad_k), flat(grad_v)], -1)
    return _Trial(
        "nezha_attention",
        {"QKV": qkv, "Bias": bias},
        _ABSENT,
        {"heads": _HEADS, "max_relative_position": _REACH, "dropout": 0.0},
        ("Out", "LogSumExp"),
        grad,
        flat(context),
        {"QKV": slope, "Bias": slope.sum((0, 1))},
    )


def _gelu() -> _Trial:
    """Of the error function itself."""
    x, bias, grad = _drawn(3, _ROWS, _WIDTH), _drawn(4, _WIDTH), _drawn(5, _ROWS, _WIDTH)
    z = x + bias
    below = 0.5 * (1.0 + np.vectorize(math.erf)(z / math.sqrt(2.0)))  # the normal distribution's share below z
    slope = grad * (below + z * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))
    return _Trial(
        "nezha_gelu", {"X": x, "Bias": bias}, (), {}, ("Out",), grad, z * below, {"X": slope, "Bias": slope.sum(0)}
    )


def _norm() -> _Trial:
    """LayerNorm(residual + x + bias)."""
    x, residual, grad = (_drawn(seed, _ROWS, _WIDTH) for seed in (6, 7, 8))
    bias, weight, shift = (_drawn(seed, _WIDTH) for seed in (9, 10, 11))
    total = x + residual + bias
    inverse = 1.0 / np.sqrt(total.var(-1, keepdims=True) + _EPSILON)
    normal = (total - total.mean(-1, keepdims=True)) * inverse
    pulled = grad * weight
    slope = inverse * (pulled - pulled.mean(-1, keepdims=True) - normal * (pulled * normal).mean(-1, keepdims=True))
    return _Trial(
        "nezha_norm",
        {"X": x, "Residual": residual, "Bias": bias, "Weight": weight, "Shift": shift},
        ("Seed@OPTIONAL",),
        {"epsilon": _EPSILON, "dropout": 0.0},
        ("Out", "Mean", "Inverse"),
        grad,
        normal * weight + shift,
        {
            "X": slope,
            "Residual": slope,
            "Bias": slope.sum(0),
            "Weight": (grad * normal).sum(0),
            "Shift": grad.sum(0),
        },
    )


if __name__ == "__main__":
    main()
