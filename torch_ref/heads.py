"""The heads of NeZha and their losses, on top of `torch_ref.model`.

Every loss is the sum over labelled positions divided by their number; labels -100 and -1 mean "no label",
and with none labelled the loss is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paddle_nezha.config import NeZhaConfig
from torch_ref.model import ACTIVATIONS, LayerNorm, Linear, Model, Record

HEADS = (
    "model", "pretraining", "masked_lm", "next_sentence", "sequence_classification", "token_classification",
    "question_answering", "multiple_choice",
)  # fmt: skip

IGNORED = -100


@dataclass
class Outputs:
    """What a forward gives; None where the head has no such output.

    Shapes:
        last_hidden_state, each of hidden_states (layers + 1): [B, L, N]; pooler_output: [B, N].
        attentions (layers): probabilities [B, H, F, T].
        logits: masked_lm [B, L, V], next_sentence [B, 2], sequence_classification [B, num_labels],
            token_classification [B, L, num_labels], multiple_choice [B, C].
        prediction_logits [B, L, V], seq_relationship_logits [B, 2]: pretraining.
        start_logits, end_logits [B, L]: question_answering.
        loss: []. Under multiple_choice the outputs that are not logits have B*C in place of B.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None
    hidden_states: tuple[Tensor, ...]
    attentions: tuple[Tensor, ...]
    logits: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    loss: Tensor | None = None

    def arrays(self) -> dict[str, Any]:
        """The outputs that exist, as NumPy arrays (hidden_states and attentions as lists of them)."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: _to_numpy(value) for name, value in found.items() if value is not None}


def _to_numpy(value: Any) -> Any:
    return [v.detach().cpu().numpy() for v in value] if isinstance(value, tuple) else value.detach().cpu().numpy()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of logsumexp(logits) - logits[label] over the labelled positions.

    Args:
        logits: [..., classes].
        labels: integers, one for each row of logits; -100 and -1 are no label.
    """
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    labelled = (labels != IGNORED) & (labels != -1)
    chosen = logits.gather(1, labels.masked_fill(~labelled, 0)[:, None])[:, 0]
    losses = (torch.logsumexp(logits, dim=-1) - chosen).masked_fill(~labelled, 0.0)
    return losses.sum() / labelled.sum().clamp(min=1)


def span_loss(start_logits: Tensor, end_logits: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Mean of the two cross-entropies over positions [B]; a position outside [0, L) is no label."""
    length = start_logits.shape[1]
    losses = [
        cross_entropy(logits, at.masked_fill((at < 0) | (at >= length), IGNORED))
        for logits, at in ((start_logits, start), (end_logits, end))
    ]
    return (losses[0] + losses[1]) / 2


def classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None) -> Tensor:
    """Loss of sequence classification, logits [B, num_labels].

    Without a `problem_type`: one label is regression (mean squared error), integer labels choose one class
    (cross-entropy), float labels [B, num_labels] say yes or no to each (binary cross-entropy).
    """
    if problem_type is None and logits.shape[-1] == 1:
        problem_type = "regression"
    elif problem_type is None:
        problem_type = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
    if problem_type == "single_label_classification":
        return cross_entropy(logits, labels)
    target = labels.to(logits.dtype).reshape(logits.shape)
    if problem_type == "regression":
        return ((logits - target) ** 2).mean()
    return (torch.logaddexp(logits, torch.zeros_like(logits)) - logits * target).mean()


class LanguageModelling(nn.Module):
    """LayerNorm(act(dense x)) word^T + bias; the word table is the embeddings' own."""

    def __init__(self, config: NeZhaConfig) -> None:
        super().__init__()
        self.act = ACTIVATIONS[config.hidden_act]
        self.dense = Linear(config.hidden_size, config.hidden_size, config.initializer_range)
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, word: Tensor, record: Record) -> Tensor:
        record["mlm.transform"] = x = self.norm(self.act(self.dense(x)))
        record["mlm.logits"] = logits = x @ word.T + self.bias
        return logits


@dataclass
class _Call:
    """What one forward was given beside the model's inputs."""

    labels: dict[str, Tensor]
    record: Record
    batch: int

    def take(self, *names: str) -> Tensor | None:
        """Remove and return the label of the first of these names that was given."""
        return next((self.labels.pop(name) for name in names if name in self.labels), None)


class Reference(nn.Module):
    """A whole model with one head; see `torch_ref.build`."""

    def __init__(self, config: NeZhaConfig, head: str) -> None:
        super().__init__()
        if head not in HEADS:
            raise ValueError(f"head: expected one of {', '.join(HEADS)}, got {head!r}; choose one of these")
        self.config, self.head = config, head
        self.base = Model(config)
        width, scale = config.hidden_size, config.initializer_range
        if head in ("pretraining", "masked_lm"):
            self.mlm = LanguageModelling(config)
        if head in ("pretraining", "next_sentence"):
            self.nsp = Linear(width, 2, scale)
        widths = {
            "sequence_classification": config.num_labels, "token_classification": config.num_labels,
            "question_answering": 2, "multiple_choice": 1,
        }  # fmt: skip
        if head in widths:
            self.classifier = Linear(width, widths[head], scale)

    def forward(
        self,
        input_ids: Any = None,
        token_type_ids: Any = None,
        attention_mask: Any = None,
        inputs_embeds: Any = None,
        record: Record | None = None,
        **labels: Any,
    ) -> Outputs:
        """One deterministic forward; arguments may be tensors or NumPy arrays.

        Args:
            input_ids, token_type_ids: [B, L] integers; segments default to 0. Multiple choice takes
                [B, C, L], and its mask and embeddings with C after B too.
            attention_mask: see `torch_ref.model.visible_keys`; None sees everything.
            inputs_embeds: [B, L, N], in place of input_ids.
            record: a dict, filled with every stage by name, still part of the graph.
            labels: None is the same as absent. By head:
                pretraining: `labels` (or `masked_lm_labels`) [B, L], `next_sentence_label` [B], or either.
                masked_lm: `labels` (or `masked_lm_labels`) [B, L].
                next_sentence: `next_sentence_label` (or `labels`) [B].
                token_classification: `labels` [B, L]. multiple_choice: `labels` [B].
                sequence_classification: `labels`, see `classification_loss`.
                question_answering: `start_positions` and `end_positions` [B], both or none.

        Raises:
            TypeError: a label this head does not know.
        """
        record = {} if record is None else record
        given = (input_ids, token_type_ids, attention_mask, inputs_embeds)
        tensors = [None if x is None else self._tensor(x) for x in given]
        batch = next((len(x) for x in tensors if x is not None), 0)
        call = _Call({n: self._tensor(x) for n, x in labels.items() if x is not None}, record, batch)
        if self.head == "multiple_choice":
            tensors = [None if x is None else x.flatten(0, 1) for x in tensors]
        hidden, probs, pooled = self.base(*tensors, record)
        out = Outputs(hidden[-1], pooled, tuple(hidden), tuple(probs))
        getattr(self, f"_{self.head}")(out, call)
        if call.labels:
            raise TypeError(
                f"head {self.head}: unexpected label {', '.join(sorted(call.labels))}; see Reference.forward"
            )
        if out.loss is not None:
            record["loss"] = out.loss
        return out

    def _tensor(self, value: Any) -> Tensor:
        weight = self.base.word.weight
        value = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value, device=weight.device)
        return value.to(weight.dtype) if value.is_floating_point() else value.to(torch.int64)

    def _model(self, out: Outputs, call: _Call) -> None:
        """The base model has no logits and no loss."""

    def _pretraining(self, out: Outputs, call: _Call) -> None:
        out.prediction_logits = self._word_logits(out, call)
        out.seq_relationship_logits = self._order_logits(out, call)
        words, order = call.take("labels", "masked_lm_labels"), call.take("next_sentence_label")
        pairs = ((out.prediction_logits, words), (out.seq_relationship_logits, order))
        losses = [cross_entropy(logits, labels) for logits, labels in pairs if labels is not None]
        out.loss = torch.stack(losses).sum() if losses else None

    def _masked_lm(self, out: Outputs, call: _Call) -> None:
        out.logits = self._word_logits(out, call)
        labels = call.take("labels", "masked_lm_labels")
        out.loss = None if labels is None else cross_entropy(out.logits, labels)

    def _next_sentence(self, out: Outputs, call: _Call) -> None:
        out.logits = self._order_logits(out, call)
        labels = call.take("next_sentence_label", "labels")
        out.loss = None if labels is None else cross_entropy(out.logits, labels)

    def _sequence_classification(self, out: Outputs, call: _Call) -> None:
        call.record["classifier.logits"] = out.logits = self.classifier(out.pooler_output)
        labels = call.take("labels")
        out.loss = None if labels is None else classification_loss(out.logits, labels, self.config.problem_type)

    def _token_classification(self, out: Outputs, call: _Call) -> None:
        call.record["classifier.logits"] = out.logits = self.classifier(out.last_hidden_state)
        labels = call.take("labels")
        out.loss = None if labels is None else cross_entropy(out.logits, labels)

    def _question_answering(self, out: Outputs, call: _Call) -> None:
        call.record["classifier.logits"] = logits = self.classifier(out.last_hidden_state)
        out.start_logits, out.end_logits = logits[..., 0], logits[..., 1]
        start, end = call.take("start_positions"), call.take("end_positions")
        if start is not None and end is not None:
            out.loss = span_loss(out.start_logits, out.end_logits, start.reshape(-1), end.reshape(-1))

    def _multiple_choice(self, out: Outputs, call: _Call) -> None:
        scores = self.classifier(out.pooler_output)
        call.record["classifier.logits"] = out.logits = scores.reshape(call.batch, -1)
        labels = call.take("labels")
        out.loss = None if labels is None else cross_entropy(out.logits, labels)

    def _word_logits(self, out: Outputs, call: _Call) -> Tensor:
        return self.mlm(out.last_hidden_state, self.base.word.weight, call.record)

    def _order_logits(self, out: Outputs, call: _Call) -> Tensor:
        call.record["nsp.logits"] = logits = self.nsp(out.pooler_output)
        return logits


def build(config: NeZhaConfig, head: str = "model", dtype: torch.dtype = torch.float64) -> Reference:
    """The reference for a head, with random weights N(0, initializer_range) until some are loaded.

    Args:
        config: of any position encoding; its dropouts are not used.
        head: one of `torch_ref.HEADS`.
        dtype: torch.float64 or torch.float32.

    Raises:
        ValueError: an unknown head.
    """
    return Reference(config, head).to(dtype)
