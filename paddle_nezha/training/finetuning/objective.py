"""What a fine-tuning minimises, task by task, and what a model answers where nothing is learnt."""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from paddle_nezha._paddle import Tensor, paddle
from paddle_nezha.heads import cross_entropies, is_labelled
from paddle_nezha.padding import padding_goes_by_itself
from paddle_nezha.training.engine import Batch, Objective

_IGNORED = -100
_HIDDEN = -1e30  # the logit of a position that is padding: no probability, in float32 and float64


class TaskObjective(Objective):
    """The cross-entropy of a head's answers.

    Args:
        model: a head.
        class_weights: [K], how much an example of each class weighs; None is 1.
        adversarial: FGM (Miyato and others, arXiv 1605.07725): the loss of each text is added once more, with its word
            embeddings moved by so much (their 2-norm over the text) in the direction that makes it worst; 0 leaves
            that out.
    """

    statistics = ("loss", "correct", "count")

    def __init__(self, model: Any, class_weights: Optional[np.ndarray] = None, adversarial: float = 0.0):
        super().__init__()
        self.model = model
        self.adversarial = adversarial
        self._weights = class_weights

    def weigh(self, batch: Batch) -> np.ndarray:
        """The weight of all labels."""
        labels = self.labels_of(batch)
        kept = labels[labels != _IGNORED]
        return np.array([float(len(kept)) if self._weights is None else float(self._weights[kept].sum())])

    def labels_of(self, batch: Batch) -> np.ndarray:
        """int64, whatever its shape; -100 is none."""
        return batch["labels"]

    def forward(self, totals: "Sequence[float]", **batch: Tensor) -> "tuple[Tensor, Tensor]":
        if not (self.adversarial and self.training):
            return self._loss(totals[0], self.logits(batch), batch)
        words = self._words(batch)
        loss, statistics = self._loss(totals[0], self.logits(batch, words), batch)
        slope = paddle.grad(loss, [words], retain_graph=True)[0]
        axes = list(range(words.ndim - 2, words.ndim))
        length = paddle.sqrt((slope * slope).sum(axes, keepdim=True))
        worst = self.adversarial * slope / paddle.clip(length, min=float(np.finfo("float32").tiny))
        again, _ = self._loss(totals[0], self.logits(batch, words + worst.detach()), batch)
        return loss + again, statistics

    def logits(self, batch: "dict[str, Tensor]", words: Optional[Tensor] = None) -> Tensor:
        """The head's answer to a batch [..., K]; `words` are embeddings in place of the ids."""
        mask = batch["attention_mask"]
        answer = self.model(
            batch["input_ids"] if words is None else None,
            batch["token_type_ids"],
            mask,
            words,
            unpad=self._unpad(batch),
        )
        return answer

    def _unpad(self, batch: "dict[str, Tensor]") -> Optional[bool]:
        return None  # heads of the pooled output do it by themselves

    def _words(self, batch: "dict[str, Tensor]") -> Tensor:
        return self.model.get_input_embeddings()(batch["input_ids"])

    def _loss(self, total: float, logits: Tensor, batch: "dict[str, Tensor]") -> "tuple[Tensor, Tensor]":
        return self._cross_entropy(total, logits, batch["labels"])

    def _cross_entropy(self, total: float, logits: Tensor, labels: Tensor) -> "tuple[Tensor, Tensor]":
        labelled = is_labelled(labels)
        right = ((logits.argmax(-1) == labels) & labelled).astype(logits.dtype).sum()
        count = labelled.astype(logits.dtype).sum()
        losses = cross_entropies(logits, labels, labelled)
        if self._weights is not None:
            weights = paddle.to_tensor(self._weights.astype("float32")).astype(losses.dtype)
            losses = losses * paddle.gather(weights, (labels * labelled.astype(labels.dtype)).flatten()).reshape(
                labels.shape
            )
        loss = losses.sum()
        statistics = paddle.stack([loss.detach(), right, count]).astype("float32")
        return loss / max(total, 1e-12), statistics


class TokenObjective(TaskObjective):
    """A label for each token."""

    def _unpad(self, batch: "dict[str, Tensor]") -> Optional[bool]:
        return padding_goes_by_itself(batch["attention_mask"], False, batch.get("labels"))


class SpanObjective(TaskObjective):
    """Where an answer begins and ends. Padding is no place for either, so that no answer depends on it."""

    def labels_of(self, batch: Batch) -> np.ndarray:
        return np.concatenate([batch["start_positions"], batch["end_positions"]])

    def _unpad(self, batch: "dict[str, Tensor]") -> Optional[bool]:
        return padding_goes_by_itself(batch["attention_mask"], False, None)

    def logits(self, batch: "dict[str, Tensor]", words: Optional[Tensor] = None) -> Tensor:
        """[B, 2, L]: of the start and of the end."""
        start, end = super().logits(batch, words)
        hidden = (batch["attention_mask"] == 0).astype(start.dtype) * _HIDDEN
        return paddle.stack([start + hidden, end + hidden], 1)

    def _loss(self, total: float, logits: Tensor, batch: "dict[str, Tensor]") -> "tuple[Tensor, Tensor]":
        return self._cross_entropy(total, logits, paddle.stack([batch["start_positions"], batch["end_positions"]], 1))
