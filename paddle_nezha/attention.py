"""The attention layer, and the choice of the form that computes it.

* `operator`: the one in C++ (`paddle_nezha.operator`), wherever it can run: eager mode on a processor, float32 or
  float64, masks of keys. Fastest, and its memory grows with L.
* `blocked`, `dense`: plain Paddle operations (`paddle_nezha.native`): on GPUs, in traced graphs, for masks of pairs,
  where probabilities are asked for, and where no compiler is.
"""

from typing import Optional

from paddle_nezha import operator
from paddle_nezha._paddle import Tensor, is_eager, nn, paddle, plain_python, traced_whole
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.forms import FORM_VARIABLE, FORMS, NATIVE, forced_form, using_form, why_no_operators
from paddle_nezha.layers import are_plain, embedding, layer_norm, linear, residual_norm
from paddle_nezha.native import relative_attention, table_like
from paddle_nezha.padding import Sequences

__all__ = ["FORMS", "FORM_VARIABLE", "NeZhaAttention", "attention_form", "using_form", "why_not_operator"]


# ---- the choice


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
    return why_no_operators(like)


@plain_python
def attention_form(like: Tensor, head_size: int, visible: Optional[Tensor], want_probs: bool) -> str:
    """The form of one attention; arguments as in `why_not_operator`. The one place where it is chosen.

    Raises:
        OperatorError: the operator, or a library of it, was asked for by name and is not to be had here.
    """
    forced = forced_form()
    if forced in NATIVE or (forced is None and not is_eager()):
        return forced or "native"
    reason = why_not_operator(like, head_size, visible, want_probs)
    if reason is None:
        return "operator"
    if forced == "operator" and reason == operator.unavailable():
        raise operator.OperatorError(f"The attention operator was asked for, but cannot run: {reason}.")
    return "native"


# ---- query, key and value as one product


def _projected(hidden_states: Tensor, layers: "tuple[nn.Linear, ...]") -> "tuple[Tensor, Optional[Tensor]]":
    """[..., N] to [..., 3N], what query, key and value give side by side, and the biases [3N] still to be added to it.

    Many tokens make one product of the joined weights; few are joined behind three products, which moves less memory.
    The weights are joined at each call: kept, they could not be known to be fresh, for Paddle counts no change that an
    optimizer, `set_value` or `set_state_dict` makes (`inplace_version` stays; measured on 2.6.2 and 3.3.1).
    """
    if not are_plain(layers, hidden_states):  # wrapped, adapted or watched: they do it themselves
        return paddle.concat([layer(hidden_states) for layer in layers], -1), None
    bias = paddle.concat([layer.bias for layer in layers])
    width = hidden_states.shape[-1]
    if not is_eager() or hidden_states.size > width * width:
        return paddle.matmul(hidden_states, paddle.concat([layer.weight for layer in layers], 1)), bias
    return paddle.concat([paddle.matmul(hidden_states, layer.weight) for layer in layers], -1), bias


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
        self.joined: Optional[nn.Linear] = None  # made by `join_projections`
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
        return residual_norm(context, self.dense, self.output_dropout, hidden_states, self.layer_norm), probs

    def join_projections(self) -> None:
        """Joins query, key and value for good, for a model that is only to be exported with the operator.

        Paddle Inference 2.6.2 crashes at a graph that joins weights: its `seqpool_cvm_concat_fuse_pass` asks what made
        them. (3.3.1 joins them when it opens the graph, at no cost for a run.) Layers that are not plain stay as they
        are: of those it is the results that are joined.
        """
        layers = (self.query, self.key, self.value)
        if are_plain(layers, self.layer_norm.weight):
            weight = paddle.concat([layer.weight for layer in layers], 1)
            bias = paddle.concat([layer.bias for layer in layers])
            self.joined = nn.Linear(*weight.shape)
            self.joined.to(dtype=weight.dtype)
            self.joined.weight.set_value(weight)
            self.joined.bias.set_value(bias)

    @property
    def _dropout(self) -> float:
        return self.config.attention_probs_dropout_prob if self.training else 0.0

    def _by_operator(self, hidden_states: Tensor, visible: Optional[Tensor], sequences: Optional[Sequences]) -> Tensor:
        """Context [..., N]."""
        if self.joined is None:
            qkv, bias = _projected(hidden_states, (self.query, self.key, self.value))
        else:
            # With its bias: oneDNN then prepares the weight once, a bare product's at each run.
            qkv, bias = self.joined(hidden_states), None
        encoding, tables = self.config.position_encoding, None
        if encoding == "parametric_relative":
            tables = paddle.stack([self.relative_key.weight, self.relative_value.weight]).astype(qkv.dtype)
        return operator.packed_attention(
            qkv,
            None if visible is None else visible.squeeze([1, 2]),
            None if sequences is None else sequences.starts,
            heads=self.config.num_attention_heads,
            bias=bias,
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
