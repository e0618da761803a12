"""Attention with relative positions, in the exact forms that plain Paddle operations can do.

With q, k, v [B, H, L, D], the table A [R, D] and the distance d = t - f of key t from query f:

    scores   s_ft = q_f . (k_t + A[row(d)]) / sqrt(D)
    context  c_f  = sum_t softmax(s + mask)_ft (v_t + A[row(d)])

Neither term needs A gathered to [F, T, D]. The rows that a block of queries can meet lie side by side, one for each
distance: E [F + T, D]. So ``q E^T`` [F, F + T] holds every score the table gives, one column per distance, and
moving each row one step further than the row above it (`skew`, Huang et al. 2018, arXiv 1809.04281) turns distances
into keys.
The value side is the transpose: `unskew` the probabilities, then multiply by E.

Two forms, one arithmetic (`native_form` chooses):

* `dense`: all queries at once through autograd. It returns the probabilities and is the form that can be traced.
* `blocked`: a block of queries at a time with a backward of its own, which computes the probabilities of long inputs
  again. Without dropout memory then grows with L, not with L x L.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional

from paddle_nezha._paddle import F, Tensor, constant, is_eager, paddle, place_name, scaled, sizes
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.relative import relative_table

# Scores of one block: large enough for efficient products, small enough to stay near the processor.
_BLOCK_ELEMENTS = 1 << 19
_SMALLEST_BLOCK = 32
# Up to here (16 MiB a layer in float32) probabilities are kept for the backward; beyond, computed again.
_KEPT_ELEMENTS = 1 << 22


# ---- the table, by distance


@lru_cache(maxsize=16)
def _eager_table(max_relative_position: int, head_size: int, dtype: str, place: str) -> Tensor:
    return constant(relative_table(max_relative_position, head_size), dtype, place)


def table_like(tensor: Tensor, config: NeZhaConfig) -> Tensor:
    """The sinusoid table [R, D] in a tensor's dtype and place.

    Made from float64 on demand and shared by all layers: as a buffer it would be rounded to float32 for good, be
    written into checkpoints and sit on the wrong device after a move.
    """
    dtype = str(tensor.dtype).rsplit(".", 1)[-1]
    if is_eager():
        return _eager_table(config.max_relative_position, config.head_size, dtype, place_name(tensor))
    return constant(relative_table(config.max_relative_position, config.head_size), dtype)


def by_distance(table: Tensor, first_query: int, queries: int, keys: int) -> Tensor:
    """E [F + T, D]: the table's rows for the distances -(first_query + F) .. T - first_query - 1.

    The first distance is never met; it makes rows of one query ordinary (no special case at F = 1).
    """
    m = (table.shape[0] - 1) // 2
    distance = paddle.arange(-first_query - queries, keys - first_query, dtype="int64")
    # Clipped from 0: Paddle Inference's oneDNN pass drops the clip of a difference that is clipped to -m .. m.
    return paddle.gather(table, paddle.clip(distance + m, 0, 2 * m))


def skew(by_distance: Tensor, keys: int) -> Tensor:
    """[B, H, F, F + T], one column per distance, to [B, H, F, T], one column per key."""
    _, _, queries, _ = sizes(by_distance)
    flat = _after(by_distance.reshape([0, 0, -1]), queries)
    return _before(flat.reshape([0, 0, queries, -1]), keys)


def unskew(by_key: Tensor) -> Tensor:
    """[B, H, F, T], one column per key, to [B, H, F, F + T], one column per distance; the transpose of `skew`."""
    batch, heads, queries, _ = sizes(by_key)
    wide = paddle.concat([by_key, paddle.zeros([batch, heads, queries, queries - 1], by_key.dtype)], -1)
    flat = paddle.concat([paddle.zeros([batch, heads, queries], by_key.dtype), wide.reshape([0, 0, -1])], -1)
    return flat.reshape([0, 0, queries, -1])


def _after(x: Tensor, start: int) -> Tensor:
    # Eager slices are strided views that cost ten times a contiguous copy on a CPU; `crop` copies.
    return paddle.crop(x, [-1, -1, x.shape[-1] - start], [0, 0, start]) if is_eager() else x[:, :, start:]


def _before(x: Tensor, end: int) -> Tensor:
    return paddle.crop(x, [-1, -1, -1, end], [0, 0, 0, 0]) if is_eager() else x[:, :, :, :end]


def _add(total: Tensor, term: Tensor) -> Tensor:
    return total.add_(term) if is_eager() else total + term


# ---- the three steps of attention


def relative_scores(query: Tensor, key: Tensor, positions: Optional[Tensor]) -> Tensor:
    """Scores before the mask.

    Args:
        query: [B, H, F, D]. key: [B, H, T, D].
        positions: E [F + T, D] of `by_distance`; None leaves the relative term out (BERT).

    Returns:
        [B, H, F, T].
    """
    return _products(scaled(query, 1.0 / math.sqrt(query.shape[-1])), key, positions)


def _products(query: Tensor, key: Tensor, positions: Optional[Tensor]) -> Tensor:
    """``q_f . (k_t + A[row(d)])`` for every pair: [B, H, F, T]."""
    products = paddle.matmul(query, key, transpose_y=True)
    if positions is None:
        return products
    return _add(products, skew(paddle.matmul(query, positions, transpose_y=True), sizes(key)[2]))


def masked_softmax(scores: Tensor, visible: Optional[Tensor]) -> Tensor:
    """Probabilities over the visible keys: exactly 0 elsewhere, all 0 for a query that sees no key.

    Args:
        scores: [B, H, F, T].
        visible: bool, broadcastable to the scores; None is all visible.

    Returns:
        [B, H, F, T].
    """
    if visible is None:
        return F.softmax(scores, axis=-1)
    keep = visible.astype(scores.dtype)
    far_below = 6e4 if scores.dtype == paddle.float16 else 1e30
    # The product makes hidden keys exactly 0: Paddle's softmax lets nothing fall below exp(-64).
    return F.softmax(_add(scores, (keep - 1.0) * far_below), axis=-1) * keep


def relative_context(probs: Tensor, value: Tensor, positions: Optional[Tensor]) -> Tensor:
    """Values and their relative rows, weighed by the probabilities: [B, H, F, D]."""
    context = paddle.matmul(probs, value)
    return context if positions is None else _add(context, paddle.matmul(unskew(probs), positions))


# ---- the forms


def native_form(table: Optional[Tensor], want_probs: bool) -> str:
    """The form of plain operations for a call: "dense" or "blocked".

    A traced graph has no Python loop over an open length, learned tables want autograd, and whoever asks for the
    probabilities gets them from the form that makes them.
    """
    learned = table is not None and not table.stop_gradient
    return "dense" if want_probs or learned or not is_eager() else "blocked"


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_table: Optional[Tensor] = None,
    value_table: Optional[Tensor] = None,
    visible: Optional[Tensor] = None,
    dropout: float = 0.0,
    want_probs: bool = False,
    form: Optional[str] = None,
) -> "tuple[Tensor, Optional[Tensor]]":
    """Attention with a relative term on keys and values, any length.

    Args:
        query, key, value: [B, H, L, D], one floating dtype.
        key_table, value_table: [R, D] each; None for both is plain attention. NeZha gives one table twice.
        visible: bool [B, 1 or H, 1 or L, L]; None is all visible.
        dropout: probability with which an attention probability is dropped; what remains weighs values and table alike.
        want_probs: also return the probabilities (before dropout).
        form: "dense" or "blocked" where the call allows it; None is `native_form`'s choice.

    Returns:
        context [B, H, L, D], and the probabilities [B, H, L, L] or None.
    """
    possible = native_form(key_table, want_probs)
    if possible == "blocked" and form != "dense":
        fixed = _Fixed(key_table, value_table, visible, dropout)
        # One input in place of three: Paddle cannot leave one of several out when few parameters are asked for.
        context = _BlockedAttention.apply(paddle.stack([query, key, value]), fixed)
        if not context.stop_gradient:
            context.register_hook(_only_once())
        return context, None
    _, _, length, _ = sizes(query)
    key_positions = None if key_table is None else by_distance(key_table, 0, length, length)
    value_positions = None if value_table is None else by_distance(value_table, 0, length, length)
    probs = masked_softmax(relative_scores(query, key, key_positions), visible)
    kept = F.dropout(probs, dropout) if dropout else probs
    return relative_context(kept, value, value_positions), probs if want_probs else None


def _only_once() -> "Callable[[Tensor], None]":
    """A gradient hook that makes an error of a second backward, in which a PyLayer of Paddle crashes the process."""
    passes: "list[bool]" = []

    def check(grad: Tensor) -> None:
        if passes:
            raise RuntimeError(
                "A second backward through the same forward (retain_graph=True) is not possible in the blocked form of "
                "attention: add the losses up and call backward once, or call the model with output_attentions=True, "
                "whose form allows it."
            )
        passes.append(True)

    return check


@dataclass(frozen=True)
class _Fixed:
    """What a blocked attention reads but has no gradient for (a PyLayer owes one for each tensor handed to it bare)."""

    key_table: Optional[Tensor]
    value_table: Optional[Tensor]
    visible: Optional[Tensor]
    dropout: float


class _BlockedAttention(paddle.autograd.PyLayer):
    """The same arithmetic a block of queries at a time, with a backward of its own."""

    @staticmethod
    def forward(ctx, packed: Tensor, fixed: _Fixed) -> Tensor:
        query, key, value = packed.unbind(0)
        kept, contexts, factors = [], [], []
        small = math.prod(query.shape[:3]) * key.shape[2] <= _KEPT_ELEMENTS
        for block in _blocks(query, key, fixed):
            probs = block.probs()
            if small:
                kept.append(probs)
            if fixed.dropout:
                # One byte each: True where a probability survives.
                factors.append(paddle.rand(probs.shape, "float32") >= fixed.dropout)
                probs = probs * block.dropout_factor(factors[-1])
            contexts.append(relative_context(probs, value, block.value_positions))
        ctx.save_for_backward(packed)
        ctx.fixed, ctx.factors, ctx.kept = fixed, factors, kept
        return _join(contexts)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (packed,) = ctx.saved_tensor()
        query, key, value = packed.unbind(0)
        scale = 1.0 / math.sqrt(query.shape[-1])
        # Row sums as products: Paddle's `sum` adds one number after another, and here the rest is small.
        ones = paddle.ones([key.shape[2], 1], key.dtype)
        grad_queries, grad_key, grad_value = [], paddle.zeros_like(key), paddle.zeros_like(value)
        for index, block in enumerate(_blocks(query, key, ctx.fixed)):
            grad_context = block.rows(grad)
            probs = ctx.kept[index] if ctx.kept else block.probs()
            # Scores again, with the context's gradient as the query and the values as the keys.
            grad_probs = _products(grad_context, value, block.value_positions)
            weights = probs
            if ctx.fixed.dropout:
                factor = block.dropout_factor(ctx.factors[index])
                weights, grad_probs = probs * factor, grad_probs * factor
            grad_value = _accumulate(grad_value, paddle.matmul(weights, grad_context, transpose_x=True))
            grad_scores = grad_probs.subtract_(paddle.matmul(grad_probs * probs, ones)).multiply_(probs)
            grad_queries.append(relative_context(grad_scores, key, block.key_positions))
            grad_key = _accumulate(grad_key, paddle.matmul(grad_scores, block.query, transpose_x=True))
        return paddle.stack([_join(grad_queries) * scale, grad_key * scale, grad_value])


def _accumulate(total: Tensor, term: Tensor) -> Tensor:
    return total.add_(term)


def _join(blocks: "list[Tensor]") -> Tensor:
    return blocks[0] if len(blocks) == 1 else paddle.concat(blocks, 2)


def _blocks(query: Tensor, key: Tensor, fixed: _Fixed) -> "Iterator[_Block]":
    batch, heads, length, _ = query.shape
    rows = max(_SMALLEST_BLOCK, _BLOCK_ELEMENTS // max(1, batch * heads * length))
    for start in range(0, length, rows):
        yield _Block(query, key, fixed, start, min(start + rows, length))


class _Block:
    """The queries `start` .. `end` of an attention, against all its keys."""

    def __init__(self, query: Tensor, key: Tensor, fixed: _Fixed, start: int, end: int):
        self.start, self.end = start, end
        self.query, self.key, self.fixed = self.rows(query), key, fixed
        visible, length = fixed.visible, key.shape[2]
        self.visible = visible if visible is None or visible.shape[2] == 1 else self.rows(visible)
        self.key_positions, self.value_positions = (
            None if table is None else by_distance(table, start, end - start, length)
            for table in (fixed.key_table, fixed.value_table)
        )

    def rows(self, x: Tensor) -> Tensor:
        """This block's part [B, H, F, …] of a tensor over all queries."""
        return x if self.end - self.start == x.shape[2] else x[:, :, self.start : self.end]

    def probs(self) -> Tensor:
        return masked_softmax(relative_scores(self.query, self.key, self.key_positions), self.visible)

    def dropout_factor(self, survives: Tensor) -> Tensor:
        return survives.astype(self.query.dtype) * (1.0 / (1.0 - self.fixed.dropout))
