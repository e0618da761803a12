"""The seven task heads. They differ in what they read (the sequence or the pooled first token), in how wide they are,
and in their loss; everything else is said once, here.

Every loss is the sum over labelled positions divided by their number: 0 when nothing is labelled. Labels of -100 and
-1 mark positions without one.

Every forward ends in two options, given by name:

    unpad: None computes without the padding wherever no output can tell: in eager mode on a CPU, where at least a
        sixteenth of a mask [B, L] is padding, where neither hidden states nor attentions are asked for, and where
        nothing is read that is padding. So do heads of the pooled output, and with `loss_only` those with a label a
        token. (A question's loss reads every position.) True computes without it wherever `NeZhaModel.forward` can; of
        padding 0 is read then, and a head whose pooled output or labels read padding is refused (ValueError). False
        never does. Dropout draws other numbers for other sizes.
    loss_only: True returns the loss alone, a Tensor (with `return_dict` the named output with nothing else in it), and
        of tokens computes the labelled ones alone: their logits are the largest tensors there are. It is refused
        without labels, or with a request for hidden states or attentions (ValueError).
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, Optional

from paddle_nezha._paddle import F, Tensor, is_eager_throughout, nn, paddle, plain_python, sizes
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.inputs import (
    IGNORED_LABELS,
    check_choices,
    check_class_labels,
    check_loss_only,
    check_numbers,
    check_positions,
    check_targets,
    check_tensor,
    refuse_unknown,
    warn_caller,
)
from paddle_nezha.layers import ACTIVATION_FUNCTIONS, layer_norm, linear
from paddle_nezha.model import NeZhaModel, NeZhaPretrainedModel, respond
from paddle_nezha.outputs import (
    BaseModelOutputWithPoolingAndCrossAttentions,
    MaskedLMOutput,
    ModelOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    NeZhaForPreTrainingOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from paddle_nezha.padding import check_padding_is_not_read, padding_goes_by_itself

# ---- losses


def _wide(logits: Tensor) -> Tensor:
    """Half-precision logits as float32: a loss sums thousands of exponentials."""
    return logits.astype("float32") if logits.dtype in (paddle.float16, paddle.bfloat16) else logits


def is_labelled(labels: Tensor) -> Tensor:
    """True for every label that is not -100 or -1."""
    return (labels != IGNORED_LABELS[0]) & (labels != IGNORED_LABELS[1])


def cross_entropies(logits: Tensor, labels: Tensor, labelled: Tensor) -> Tensor:
    """``logsumexp(logits) - logits[label]`` at labelled positions, 0 elsewhere: [...].

    Written out, because Paddle 3.3.1's `F.cross_entropy` divides by all positions when some are ignored, and both
    Paddles let no probability fall below exp(-64) on a CPU.

    Args:
        logits: [..., K]. labels: int64 [...]. labelled: bool [...].
    """
    logits = _wide(logits)
    safe = labels * labelled.astype(labels.dtype)
    chosen = paddle.take_along_axis(logits, safe.unsqueeze(-1), -1).squeeze(-1)
    return (_log_sum_exp(logits) - chosen) * labelled.astype(logits.dtype)


def _log_sum_exp(logits: Tensor) -> Tensor:
    """Of the last axis: [..., K] to [...].

    Paddle's own adds one term after another on a CPU: over 21,128 words its float32 error was 20 times PyTorch's, and
    so was that of every gradient of the loss. In two stages no term meets more than 2 sqrt(K) additions.
    """
    size = logits.shape[-1]
    if size < 256:  # so few, or not known in a traced graph
        return paddle.logsumexp(logits, -1)
    greatest = logits.max(-1, keepdim=True).detach()
    terms = paddle.exp(logits - greatest)
    width = math.isqrt(size - 1) + 1
    if width * width > size:
        terms = paddle.concat([terms, paddle.zeros_like(terms[..., : width * width - size])], -1)
    stages = terms.reshape([*sizes(terms)[:-1], width, width])
    return paddle.log(stages.sum(-1).sum(-1)) + greatest.squeeze(-1)


def cross_entropy(logits: Tensor, labels: Tensor, labelled: Optional[Tensor] = None) -> Tensor:
    """Mean over labelled positions of the cross-entropy.

    Args:
        logits: [..., K]. labels: int64 [...].
        labelled: bool [...]; None is every label that is not -100 or -1.

    Returns:
        A scalar; 0 when nothing is labelled.
    """
    if labelled is None:
        labelled = is_labelled(labels)
    total = cross_entropies(logits, labels, labelled).sum()
    return total / paddle.clip(labelled.astype(total.dtype).sum(), min=1.0)


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over all labels of the cross-entropy of sigmoid(logits) with labels in 0 .. 1."""
    logits = _wide(logits)
    labels = labels.astype(logits.dtype)
    return (F.relu(logits) - logits * labels + paddle.log1p(paddle.exp(-paddle.abs(logits)))).mean()


def mean_squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    logits = _wide(logits)
    return ((logits - labels.astype(logits.dtype)) ** 2).mean()


# ---- the masked-LM and next-sentence parts


class NeZhaLMPredictionHead(nn.Layer):
    """LayerNorm(act(dense x)) word^T + bias; the decoder is the word table itself."""

    def __init__(self, config: NeZhaConfig, embedding_weights: Tensor):
        super().__init__()
        self.dense = linear(config, config.hidden_size, config.hidden_size)
        self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        self.layer_norm = layer_norm(config)
        self.tie(embedding_weights)

    def tie(self, embedding_weights: Tensor) -> None:
        """Decodes with this word table [V, N] from now on; the bias [V] keeps its values, new ones are 0."""
        rows, old = embedding_weights.shape[0], getattr(self, "decoder_bias", None)
        self.decoder_weight = embedding_weights
        if old is not None and old.shape[0] == rows:
            return
        bias = self.create_parameter([rows], dtype=embedding_weights.dtype, is_bias=True)
        if old is not None:
            kept = min(rows, old.shape[0])
            with paddle.no_grad():
                bias.set_value(paddle.concat([old[:kept], bias[kept:]]))
            bias.stop_gradient = old.stop_gradient
        self.decoder_bias = bias

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[B, L, N] to logits [B, L, V]."""
        transformed = self.layer_norm(self.activation(self.dense(hidden_states)))
        return paddle.matmul(transformed, self.decoder_weight, transpose_y=True) + self.decoder_bias


class NeZhaPretrainingHeads(nn.Layer):
    """The masked-LM head over the sequence and the next-sentence head over the pooled token, or one of the two."""

    def __init__(
        self,
        config: NeZhaConfig,
        embedding_weights: Optional[Tensor] = None,
        masked_lm: bool = True,
        next_sentence: bool = True,
    ):
        super().__init__()
        if masked_lm:
            self.predictions = NeZhaLMPredictionHead(config, embedding_weights)
        if next_sentence:
            self.seq_relationship = linear(config, config.hidden_size, 2)

    def forward(self, sequence_output: Tensor, pooled_output: Tensor) -> "tuple[Tensor, Tensor]":
        """Logits [B, L, V] of the masked LM, and [B, 2] of the next sentence."""
        return self.predictions(sequence_output), self.seq_relationship(pooled_output)


# ---- the heads


class _Head(NeZhaPretrainedModel):
    """A base model, what reads it, and an answer in the form the caller asked for."""

    # What a head reads: the pooled output, and of tokens those that this argument labels, if only their loss is asked
    # for. One with neither reads every token for its loss too.
    reads_pooled = False
    token_labels: Optional[str] = None

    def __init__(self, config: NeZhaConfig):
        super().__init__(config)
        self.nezha = NeZhaModel(config)

    def _encode(
        self,
        inputs: "tuple[Optional[Tensor], ...]",
        labels: "dict[str, Optional[Tensor]]",
        output_hidden_states: Optional[bool],
        output_attentions: Optional[bool],
        unpad: Optional[bool],
        loss_only: bool,
        unsupported: "dict[str, Any]",
    ) -> BaseModelOutputWithPoolingAndCrossAttentions:
        """The base model's answer to ids, segments, mask and embeddings."""
        if unsupported:
            refuse_unknown(unsupported, tuple(inspect.signature(type(self).forward).parameters)[1:-1])
        if loss_only:
            check_loss_only(labels, output_hidden_states=output_hidden_states, output_attentions=output_attentions)
            output_hidden_states = output_attentions = False
        self._warn_of_eval_mode(labels)
        shown = (
            self.config.output_hidden_states if output_hidden_states is None else output_hidden_states,
            self.config.output_attentions if output_attentions is None else output_attentions,
        )
        read = None if self.token_labels is None else labels[self.token_labels]
        if unpad:
            check_padding_is_not_read(inputs[2], self.reads_pooled, read)
        elif unpad is None and not any(shown) and (self.reads_pooled if self.token_labels is None else loss_only):
            unpad = padding_goes_by_itself(inputs[2], self.reads_pooled, read)
        return self.nezha(*inputs, *shown, return_dict=True, unpad=unpad)

    def _answer(
        self,
        kind: "type[ModelOutput]",
        encoded: Any,
        return_dict: Optional[bool],
        loss: Optional[Tensor],
        loss_only: bool,
        **logits: Optional[Tensor],
    ) -> Any:
        if loss_only:
            output = kind(loss=loss)
        else:
            output = kind(loss=loss, **logits, hidden_states=encoded.hidden_states, attentions=encoded.attentions)
        return respond(output, self.config.return_dict if return_dict is None else return_dict)

    def _warn_of_eval_mode(self, labels: "dict[str, Optional[Tensor]]") -> None:
        labelled = any(item is not None for item in labels.values())
        if labelled and not self.training and paddle.in_dynamic_mode() and paddle.is_grad_enabled():
            warn_caller(
                f"{type(self).__name__} computes a loss with gradients while in eval mode, so without dropout "
                "(from_pretrained returns models so): call model.train() to train, or use paddle.no_grad() to test.",
            )


class NeZhaForPretraining(_Head):
    """Masked LM and next sentence together, as in pre-training."""

    reads_pooled, token_labels = True, "masked_lm_labels"

    def __init__(self, config: NeZhaConfig):
        super().__init__(config)
        self.cls = NeZhaPretrainingHeads(config, self.get_input_embeddings().weight)

    def _tie_decoder(self) -> None:
        self.cls.predictions.tie(self.get_input_embeddings().weight)

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        masked_lm_labels: Optional[Tensor] = None,
        next_sentence_label: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        loss_only: bool = False,
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, `unpad` and `loss_only` as this module says.

        Args:
            masked_lm_labels: int32 or int64 [B, L], the token at each masked position, -100 or -1 elsewhere.
            next_sentence_label: [B]; 0 follows, 1 is a random sentence.

        Returns:
            ([loss,] prediction_logits [B, L, V], seq_relationship_logits [B, 2], …) or `NeZhaForPreTrainingOutput`.
            With both labels the loss is the sum of both losses, with one it is that one's.
        """
        encoded = self._encode(
            (input_ids, token_type_ids, attention_mask, inputs_embeds),
            {"masked_lm_labels": masked_lm_labels, "next_sentence_label": next_sentence_label},
            output_hidden_states,
            output_attentions,
            unpad,
            loss_only,
            unsupported,
        )
        hidden, pooled = encoded.last_hidden_state, encoded.pooler_output
        words = relation = None
        if not loss_only:
            words, relation = self.cls(hidden, pooled)
        elif next_sentence_label is not None:
            relation = self.cls.seq_relationship(pooled)
        predictions, rows = self.cls.predictions, self.cls.predictions.decoder_bias.shape[0]
        loss = _token_loss("masked_lm_labels", masked_lm_labels, words, hidden, predictions, rows)
        order_loss = _class_loss("next_sentence_label", relation, next_sentence_label)
        if loss is None or order_loss is None:
            loss = order_loss if loss is None else loss
        else:
            loss = loss + order_loss
        return self._answer(
            NeZhaForPreTrainingOutput,
            encoded,
            return_dict,
            loss,
            loss_only,
            prediction_logits=words,
            seq_relationship_logits=relation,
        )


class NeZhaForMaskedLM(_Head):
    """Fills in masked tokens."""

    token_labels = "labels"

    def __init__(self, config: NeZhaConfig):
        super().__init__(config)
        self.cls = NeZhaPretrainingHeads(config, self.get_input_embeddings().weight, next_sentence=False)

    def _tie_decoder(self) -> None:
        self.cls.predictions.tie(self.get_input_embeddings().weight)

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        labels: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        loss_only: bool = False,
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, `unpad` and `loss_only` as this module says.

        Args:
            labels: int32 or int64 [B, L], the token at each masked position, -100 or -1 elsewhere.

        Returns:
            Logits [B, L, V], or (loss, logits, …), or `MaskedLMOutput`.
        """
        encoded = self._encode(
            (input_ids, token_type_ids, attention_mask, inputs_embeds),
            {"labels": labels},
            output_hidden_states,
            output_attentions,
            unpad,
            loss_only,
            unsupported,
        )
        hidden, predictions = encoded.last_hidden_state, self.cls.predictions
        logits = None if loss_only else predictions(hidden)
        loss = _token_loss("labels", labels, logits, hidden, predictions, predictions.decoder_bias.shape[0])
        return self._answer(MaskedLMOutput, encoded, return_dict, loss, loss_only, logits=logits)


class NeZhaForNextSentencePrediction(_Head):
    """Tells a following sentence (class 0) from a random one (class 1)."""

    reads_pooled = True

    def __init__(self, config: NeZhaConfig):
        super().__init__(config)
        self.cls = NeZhaPretrainingHeads(config, masked_lm=False)

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        next_sentence_label: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        loss_only: bool = False,
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, `unpad` and `loss_only` as this module says.

        Args:
            next_sentence_label: int32 or int64 [B]; 0 follows, 1 is a random sentence.

        Returns:
            Logits [B, 2], or (loss, logits, …), or `NextSentencePredictorOutput`.
        """
        encoded = self._encode(
            (input_ids, token_type_ids, attention_mask, inputs_embeds),
            {"next_sentence_label": next_sentence_label},
            output_hidden_states,
            output_attentions,
            unpad,
            loss_only,
            unsupported,
        )
        logits = self.cls.seq_relationship(encoded.pooler_output)
        loss = _class_loss("next_sentence_label", logits, next_sentence_label)
        return self._answer(NextSentencePredictorOutput, encoded, return_dict, loss, loss_only, logits=logits)


class _Classifier(_Head):
    """A dropout and one linear layer of `width` outputs over what the head reads."""

    def __init__(self, config: NeZhaConfig, width: int):
        super().__init__(config)
        probability = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(probability)
        self.classifier = linear(config, config.hidden_size, width)

    def _score(self, read: Tensor) -> Tensor:
        """[..., N] to [..., width]."""
        return self.classifier(self.dropout(read))


class NeZhaForSequenceClassification(_Classifier):
    """One answer a text (or pair of texts): classes, several labels at once, or a number."""

    reads_pooled = True

    def __init__(self, config: NeZhaConfig):
        super().__init__(config, config.num_labels)
        self.num_labels = config.num_labels

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        labels: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        loss_only: bool = False,
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, `unpad` and `loss_only` as this module says.

        Args:
            labels: decided by `config.problem_type`, and where that is None by the labels themselves, at each call
                anew:
                one label: numbers [B], mean squared error (regression);
                integers [B]: class indices, cross-entropy (single_label_classification);
                floats [B, num_labels]: 0 .. 1 each, binary cross-entropy (multi_label_classification).

        Returns:
            Logits [B, num_labels], or (loss, logits, …), or `SequenceClassifierOutput`.
        """
        encoded = self._encode(
            (input_ids, token_type_ids, attention_mask, inputs_embeds),
            {"labels": labels},
            output_hidden_states,
            output_attentions,
            unpad,
            loss_only,
            unsupported,
        )
        logits = self._score(encoded.pooler_output)
        loss = None if labels is None else self._loss(logits, labels)
        return self._answer(SequenceClassifierOutput, encoded, return_dict, loss, loss_only, logits=logits)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        check_tensor("labels", labels)
        problem = self.config.problem_type
        if problem is None:
            is_float = labels.dtype in (paddle.float16, paddle.bfloat16, paddle.float32, paddle.float64)
            problem = "multi_label_classification" if is_float else "single_label_classification"
            problem = "regression" if self.num_labels == 1 else problem
        if problem == "single_label_classification":
            return _class_loss("labels", logits, labels)
        if problem == "multi_label_classification":
            return binary_cross_entropy(logits, check_targets("labels", labels, logits))
        if self.num_labels == 1:
            logits = logits.squeeze(-1)
        return mean_squared_error(logits, check_numbers("labels", labels, logits))


class NeZhaForTokenClassification(_Classifier):
    """One class a token."""

    token_labels = "labels"

    def __init__(self, config: NeZhaConfig):
        super().__init__(config, config.num_labels)
        self.num_labels = config.num_labels

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        labels: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        loss_only: bool = False,
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, `unpad` and `loss_only` as this module says.

        Args:
            labels: int32 or int64 [B, L], 0 .. num_labels - 1; -100 or -1 where a token has none.

        Returns:
            Logits [B, L, num_labels], or (loss, logits, …), or `TokenClassifierOutput`.
        """
        encoded = self._encode(
            (input_ids, token_type_ids, attention_mask, inputs_embeds),
            {"labels": labels},
            output_hidden_states,
            output_attentions,
            unpad,
            loss_only,
            unsupported,
        )
        hidden = encoded.last_hidden_state
        logits = None if loss_only else self._score(hidden)
        loss = _token_loss("labels", labels, logits, hidden, self._score, self.num_labels)
        return self._answer(TokenClassifierOutput, encoded, return_dict, loss, loss_only, logits=logits)


class NeZhaForQuestionAnswering(_Head):
    """The span of a text that answers: one score for its start and one for its end at every token."""

    def __init__(self, config: NeZhaConfig):
        super().__init__(config)
        self.classifier = linear(config, config.hidden_size, 2)

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        start_positions: Optional[Tensor] = None,
        end_positions: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        loss_only: bool = False,
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, `unpad` and `loss_only` as this module says.

        Args:
            start_positions, end_positions: int32 or int64 [B], both or neither; a position outside 0 .. L - 1 is
                ignored (an answer that was cut off).

        Returns:
            (start_logits [B, L], end_logits [B, L], …), with the loss first where positions were given, or
            `QuestionAnsweringModelOutput`.
        """
        encoded = self._encode(
            (input_ids, token_type_ids, attention_mask, inputs_embeds),
            {"start_positions": start_positions, "end_positions": end_positions},
            output_hidden_states,
            output_attentions,
            unpad,
            loss_only,
            unsupported,
        )
        logits = self.classifier(encoded.last_hidden_state)
        start_logits, end_logits = logits[:, :, 0], logits[:, :, 1]
        loss = None
        if start_positions is not None or end_positions is not None:
            if start_positions is None or end_positions is None:
                raise ValueError("Give start_positions and end_positions together: the loss is the mean of both.")
            start_loss = _position_loss("start_positions", start_logits, start_positions)
            loss = (start_loss + _position_loss("end_positions", end_logits, end_positions)) / 2.0
        return self._answer(
            QuestionAnsweringModelOutput,
            encoded,
            return_dict,
            loss,
            loss_only,
            start_logits=start_logits,
            end_logits=end_logits,
        )


class NeZhaForMultipleChoice(_Classifier):
    """The best of several choices, each read as a text of its own."""

    reads_pooled = True

    def __init__(self, config: NeZhaConfig):
        super().__init__(config, 1)
        self.num_choices = config.num_choices

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        token_type_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        inputs_embeds: Optional[Tensor] = None,
        labels: Optional[Tensor] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        return_dict: Optional[bool] = None,
        *,
        unpad: Optional[bool] = None,
        loss_only: bool = False,
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, each with an axis of C choices after the batch: ids [B, C, L], a mask
        [B, C, L], embeddings [B, C, L, N]. C is counted from the input. `unpad` and `loss_only`: as this module says.

        Args:
            labels: int32 or int64 [B], the right choice.

        Returns:
            Logits [B, C], or (loss, logits, …), or `MultipleChoiceModelOutput`.
        """
        check_choices(input_ids, token_type_ids, attention_mask, inputs_embeds)
        encoded = self._encode(
            (
                _merge_choices(input_ids),
                _merge_choices(token_type_ids),
                _merge_choices(attention_mask),
                _merge_choices(inputs_embeds),
            ),
            {"labels": labels},
            output_hidden_states,
            output_attentions,
            unpad,
            loss_only,
            unsupported,
        )
        choices = sizes(inputs_embeds if input_ids is None else input_ids)[1]
        logits = self._score(encoded.pooler_output).reshape([-1, choices])
        loss = _class_loss("labels", logits, labels)
        return self._answer(MultipleChoiceModelOutput, encoded, return_dict, loss, loss_only, logits=logits)


@plain_python
def _merge_choices(item: Optional[Tensor]) -> Optional[Tensor]:
    """[B, C, …] to [B * C, …]."""
    return None if item is None else paddle.flatten(item, 0, 1)


def _class_loss(name: str, logits: Tensor, labels: Optional[Tensor]) -> Optional[Tensor]:
    return None if labels is None else cross_entropy(logits, check_class_labels(name, labels, logits))


def _token_loss(
    name: str,
    labels: Optional[Tensor],
    logits: Optional[Tensor],
    hidden_states: Tensor,
    score: "Callable[[Tensor], Tensor]",
    classes: int,
) -> Optional[Tensor]:
    """The loss of labels [B, L].

    Args:
        logits: [B, L, classes], or None where nobody but the loss reads them: `score` then makes them, of the labelled
            ones of the hidden states [B, L, N] alone.
    """
    if labels is None or logits is not None:
        return _class_loss(name, logits, labels)
    kept, labels = labelled_tokens(hidden_states, check_class_labels(name, labels, hidden_states, classes))
    return cross_entropy(score(kept), labels)


@plain_python
def labelled_tokens(hidden_states: Tensor, labels: Tensor) -> "tuple[Tensor, Tensor]":
    """The labelled ones [M, N] of the hidden states [B, L, N], and their labels [M]."""
    if not is_eager_throughout():  # a graph's sizes stay what they are
        return hidden_states, labels
    labels = labels.flatten()
    places = paddle.nonzero(is_labelled(labels)).flatten()
    if places.shape[0] == 0:  # one that counts for nothing: Paddle 2.6 makes no product of no rows
        places = paddle.zeros([1], "int64")
    return paddle.gather(hidden_states.flatten(0, 1), places), paddle.gather(labels, places)


def _position_loss(name: str, logits: Tensor, positions: Tensor) -> Tensor:
    positions = check_positions(name, positions, logits)
    inside = (positions >= 0) & (positions < sizes(logits)[-1])
    return cross_entropy(logits, positions, inside)
