"""The attention layer, and the choice of the form that computes it.

* `operator`: the one in C++ (`paddle_nezha.operator`), wherever it can run: eager mode on a processor, float32 or
  float64, masks of keys. Fastest, and its memory grows with L.
* `blocked`, `dense`: plain Paddle operations (`paddle_nezha.native`): on GPUs, in traced graphs, for masks of pairs,
  where probabilities are asked for, and where no compiler is.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Optional

from paddle_nezha import operator
from paddle_nezha._paddle import F, Tensor, is_eager, nn, paddle, plain_python, traced_whole
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.layers import embedding, layer_norm, linear
from paddle_nezha.native import relative_attention, table_like
from paddle_nezha.padding import Sequences

FORMS = ("operator", "blocked", "dense")
FORM_VARIABLE = "PADDLE_NEZHA_ATTENTION"
_CHOICES = (*FORMS, "native")
_forced: "ContextVar[Optional[str]]" = ContextVar("forced", default=None)


# ---- the choice


@contextmanager
def using_form(form: Optional[str]) -> "Iterator[None]":
    """Within the block attention is computed in this form, whatever would be chosen.

    Args:
        form: "operator" (in traced graphs too; an error where it cannot run), "blocked", "dense", or "native" for
            either of these two. A call that a native form cannot serve takes the other. None leaves the choice free.

    Raises:
        ValueError: another name.
    """
    token = _forced.set(None if form is None else _known(form, "form"))
    try:
        yield
    finally:
        _forced.reset(token)


def _known(form: str, what: str) -> str:
    if form not in _CHOICES:
        raise ValueError(
            f"{what} must be one of {', '.join(_CHOICES)}, but is {form!r}: leave it out to let it be chosen."
        )
    return form


@plain_python
def forced_form() -> Optional[str]:
    """The form that `using_form` or PADDLE_NEZHA_ATTENTION asks for, or None."""
    form, named = _forced.get(), os.environ.get(FORM_VARIABLE, "")
    return form or (_known(named, FORM_VARIABLE) if named else None)


@plain_python
def why_not_operator(like: Tensor, head_size: int, visible: Optional[Tensor], want_probs: bool) -> Optional[str]:
    """What keeps the operator from computing an attention, or None if it can.

    Args:
        like: a tensor of the dtype and place that it computes in.
        visible: as in `NeZhaAttention.forward`.
    """
    if want_probs:
        return "output_attentions asks for probabilities, which it never makes whole"
    if visible is not None and not (visible.shape[1] == 1 and visible.shape[2] == 1):
        return "the mask is one of pairs of positions, not of keys"
    if not operator.fits(like.dtype, head_size):
        return f"it computes in float32 and float64 with heads of at most 256, not {like.dtype} with {head_size}"
    if is_eager() and not like.place.is_cpu_place():
        return f"it runs on processors, and the model is on {like.place}"
    return operator.unavailable()


@plain_python
def attention_form(like: Tensor, head_size: int, visible: Optional[Tensor], want_probs: bool) -> str:
    """The form of one attention; arguments as in `why_not_operator`. The one place where it is chosen.

    Raises:
        OperatorError: the operator was asked for by name, and is not to be had here.
    """
    forced = forced_form()
    if forced in ("native", "dense", "blocked") or (forced is None and not is_eager()):
        return forced or "native"
    reason = why_not_operator(like, head_size, visible, want_probs)
    if reason is None:
        return "operator"
    if forced == "operator" and reason == operator.unavailable():
        raise operator.OperatorError(f"The attention operator was asked for, but cannot run: {reason}.")
    return "native"


# ---- query, key and value as one product


def _projected(hidden_states: Tensor, layers: "tuple[nn.Linear, ...]") -> Tensor:
    """[..., N] to [..., 3N]: what query, key and value give, side by side.

    The weights are joined at each call. Kept, they could not be known to be fresh: Paddle counts no change that an
    optimizer, `set_value` or `set_state_dict` makes (`inplace_version` stays, measured on 2.6.2 and 3.3.1).
    """
    if not all(_is_plain(layer) for layer in layers):  # wrapped, adapted or observed: let them do it themselves
        return paddle.concat([layer(hidden_states) for layer in layers], -1)
    return F.linear(hidden_states, *_join(layers))


def _join(layers: "tuple[nn.Linear, ...]") -> "tuple[Tensor, Tensor]":
    return paddle.concat([layer.weight for layer in layers], 1), paddle.concat([layer.bias for layer in layers])


def _is_plain(layer: nn.Layer) -> bool:
    return type(layer) is nn.Linear and not (
        layer._forward_pre_hooks or layer._forward_post_hooks or layer.bias is None
    )


# ---- the layer


@traced_whole
class NeZhaAttention(nn.Layer):
    """Self-attention with relative positions, its output projection, residual sum and LayerNorm.

    Functional positions share the sinusoid table between keys and values; parametric ones learn a table for each
    (`relative_key`, `relative_value`, [2m + 1, D], shared by the heads); absolute ones have no relative term.
    """

    def __init__(self, config: NeZhaConfig):
        super().__init__()
        config.validate()
        self.config = config
        self.query, self.key, self.value, self.dense = (
            linear(config, config.hidden_size, config.hidden_size) for _ in range(4)
        )
        if config.position_encoding == "parametric_relative":
            rows = 2 * config.max_relative_position + 1
            self.relative_key = embedding(config, rows, config.head_size)
            self.relative_value = embedding(config, rows, config.head_size)
        self.layer_norm = layer_norm(config)
        self.output_dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: Tensor,
        visible: Optional[Tensor] = None,
        output_attentions: bool = False,
        sequences: Optional[Sequences] = None,
    ) -> "tuple[Tensor, Optional[Tensor]]":
        """
        Args:
            hidden_states: [B, L, N], or [tokens, N] of sequences without their padding.
            visible: bool [B, 1 or H, 1 or L, L], True where a query (third axis) may see a key (fourth); None is all.
            output_attentions: also return the probabilities.
            sequences: where the tokens belong, with [tokens, N] alone; every one of them is visible then.

        Returns:
            [B, L, N] or [tokens, N] after the LayerNorm, and the probabilities [B, H, L, L] or None.
        """
        form = attention_form(hidden_states, self.config.head_size, visible, output_attentions)
        if form == "operator":
            context, probs = self._by_operator(hidden_states, visible, sequences), None
        else:
            context, probs = self._natively(hidden_states, visible, output_attentions, sequences, form)
        return self.layer_norm(hidden_states + self.output_dropout(self.dense(context))), probs

    @property
    def _dropout(self) -> float:
        return self.config.attention_probs_dropout_prob if self.training else 0.0

    def _by_operator(self, hidden_states: Tensor, visible: Optional[Tensor], sequences: Optional[Sequences]) -> Tensor:
        """Context [..., N]."""
        qkv = _projected(hidden_states, (self.query, self.key, self.value))
        encoding, tables = self.config.position_encoding, None
        if encoding == "parametric_relative":
            tables = paddle.stack([self.relative_key.weight, self.relative_value.weight]).astype(qkv.dtype)
        return operator.packed_attention(
            qkv,
            None if visible is None else visible.squeeze([1, 2]),
            None if sequences is None else sequences.starts,
            heads=self.config.num_attention_heads,
            max_relative_position=0 if encoding == "absolute" else self.config.max_relative_position,
            tables=tables,
            dropout=self._dropout,
        )

    def _natively(
        self,
        hidden_states: Tensor,
        visible: Optional[Tensor],
        want_probs: bool,
        sequences: Optional[Sequences],
        form: str,
    ) -> "tuple[Tensor, Optional[Tensor]]":
        """Context [..., N] and, if asked for, probabilities."""
        projected = [project(hidden_states) for project in (self.query, self.key, self.value)]
        if sequences is not None:
            projected, visible = [sequences.padded(x) for x in projected], sequences.visible
        query, key, value = map(self._heads, projected)
        context, probs = relative_attention(
            query,
            key,
            value,
            *self._tables(query),
            visible=visible,
            dropout=self._dropout,
            want_probs=want_probs,
            form=form,
        )
        context = context.transpose([0, 2, 1, 3]).reshape([0, 0, self.config.hidden_size])
        return context if sequences is None else sequences.packed(context), probs

    def _heads(self, x: Tensor) -> Tensor:
        """[B, L, N] to [B, H, L, D]."""
        return x.reshape([0, 0, self.config.num_attention_heads, self.config.head_size]).transpose([0, 2, 1, 3])

    def _tables(self, like: Tensor) -> "tuple[Optional[Tensor], Optional[Tensor]]":
        """The tables of keys and values, [R, D] each."""
        encoding = self.config.position_encoding
        if encoding == "functional_relative":
            table = table_like(like, self.config)
            return table, table
        if encoding == "parametric_relative":
            return self.relative_key.weight.astype(like.dtype), self.relative_value.weight.astype(like.dtype)
        return None, None
