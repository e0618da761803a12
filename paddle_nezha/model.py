"""NeZha (arXiv 1909.00204): embeddings, encoder and pooler.

Axes: B batch, L sequence (F query, T key), H heads, D head size, N = H * D hidden, R = 2m + 1 relative rows, V
    vocabulary.

    e = LayerNorm(word[ids] + segment[types])                      no position embedding
    x = LayerNorm(x + dense(attention(x)))                         the positions act here, in every layer
    x = LayerNorm(x + ffn_output(act(ffn(x))))
    pooled = tanh(dense(x[:, 0]))

Parameters bear PaddleNLP's names, since the official files carry them.
"""

from numbers import Integral
from typing import Any, Optional, Union, cast

from paddle_nezha._paddle import Tensor, is_eager, known_sizes, nn, paddle, place_name, sizes, values_can_be_read
from paddle_nezha.attention import NeZhaAttention
from paddle_nezha.config import (
    CONFIG_NAME,
    NEZHA_PRETRAINED_INIT_CONFIGURATION,
    NEZHA_PRETRAINED_RESOURCE_FILES_MAP,
    NeZhaConfig,
)
from paddle_nezha.inputs import (
    check_embeddings,
    check_ids,
    check_precision,
    check_shape,
    refuse_unknown,
    visible_keys,
    warn_caller,
)
from paddle_nezha.layers import ACTIVATION_FUNCTIONS, activated, embedding, layer_norm, linear, residual_norm
from paddle_nezha.outputs import BaseModelOutputWithPoolingAndCrossAttentions, ModelOutput
from paddle_nezha.padding import Sequences, without_padding
from paddle_nezha.pretrained import PretrainedLayer


class NeZhaEmbeddings(nn.Layer):
    """LayerNorm(word + segment), plus a learned position under absolute positions alone."""

    def __init__(self, config: NeZhaConfig):
        super().__init__()
        self.word_embeddings = embedding(config, config.vocab_size, config.hidden_size)
        self.token_type_embeddings = embedding(config, config.type_vocab_size, config.hidden_size)
        self.position_embeddings = None
        if not config.use_relative_position:
            self.position_embeddings = embedding(config, config.max_position_embeddings, config.hidden_size)
        self.layer_norm = layer_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, words: Tensor, token_type_ids: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """
        Args:
            words: word embeddings [B, L, N], or [tokens, N] without padding.
            token_type_ids: [B, L] or [tokens]; None is segment 0 everywhere.
            positions: int64 [L] or [tokens], read under absolute positions alone; None is 0 .. L - 1.

        Returns:
            As `words`.
        """
        segments = (
            self.token_type_embeddings.weight[0]
            if token_type_ids is None
            else self.token_type_embeddings(token_type_ids)
        )
        total = words + segments
        if self.position_embeddings is not None:
            if positions is None:
                positions = paddle.arange(sizes(words)[1], dtype="int64")
            total = total + self.position_embeddings(positions)
        return self.dropout(self.layer_norm(total))


class NeZhaLayer(nn.Layer):
    """Attention and feed-forward, each with a residual sum and a LayerNorm behind it."""

    def __init__(self, config: NeZhaConfig):
        super().__init__()
        self.attention = NeZhaAttention(config)
        self.ffn = linear(config, config.hidden_size, config.intermediate_size)
        self.ffn_output = linear(config, config.intermediate_size, config.hidden_size)
        self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        self.layer_norm = layer_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: Tensor,
        visible: Optional[Tensor] = None,
        output_attentions: bool = False,
        sequences: Optional[Sequences] = None,
    ) -> "tuple[Tensor, Optional[Tensor]]":
        """As `NeZhaAttention.forward`."""
        attended, probs = self.attention(hidden_states, visible, output_attentions, sequences)
        inner = activated(attended, self.ffn, self.activation)
        return residual_norm(inner, self.ffn_output, self.dropout, attended, self.layer_norm), probs


class NeZhaEncoder(nn.Layer):
    """The stack of layers. With `enable_recompute`, training keeps each layer's input alone and runs it again."""

    def __init__(self, config: NeZhaConfig):
        super().__init__()
        self.layer = nn.LayerList([NeZhaLayer(config) for _ in range(config.num_hidden_layers)])
        self.enable_recompute = False

    def forward(
        self,
        hidden_states: Tensor,
        visible: Optional[Tensor] = None,
        output_attentions: bool = False,
        sequences: Optional[Sequences] = None,
    ) -> "tuple[list[Tensor], list[Tensor]]":
        """Arguments as in `NeZhaAttention.forward`.

        Returns:
            The hidden states [B, L, N] or [tokens, N] before the first and after each layer, and each layer's
            probabilities [B, H, L, L] (empty unless asked for).
        """
        states, attentions = [hidden_states], []
        for layer in self.layer:
            if self.enable_recompute and self.training and is_eager():
                hidden_states, probs = _recomputed(layer, hidden_states, visible, output_attentions, sequences)
            else:
                hidden_states, probs = layer(hidden_states, visible, output_attentions, sequences)
            states.append(hidden_states)
            if output_attentions:
                attentions.append(probs)
        return states, attentions


def _recomputed(
    layer: NeZhaLayer,
    hidden_states: Tensor,
    visible: Optional[Tensor],
    output_attentions: bool,
    sequences: Optional[Sequences],
) -> "tuple[Tensor, Optional[Tensor]]":
    """The layer's answer; Paddle's recompute returns tensors alone, so no probabilities means one tensor."""

    def run(states: Tensor) -> Any:
        answer = layer(states, visible, output_attentions, sequences)
        return answer if output_attentions else answer[0]

    if hidden_states.stop_gradient:  # frozen embeddings: recompute would then leave the layer without gradients
        hidden_states = hidden_states.detach()
        hidden_states.stop_gradient = False
    answer = paddle.distributed.fleet.utils.recompute(run, hidden_states)
    return answer if output_attentions else (answer, None)


class NeZhaPooler(nn.Layer):
    """tanh(dense(first token)): [B, L, N] to [B, N]."""

    def __init__(self, config: NeZhaConfig):
        super().__init__()
        self.dense = linear(config, config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return paddle.tanh(self.dense(hidden_states[:, 0]))


class NeZhaPretrainedModel(PretrainedLayer):
    """What the base model and every head share: files, embeddings, and the names PaddleNLP scripts read."""

    base_model_prefix = "nezha"
    config_class = NeZhaConfig
    model_config_file = CONFIG_NAME
    resource_files_names = {"model_state": "model_state.pdparams"}
    pretrained_init_configuration = NEZHA_PRETRAINED_INIT_CONFIGURATION
    pretrained_resource_files_map = NEZHA_PRETRAINED_RESOURCE_FILES_MAP

    def __init__(self, config: NeZhaConfig):
        super().__init__()
        if not isinstance(config, NeZhaConfig):
            raise TypeError(
                f"{type(self).__name__} is built from a NeZhaConfig, but got {type(config).__name__}: "
                f"{type(self).__name__}(NeZhaConfig(...)), or {type(self).__name__}.from_pretrained(folder)."
            )
        config.validate()
        self.config = config

    @property
    def base_model(self) -> "NeZhaModel":
        """The NeZhaModel inside a head, or the model itself."""
        return cast(NeZhaModel, getattr(self, self.base_model_prefix, self))

    def get_input_embeddings(self) -> nn.Embedding:
        return self.base_model.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replaces the word table. A masked-LM decoder stays tied to it, its bias cut or filled up with zeros.

        Raises:
            TypeError: no embedding layer.
            ValueError: the new table is not N wide.
        """
        if not isinstance(value, nn.Embedding):
            raise TypeError(
                f"The word table must be a paddle.nn.Embedding, but got {type(value).__name__}: "
                "paddle.nn.Embedding(rows, width) holds one, and its weight can be set."
            )
        rows, width = value.weight.shape
        if width != self.config.hidden_size:
            raise ValueError(
                f"The word table must be {self.config.hidden_size} wide (hidden_size), but got {width} columns: make "
                f"it paddle.nn.Embedding({rows}, {self.config.hidden_size})."
            )
        self.base_model.embeddings.word_embeddings = value
        self.config.vocab_size = rows
        self._tie_decoder()

    def resize_token_embeddings(self, new_num_tokens: Optional[int] = None) -> nn.Embedding:
        """Grows or shrinks the vocabulary. Old rows keep their values; new ones are drawn as at initialisation, and a
        masked-LM head follows with its tied decoder and, zeros for new tokens, its bias.

        Args:
            new_num_tokens: the new V; None changes nothing.

        Returns:
            The word embedding.

        Raises:
            TypeError: no integer.
            ValueError: fewer tokens than `pad_token_id` needs.
        """
        if new_num_tokens is not None and (
            isinstance(new_num_tokens, bool) or not isinstance(new_num_tokens, Integral)
        ):
            raise TypeError(f"new_num_tokens must be an integer, such as len(tokenizer), but got {new_num_tokens!r}.")
        old = self.get_input_embeddings()
        rows = old.weight.shape[0]  # not the config's number: another model built from it may have been resized
        if new_num_tokens is None or new_num_tokens == rows:
            return old
        if new_num_tokens <= self.config.pad_token_id:
            raise ValueError(
                f"The vocabulary must keep pad_token_id ({self.config.pad_token_id}), but got "
                f"new_num_tokens={new_num_tokens}: give len(tokenizer)."
            )
        new = embedding(self.config, new_num_tokens, self.config.hidden_size)
        new.to(device=place_name(old.weight), dtype=old.weight.dtype)
        kept = min(new_num_tokens, rows)
        with paddle.no_grad():
            new.weight.set_value(paddle.concat([old.weight[:kept], new.weight[kept:]]))
        new.weight.stop_gradient = old.weight.stop_gradient
        self.set_input_embeddings(new)
        return new

    def _tie_decoder(self) -> None:
        """Heads with a decoder over the vocabulary override this."""


class NeZhaModel(NeZhaPretrainedModel):
    """The bare encoder with its pooler."""

    def __init__(self, config: NeZhaConfig):
        super().__init__(config)
        self.embeddings = NeZhaEmbeddings(config)
        self.encoder = NeZhaEncoder(config)
        self.pooler = NeZhaPooler(config)

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        **unsupported: Any,
    ) -> "Union[tuple[Any, ...], BaseModelOutputWithPoolingAndCrossAttentions]":
        """
        Args:
            input_ids: int32 or int64 [B, L]; or give `inputs_embeds`, word embeddings [B, L, N], instead.
            token_type_ids: segments, int32 or int64 [B, L]; None is zeros.
            attention_mask: 1 attends, 0 does not; [B, L], [B, L, L] or [B, 1 or H, L, L]; bool or integer, or floats
                0 and 1. None shows every position, pads included: nothing is inferred from the ids.
            output_hidden_states: also return layers + 1 hidden states [B, L, N].
            output_attentions: also return each layer's probabilities [B, H, L, L].
            return_dict: a `BaseModelOutputWithPoolingAndCrossAttentions` in place of a tuple.
            unpad: True removes the padding before the embeddings and puts it back, as zeros, behind the last layer,
                which saves about its share of the time. What is returned of padding is 0 then, hidden states and the
                attentions of its queries too; the pooled output, made of position 0, is of no use in a row that begins
                with padding. It takes a mask [B, L] in which the visible tokens of each row lie side by side, and no
                traced graph. None and False leave the padding in: its values are returned, so it would show.

        Returns:
            (sequence_output [B, L, N], pooled_output [B, N][, hidden_states][, attentions]).

        Raises:
            TypeError, ValueError: inputs of another type, shape or range; both or neither of `input_ids` and
                `inputs_embeds`; an input longer than `max_position_embeddings` under absolute positions; a mask whose
                padding `unpad=True` cannot remove.
            NotImplementedError: a cache or cross-attention argument.
        """
        if unsupported:
            refuse_unknown(unsupported, _ARGUMENTS)
        config = self.config
        words = self._words(input_ids, inputs_embeds)
        batch, length, _ = known_sizes(words)
        if not config.use_relative_position and length > config.max_position_embeddings:
            raise ValueError(
                f"Absolute positions end at max_position_embeddings = {config.max_position_embeddings}, but the input "
                f"is {length} long: truncate it. Only relative positions read any length."
            )
        if token_type_ids is not None:
            check_ids("token_type_ids", token_type_ids, config.type_vocab_size, "type_vocab_size")
            check_shape("token_type_ids", token_type_ids, batch, length)
        visible = None
        if attention_mask is not None:
            visible = visible_keys(attention_mask, batch, length, config.num_attention_heads)
        elif input_ids is not None:
            self._warn_of_visible_pads(input_ids)
        sequences = without_padding(visible) if unpad else None

        want_attentions = config.output_attentions if output_attentions is None else output_attentions
        want_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if sequences is None:
            states, attentions = self.encoder(self.embeddings(words, token_type_ids), visible, want_attentions)
        else:
            states, attentions = self._without_padding(words, token_type_ids, want_states, want_attentions, sequences)
        output = BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=states[-1],
            pooler_output=self.pooler(states[-1]),
            hidden_states=tuple(states) if want_states else None,
            attentions=tuple(attentions) if want_attentions else None,
        )
        return respond(output, config.return_dict if return_dict is None else return_dict)

    def _without_padding(
        self,
        words: Tensor,
        token_type_ids: Optional[Tensor],
        want_states: bool,
        want_attentions: bool,
        sequences: Sequences,
    ) -> "tuple[list[Tensor], list[Tensor]]":
        """What the encoder gives, of tokens alone; with zeros for the padding."""
        segments = None if token_type_ids is None else sequences.packed(token_type_ids)
        embedded = self.embeddings(sequences.packed(words), segments, sequences.columns)
        states, attentions = self.encoder(embedded, None, want_attentions, sequences)
        real = sequences.visible.transpose([0, 1, 3, 2])
        return (
            [sequences.padded(state) for state in (states if want_states else states[-1:])],
            [probs * real.astype(probs.dtype) for probs in attentions],
        )

    def _words(self, input_ids: Optional[Tensor], inputs_embeds: Optional[Tensor]) -> Tensor:
        """Word embeddings [B, L, N]."""
        if (input_ids is None) == (inputs_embeds is None):
            got = "neither" if input_ids is None else "both"
            raise ValueError(f"Give either input_ids or inputs_embeds, but got {got}.")
        if inputs_embeds is not None:
            check_embeddings(inputs_embeds, self.embeddings.word_embeddings.weight)
            words = inputs_embeds
        else:
            table = self.embeddings.word_embeddings
            check_ids("input_ids", input_ids, table.weight.shape[0], "vocab_size")
            words = table(input_ids)
        check_precision(words)
        return words

    def _warn_of_visible_pads(self, input_ids: Tensor) -> None:
        if values_can_be_read(input_ids) and bool((input_ids == self.config.pad_token_id).any()):
            warn_caller(
                f"input_ids hold pad_token_id ({self.config.pad_token_id}) but no attention_mask came with them: the "
                "pads are read as text. Tokenize with return_attention_mask=True and pass the mask.",
            )


_ARGUMENTS = (
    "input_ids",
    "token_type_ids",
    "attention_mask",
    "inputs_embeds",
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "unpad",
)


def respond(output: ModelOutput, return_dict: bool) -> Any:
    """PaddleNLP's convention: the mapping if asked for, else a tuple, or the Tensor itself where there is but one."""
    if return_dict:
        return output
    items = output.to_tuple()
    return items[0] if len(items) == 1 else items
