"""Run on a library that has just been compiled, in a process of its own: does it load, and does it compute attention?

    python -m paddle_nezha.operator.trial LIBRARY

Exit code 0 if so; else a message on stderr (or no process any more).
"""

import ctypes
import os
import sys

import numpy as np

from paddle_nezha._paddle import load_operators, paddle, run_operator
from paddle_nezha.relative import relative_table

_LENGTH, _HEADS, _SIZE, _REACH = 70, 2, 8, 5


def main() -> None:
    load_operators(sys.argv[1])
    qkv = np.random.default_rng(0).standard_normal([1, _LENGTH, 3 * _HEADS * _SIZE])
    grad = np.random.default_rng(1).standard_normal([1, _LENGTH, _HEADS * _SIZE])
    context, slope = _definition(qkv, grad)
    for name in _instruction_sets():
        os.environ["PADDLE_NEZHA_ISA"] = name
        for dtype, limit in (("float64", 1e-12), ("float32", 1e-4)):
            given = paddle.to_tensor(qkv.astype(dtype), stop_gradient=False)
            settings = {"heads": _HEADS, "max_relative_position": _REACH, "dropout": 0.0}
            bias = paddle.zeros([3 * _HEADS * _SIZE], dtype)
            inputs = {
                "QKV": given,
                "Bias": bias,
                "Visible@OPTIONAL": None,
                "Starts@OPTIONAL": None,
                "Seed@OPTIONAL": None,
            }
            out = run_operator("nezha_attention", inputs, settings, ("Out", "LogSumExp"))[0]
            out.backward(paddle.to_tensor(grad.astype(dtype)))
            for what, got, truth in (("context", out.numpy(), context), ("gradient", given.grad.numpy(), slope)):
                worst = np.abs(got - truth).max()
                if not worst <= limit:
                    raise SystemExit(f"{name}, {dtype}: the {what} is off by {worst:.1e}, more than {limit:.0e}")


def _instruction_sets() -> "list[str]":
    names = ctypes.CDLL(sys.argv[1]).nezha_instruction_sets
    names.restype = ctypes.c_char_p
    return str(names().decode()).split(", ")


def _definition(qkv: np.ndarray, grad: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
    """Context and the gradient of qkv, with every relative row written out."""
    q, k, v = (x.reshape(_LENGTH, _HEADS, _SIZE).transpose(1, 0, 2) for x in np.split(qkv[0], 3, -1))
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

    return flat(context), np.concatenate([flat(grad_q), flat(grad_k), flat(grad_v)], -1)


if __name__ == "__main__":
    main()
