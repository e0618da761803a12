"""How far an engine's attention is from the definition, computed in float64 by the reference."""

from typing import Any

import numpy as np

from parity.bench.backends.inputs import Heads, heads
from parity.bench.plan import Case, Setting


def exact(given: Heads, reach: int) -> "tuple[np.ndarray, list[np.ndarray]]":
    """The context [B, H, L, D] and the gradients of query, key and value, in float64."""
    import torch

    import torch_ref
    from torch_ref.model import attention

    query, key, value = (torch.from_numpy(part).double().requires_grad_() for part in given[:3])
    length, size = query.shape[2:]
    rows = torch_ref.position_table(reach, size)[torch_ref.relative_rows(length, reach)]
    seen = torch.from_numpy(given.visible)[:, None, None, :]
    context = attention(query, key, value, seen, rows, rows)[2]
    context.backward(torch.from_numpy(given.gradient).double())
    gradients = [part.grad.numpy() for part in (query, key, value) if part.grad is not None]
    return context.detach().numpy(), gradients


def errors(backend: Any, case: Case, setting: Setting, scale: float) -> "tuple[float, float]":
    """max|a - b| / max|b| of the context, and the worst of the gradients'."""
    given = heads(case, setting, scale)
    context, gradients = backend.context_and_gradients(given)
    truth, true_gradients = exact(given, setting.sizes["max_relative_position"])
    return _error(context, truth), max(_error(a, b) for a, b in zip(gradients, true_gradients))


def _error(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(found - truth).max() / np.abs(truth).max())
