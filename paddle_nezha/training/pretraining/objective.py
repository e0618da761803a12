"""What pre-training minimises: the masked words' cross-entropy, and, with pairs, that of which sentence follows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle_nezha._paddle import Tensor, paddle
from paddle_nezha.heads import NeZhaForMaskedLM, NeZhaForPretraining, cross_entropies, is_labelled, labelled_tokens
from paddle_nezha.padding import padding_goes_by_itself
from paddle_nezha.training.engine import Batch, Objective

_NOT_LABELLED = -100


class PretrainingObjective(Objective):
    """MLM + NSP over `NeZhaForPretraining`, MLM alone over `NeZhaForMaskedLM`.

    Args:
        model: one of the two.
        mask_id: the id of [MASK], which tells the masked of the predicted tokens.
    """

    statistics = (
        "mlm_loss",
        "mlm_correct",
        "mlm_count",
        "mask_correct",
        "mask_count",
        "nsp_loss",
        "nsp_correct",
        "nsp_count",
    )

    def __init__(self, model: Any, mask_id: int):
        super().__init__()
        if not isinstance(model, (NeZhaForPretraining, NeZhaForMaskedLM)):
            raise TypeError(
                "Pre-training trains a NeZhaForPretraining (pairs of sentences) or a NeZhaForMaskedLM (single texts), "
                f"but got a {type(model).__name__}."
            )
        self.model = model
        self.mask_id = mask_id
        self.has_pairs = isinstance(model, NeZhaForPretraining)

    def weigh(self, batch: Batch) -> np.ndarray:
        """How many tokens are predicted, and how many rows there are."""
        labels = batch["masked_lm_labels"]
        return np.array([(labels != _NOT_LABELLED).sum(), len(labels)], "float64")

    def forward(  # type: ignore[override]
        self,
        totals: "Sequence[float]",
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor,
        masked_lm_labels: Tensor,
        **labels: Tensor,
    ) -> "tuple[Tensor, Tensor]":
        hidden, pooled = self.model.nezha(
            input_ids,
            token_type_ids,
            attention_mask,
            return_dict=False,
            unpad=padding_goes_by_itself(attention_mask, self.has_pairs, masked_lm_labels),
        )[:2]
        kept, words = labelled_tokens(hidden, masked_lm_labels)
        labelled = is_labelled(words)
        logits = self.model.cls.predictions(kept)
        mlm = cross_entropies(logits, words, labelled).sum()
        right = (logits.argmax(-1) == words) & labelled
        masked = (labelled_tokens(input_ids.unsqueeze(-1), masked_lm_labels)[0].squeeze(-1) == self.mask_id) & labelled
        sums = [mlm, right.sum(), labelled.sum(), (right & masked).sum(), masked.sum()]
        loss = mlm / max(1.0, totals[0])
        if self.has_pairs:
            order = labels["next_sentence_label"]
            relation = self.model.cls.seq_relationship(pooled)
            nsp = cross_entropies(relation, order, is_labelled(order)).sum()
            loss = loss + nsp / max(1.0, totals[1])
            sums += [nsp, (relation.argmax(-1) == order).sum(), order.shape[0]]
        else:
            sums += [0, 0, 0]
        return loss, paddle.stack([_float32(item) for item in sums])


def _float32(item: Any) -> Tensor:
    return paddle.to_tensor(item, dtype="float32") if isinstance(item, int) else item.detach().astype("float32")
