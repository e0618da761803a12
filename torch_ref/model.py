"""NeZha in plain PyTorch, written from the formula: the second opinion.

Slow, direct and deterministic (no dropout); float32 or float64, any device. It shares its config with
`paddle_nezha` and nothing else, so that an error in one is not repeated in the other.

Axis letters: B batch, L sequence (F query, T key where they differ), H heads, D head size, N = H*D hidden,
R = 2m+1 relative rows, V vocabulary, I ffn width, C choices.

    embeddings   e = LayerNorm(word[ids] + segment[types] (+ position[t], absolute only))
    row          r(f, t) = clip(t - f, -m, m) + m
    scores       s = (q_f . (k_t + A[r])) / sqrt(D), hidden keys left out
    context      c_f = sum_t softmax(s)_ft (v_t + A[r])
    layer        x = LayerNorm(x + dense(c));  x = LayerNorm(x + ffn_output(act(ffn(x))))

Source: NEZHA, arXiv 1909.00204, section 2.2; the learned tables of `parametric_relative` are those of
Shaw et al., arXiv 1803.02155, section 3.2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from paddle_nezha.config import NeZhaConfig

Record = dict[str, Tensor]


def position_table(max_relative_position: int, head_size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The sinusoids A [R, D], computed in float64 and rounded once to `dtype`."""
    table = []
    for r in range(2 * max_relative_position + 1):
        row = []
        for i in range(head_size // 2):
            angle = r / 10000 ** (2 * i / head_size)
            row += [math.sin(angle), math.cos(angle)]
        table.append(row)
    return torch.tensor(table, dtype=torch.float64).to(dtype)


def relative_rows(length: int, max_relative_position: int) -> Tensor:
    """The row of the table for query f and key t, [F, T] int64."""
    m = max_relative_position
    return torch.tensor([[max(-m, min(m, t - f)) + m for t in range(length)] for f in range(length)])


def visible_keys(attention_mask: Tensor | None, batch: int, length: int) -> Tensor:
    """Which keys a query sees, bool [B, 1 or H, F, T].

    Args:
        attention_mask: 1 attends, 0 does not; [B, L], [B, F, T] or [B, 1 or H, F, T]; None sees everything.

    Raises:
        ValueError: a mask of another rank.
    """
    if attention_mask is None:
        return torch.ones(batch, 1, length, length, dtype=torch.bool)
    seen = attention_mask != 0
    if seen.ndim == 2:
        return seen[:, None, None, :].expand(batch, 1, length, length)
    if seen.ndim == 3:
        return seen[:, None, :, :]
    if seen.ndim == 4:
        return seen
    raise ValueError(
        f"attention_mask: expected [B, L], [B, F, T] or [B, 1 or H, F, T], got shape {tuple(seen.shape)}; "
        "give one of these three"
    )


def masked_softmax(scores: Tensor, seen: Tensor) -> Tensor:
    """Softmax over the visible keys; a query without any has probabilities 0, and passes gradient 0."""
    scores = scores.masked_fill(~seen, -math.inf)
    peak = scores.detach().amax(dim=-1, keepdim=True)
    peak = peak.masked_fill(peak == -math.inf, 0.0)  # -inf minus -inf would be NaN
    weights = torch.exp(scores - peak)
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor,
    relative_key: Tensor | None = None,
    relative_value: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention with relative terms on both sides.

    Args:
        query: [B, H, F, D].
        key, value: [B, H, T, D].
        seen: bool, broadcasts to [B, H, F, T].
        relative_key, relative_value: [F, T, D], the table gathered by row; None leaves the term out.

    Returns:
        scores [B, H, F, T] before the mask, probabilities [B, H, F, T], context [B, H, F, D].
    """
    scores = torch.einsum("bhfd,bhtd->bhft", query, key)
    if relative_key is not None:
        scores = scores + torch.einsum("bhfd,ftd->bhft", query, relative_key)
    scores = scores / math.sqrt(query.shape[-1])
    probs = masked_softmax(scores, seen)
    context = torch.einsum("bhft,bhtd->bhfd", probs, value)
    if relative_value is not None:
        context = context + torch.einsum("bhft,ftd->bhfd", probs, relative_value)
    return scores, probs, context


def _gelu_erf(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def _gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_fast(x: Tensor) -> Tensor:
    # The tanh form with sqrt(2/pi) to ten digits: the published name stands for this constant.
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * x * (1 + 0.044715 * x * x)))


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


ACTIVATIONS = {
    "gelu": _gelu_erf,
    "gelu_10": lambda x: _gelu_erf(x).clamp(-10, 10),
    "gelu_fast": _gelu_fast,
    "gelu_new": _gelu_tanh,
    "gelu_python": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "linear": lambda x: x,
    "mish": lambda x: x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x))),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "relu6": nn.functional.relu6,
    "sigmoid": torch.sigmoid,
    "silu": _silu,
    "swish": _silu,
    "tanh": torch.tanh,
}


class Linear(nn.Module):
    """x W^T + b with W [out, in], as PyTorch keeps it."""

    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * scale)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Table(nn.Module):
    """Learned rows, gathered by index; no row is special."""

    def __init__(self, rows: int, width: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, width) * scale)

    def forward(self, index: Tensor) -> Tensor:
        return embedding(index, self.weight)


class LayerNorm(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        # Paddle keeps the epsilon as a float32, also in float64 work.
        self.epsilon = float(np.float32(epsilon))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + self.epsilon) * self.weight + self.bias


class Layer(nn.Module):
    """One encoder layer: attention block, then ffn block, each closed by a LayerNorm."""

    def __init__(self, config: NeZhaConfig) -> None:
        super().__init__()
        width, scale = config.hidden_size, config.initializer_range
        self.heads = config.num_attention_heads
        self.act = ACTIVATIONS[config.hidden_act]
        self.query = Linear(width, width, scale)
        self.key = Linear(width, width, scale)
        self.value = Linear(width, width, scale)
        if config.position_encoding == "parametric_relative":
            rows, depth = 2 * config.max_relative_position + 1, config.head_size
            self.relative_key = Table(rows, depth, scale)
            self.relative_value = Table(rows, depth, scale)
        self.dense = Linear(width, width, scale)
        self.attention_norm = LayerNorm(width, config.layer_norm_eps)
        self.ffn = Linear(width, config.intermediate_size, scale)
        self.ffn_output = Linear(config.intermediate_size, width, scale)
        self.norm = LayerNorm(width, config.layer_norm_eps)

    def forward(
        self,
        x: Tensor,
        seen: Tensor,
        rows: Tensor | None,
        table: Tensor | None,
        record: Record,
        name: str,
    ) -> tuple[Tensor, Tensor]:
        """From x [B, L, N] the output [B, L, N] and the probabilities [B, H, F, T]; stages go to `record`."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        key_terms, value_terms = self._relative_terms(rows, table)
        scores, probs, context = attention(
            self._split(query), self._split(key), self._split(value), seen, key_terms, value_terms
        )
        context = context.transpose(1, 2).reshape(x.shape)
        attended = self.attention_norm(x + self.dense(context))
        inner = self.act(self.ffn(attended))
        output = self.norm(attended + self.ffn_output(inner))
        record.update(
            {
                f"{name}.query": query,
                f"{name}.key": key,
                f"{name}.value": value,
                f"{name}.scores": scores,
                f"{name}.probs": probs,
                f"{name}.context": context,
                f"{name}.attention_output": attended,
                f"{name}.ffn": inner,
                f"{name}.output": output,
            }
        )
        return output, probs

    def _split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def _relative_terms(self, rows: Tensor | None, table: Tensor | None) -> tuple[Tensor | None, ...]:
        if rows is None:
            return None, None
        if table is None:
            return self.relative_key(rows), self.relative_value(rows)
        return table[rows], table[rows]


class Model(nn.Module):
    """Embeddings, encoder and pooler."""

    def __init__(self, config: NeZhaConfig) -> None:
        super().__init__()
        width, scale = config.hidden_size, config.initializer_range
        self.config = config
        self.word = Table(config.vocab_size, width, scale)
        self.segment = Table(config.type_vocab_size, width, scale)
        if config.position_encoding == "absolute":
            self.position = Table(config.max_position_embeddings, width, scale)
        self.embedding_norm = LayerNorm(width, config.layer_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler: Linear | None = Linear(width, width, scale)

    def forward(
        self, input_ids: Any, token_type_ids: Any, attention_mask: Any, inputs_embeds: Any, record: Record
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Hidden states (layers + 1, [B, L, N] each), probabilities (layers, [B, H, F, T]), pooled [B, N].

        Raises:
            ValueError: not exactly one of `input_ids` [B, L] and `inputs_embeds` [B, L, N]; an input longer
                than the absolute positions reach.
        """
        x = self._embed(input_ids, token_type_ids, inputs_embeds)
        batch, length, _ = x.shape
        seen = visible_keys(attention_mask, batch, length).to(x.device)
        record.update(mask=seen, embeddings=x)
        rows, table = self._relative(x, record)
        hidden, probs = [x], []
        for n, layer in enumerate(self.layers):
            x, p = layer(x, seen, rows, table, record, f"layer.{n}")
            hidden.append(x)
            probs.append(p)
        return hidden, probs, self._pool(x, record)

    def _embed(self, input_ids: Any, token_type_ids: Any, inputs_embeds: Any) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            given = "neither" if input_ids is None else "both"
            raise ValueError(f"expected one of input_ids and inputs_embeds, got {given}; give exactly one")
        x = self.word(input_ids) if inputs_embeds is None else inputs_embeds
        length = x.shape[1]
        if token_type_ids is None:
            token_type_ids = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
        x = x + self.segment(token_type_ids)
        if self.config.position_encoding == "absolute":
            limit = self.config.max_position_embeddings
            if length > limit:
                raise ValueError(
                    f"expected at most max_position_embeddings = {limit} tokens under absolute positions, "
                    f"got {length}; shorten the input, or use a relative position_encoding"
                )
            x = x + self.position(torch.arange(length, device=x.device))
        return self.embedding_norm(x)

    def _relative(self, x: Tensor, record: Record) -> tuple[Tensor | None, Tensor | None]:
        encoding, reach = self.config.position_encoding, self.config.max_relative_position
        if encoding == "absolute":
            return None, None
        record["rows"] = rows = relative_rows(x.shape[1], reach).to(x.device)
        if encoding == "parametric_relative":
            return rows, None
        record["table"] = table = position_table(reach, self.config.head_size, x.dtype).to(x.device)
        return rows, table

    def _pool(self, x: Tensor, record: Record) -> Tensor | None:
        if self.pooler is None:
            return None
        record["pooler"] = pooled = torch.tanh(self.pooler(x[:, 0]))
        return pooled
