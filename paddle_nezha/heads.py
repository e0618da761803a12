"""The seven task heads. They differ in what they read (the sequence or the pooled first token), in how wide they are,
and in their loss; everything else is said once, here.

Every loss is the sum over labelled positions divided by their number: 0 when nothing is labelled. Labels of -100 and
-1 mark positions without one.
"""

import inspect
from typing import Any, Optional

from paddle_nezha._paddle import F, Tensor, nn, paddle, plain_python, sizes
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.inputs import (
    IGNORED_LABELS,
    check_choices,
    check_class_labels,
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

# ---- losses


def _wide(logits: Tensor) -> Tensor:
    """Half-precision logits as float32: a loss sums thousands of exponentials."""
    return logits.astype("float32") if logits.dtype in (paddle.float16, paddle.bfloat16) else logits


def cross_entropy(logits: Tensor, labels: Tensor, labelled: Optional[Tensor] = None) -> Tensor:
    """Mean over labelled positions of ``logsumexp(logits) - logits[label]``.

    Written out, because Paddle 3.3.1's `F.cross_entropy` divides by all positions when some are ignored, and both
    Paddles let no probability fall below exp(-64) on a CPU.

    Args:
        logits: [..., K]. labels: int64 [...].
        labelled: bool [...]; None is every label that is not -100 or -1.

    Returns:
        A scalar; 0 when nothing is labelled.
    """
    logits = _wide(logits)
    if labelled is None:
        labelled = (labels != IGNORED_LABELS[0]) & (labels != IGNORED_LABELS[1])
    safe = labels * labelled.astype(labels.dtype)
    chosen = paddle.take_along_axis(logits, safe.unsqueeze(-1), -1).squeeze(-1)
    loss = (paddle.logsumexp(logits, -1) - chosen) * labelled.astype(logits.dtype)
    return loss.sum() / paddle.clip(labelled.astype(logits.dtype).sum(), min=1.0)


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

    def __init__(self, config: NeZhaConfig):
        super().__init__(config)
        self.nezha = NeZhaModel(config)

    def _encode(
        self, input_ids, token_type_ids, attention_mask, inputs_embeds, states, attentions, unsupported
    ) -> BaseModelOutputWithPoolingAndCrossAttentions:
        if unsupported:
            refuse_unknown(unsupported, tuple(inspect.signature(type(self).forward).parameters)[1:-1])
        return self.nezha(
            input_ids, token_type_ids, attention_mask, inputs_embeds, states, attentions, return_dict=True
        )

    def _answer(
        self,
        kind: "type[ModelOutput]",
        encoded: Any,
        return_dict: Optional[bool],
        loss: Optional[Tensor],
        **logits: Tensor,
    ):
        output = kind(loss=loss, **logits, hidden_states=encoded.hidden_states, attentions=encoded.attentions)
        return respond(output, self.config.return_dict if return_dict is None else return_dict)

    def _labelled(self, *labels: Optional[Tensor]) -> bool:
        """Whether there are labels to make a loss of; warns when gradients would come from a model in eval mode."""
        if all(item is None for item in labels):
            return False
        if not self.training and paddle.in_dynamic_mode() and paddle.is_grad_enabled():
            warn_caller(
                f"{type(self).__name__} computes a loss with gradients while in eval mode, so without dropout "
                "(from_pretrained returns models so): call model.train() to train, or use paddle.no_grad() to test.",
            )
        return True


class NeZhaForPretraining(_Head):
    """Masked LM and next sentence together, as in pre-training."""

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
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`.

        Args:
            masked_lm_labels: int32 or int64 [B, L], the token at each masked position, -100 or -1 elsewhere.
            next_sentence_label: [B]; 0 follows, 1 is a random sentence.

        Returns:
            ([loss,] prediction_logits [B, L, V], seq_relationship_logits [B, 2], …) or `NeZhaForPreTrainingOutput`.
            With both labels the loss is the sum of both losses, with one it is that one's.
        """
        encoded = self._encode(
            input_ids,
            token_type_ids,
            attention_mask,
            inputs_embeds,
            output_hidden_states,
            output_attentions,
            unsupported,
        )
        words, relation = self.cls(encoded.last_hidden_state, encoded.pooler_output)
        losses = []
        if self._labelled(masked_lm_labels, next_sentence_label):
            if masked_lm_labels is not None:
                losses.append(_class_loss("masked_lm_labels", words, masked_lm_labels))
            if next_sentence_label is not None:
                losses.append(_class_loss("next_sentence_label", relation, next_sentence_label))
        loss = sum(losses[1:], losses[0]) if losses else None
        return self._answer(
            NeZhaForPreTrainingOutput,
            encoded,
            return_dict,
            loss,
            prediction_logits=words,
            seq_relationship_logits=relation,
        )


class NeZhaForMaskedLM(_Head):
    """Fills in masked tokens."""

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
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`.

        Args:
            labels: int32 or int64 [B, L], the token at each masked position, -100 or -1 elsewhere.

        Returns:
            Logits [B, L, V], or (loss, logits, …), or `MaskedLMOutput`.
        """
        encoded = self._encode(
            input_ids,
            token_type_ids,
            attention_mask,
            inputs_embeds,
            output_hidden_states,
            output_attentions,
            unsupported,
        )
        logits = self.cls.predictions(encoded.last_hidden_state)
        loss = _class_loss("labels", logits, labels) if self._labelled(labels) else None
        return self._answer(MaskedLMOutput, encoded, return_dict, loss, logits=logits)


class NeZhaForNextSentencePrediction(_Head):
    """Tells a following sentence (class 0) from a random one (class 1)."""

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
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`.

        Args:
            next_sentence_label: int32 or int64 [B]; 0 follows, 1 is a random sentence.

        Returns:
            Logits [B, 2], or (loss, logits, …), or `NextSentencePredictorOutput`.
        """
        encoded = self._encode(
            input_ids,
            token_type_ids,
            attention_mask,
            inputs_embeds,
            output_hidden_states,
            output_attentions,
            unsupported,
        )
        logits = self.cls.seq_relationship(encoded.pooler_output)
        loss = None
        if self._labelled(next_sentence_label):
            loss = _class_loss("next_sentence_label", logits, next_sentence_label)
        return self._answer(NextSentencePredictorOutput, encoded, return_dict, loss, logits=logits)


class _Classifier(_Head):
    """A dropout and one linear layer of `width` outputs over what the head reads."""

    def __init__(self, config: NeZhaConfig, width: int):
        super().__init__(config)
        probability = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(probability)
        self.classifier = linear(config, config.hidden_size, width)


class NeZhaForSequenceClassification(_Classifier):
    """One answer a text (or pair of texts): classes, several labels at once, or a number."""

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
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`.

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
            input_ids,
            token_type_ids,
            attention_mask,
            inputs_embeds,
            output_hidden_states,
            output_attentions,
            unsupported,
        )
        logits = self.classifier(self.dropout(encoded.pooler_output))
        loss = self._loss(logits, labels) if self._labelled(labels) else None
        return self._answer(SequenceClassifierOutput, encoded, return_dict, loss, logits=logits)

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
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`.

        Args:
            labels: int32 or int64 [B, L], 0 .. num_labels - 1; -100 or -1 where a token has none.

        Returns:
            Logits [B, L, num_labels], or (loss, logits, …), or `TokenClassifierOutput`.
        """
        encoded = self._encode(
            input_ids,
            token_type_ids,
            attention_mask,
            inputs_embeds,
            output_hidden_states,
            output_attentions,
            unsupported,
        )
        logits = self.classifier(self.dropout(encoded.last_hidden_state))
        loss = _class_loss("labels", logits, labels) if self._labelled(labels) else None
        return self._answer(TokenClassifierOutput, encoded, return_dict, loss, logits=logits)


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
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`.

        Args:
            start_positions, end_positions: int32 or int64 [B], both or neither; a position outside 0 .. L - 1 is
                ignored (an answer that was cut off).

        Returns:
            (start_logits [B, L], end_logits [B, L], …), with the loss first where positions were given, or
            `QuestionAnsweringModelOutput`.
        """
        encoded = self._encode(
            input_ids,
            token_type_ids,
            attention_mask,
            inputs_embeds,
            output_hidden_states,
            output_attentions,
            unsupported,
        )
        logits = self.classifier(encoded.last_hidden_state)
        start_logits, end_logits = logits[:, :, 0], logits[:, :, 1]
        loss = None
        if self._labelled(start_positions, end_positions):
            if start_positions is None or end_positions is None:
                raise ValueError("Give start_positions and end_positions together: the loss is the mean of both.")
            start_loss = _position_loss("start_positions", start_logits, start_positions)
            loss = (start_loss + _position_loss("end_positions", end_logits, end_positions)) / 2.0
        return self._answer(
            QuestionAnsweringModelOutput, encoded, return_dict, loss, start_logits=start_logits, end_logits=end_logits
        )


class NeZhaForMultipleChoice(_Classifier):
    """The best of several choices, each read as a text of its own."""

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
        **unsupported: Any,
    ) -> Any:
        """Inputs as in `NeZhaModel.forward`, each with an axis of C choices after the batch: ids [B, C, L], a mask
        [B, C, L], embeddings [B, C, L, N]. C is counted from the input.

        Args:
            labels: int32 or int64 [B], the right choice.

        Returns:
            Logits [B, C], or (loss, logits, …), or `MultipleChoiceModelOutput`.
        """
        check_choices(input_ids, token_type_ids, attention_mask, inputs_embeds)
        encoded = self._encode(
            _merge_choices(input_ids),
            _merge_choices(token_type_ids),
            _merge_choices(attention_mask),
            _merge_choices(inputs_embeds),
            output_hidden_states,
            output_attentions,
            unsupported,
        )
        choices = sizes(inputs_embeds if input_ids is None else input_ids)[1]
        logits = self.classifier(self.dropout(encoded.pooler_output)).reshape([-1, choices])
        loss = _class_loss("labels", logits, labels) if self._labelled(labels) else None
        return self._answer(MultipleChoiceModelOutput, encoded, return_dict, loss, logits=logits)


@plain_python
def _merge_choices(item: Optional[Tensor]) -> Optional[Tensor]:
    """[B, C, …] to [B * C, …]."""
    return None if item is None else paddle.flatten(item, 0, 1)


def _class_loss(name: str, logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits, check_class_labels(name, labels, logits))


def _position_loss(name: str, logits: Tensor, positions: Tensor) -> Tensor:
    positions = check_positions(name, positions, logits)
    inside = (positions >= 0) & (positions < sizes(logits)[-1])
    return cross_entropy(logits, positions, inside)
