"""What counting alone predicts at masked positions: the figures a trained model is held against.

Two predictors, counted on the training tokens:

- unigram: p(w), the share of w among the tokens, with one added to each count;
- two-sided bigram: p(w | l, r) ~ p(w | l) p(r | w), which is what a bigram model says of a token between its two
  neighbours. p(w | l) is interpolated with the unigram by absolute discounting (Ney, Essen, Kneser 1994):
  p(w | l) = max(c(l, w) - d, 0) / c(l) + d n(l) / c(l) p(w), where n(l) is the number of distinct tokens seen after l
  and d = n1 / (n1 + 2 n2) from the numbers of pairs seen once and twice.

A neighbour that is [MASK] or another special token says nothing: its factor is then p(w), or none.
"""

from typing import Any

import numpy as np
from scipy import sparse

_PAIRS = 1 << 22  # counted at a time: 32 MB
_ROWS = 256  # masked positions predicted at a time: [256, V] float64


def baselines(corpus: Any, input_ids: np.ndarray, labels: np.ndarray) -> "dict[str, float]":
    """Accuracy and perplexity of both predictors where the input is [MASK] and there is a label.

    Args:
        corpus: the training split (`paddle_nezha.training.corpus.Corpus`): its tokens are counted.
        input_ids: int [B, L], held-out text as a model sees it: masked, framed and padded.
        labels: int [B, L], the tokens that were there; -100 where nothing is predicted.

    Returns:
        positions, unigram_accuracy, unigram_perplexity, bigram_accuracy, bigram_perplexity.

    Raises:
        ValueError: shapes that differ, or no masked position.
    """
    input_ids, labels = np.asarray(input_ids), np.asarray(labels)
    if input_ids.ndim != 2 or input_ids.shape != labels.shape:
        raise ValueError(
            f"expected input_ids and labels of one shape [B, L], got {input_ids.shape} and {labels.shape}; pass a "
            "batch of examples as it comes"
        )
    rows, columns = np.nonzero((input_ids == corpus.mask_id) & (labels >= 0))
    if not rows.size:
        raise ValueError("expected masked positions, got none; pass held-out examples with their labels")
    framed = np.pad(input_ids, ((0, 0), (1, 1)), constant_values=corpus.pad_id)
    special = np.zeros(corpus.vocab_size, bool)
    special[[corpus.pad_id, corpus.cls_id, corpus.sep_id, corpus.mask_id]] = True
    left, right = framed[rows, columns], framed[rows, columns + 2]
    truth = labels[rows, columns]

    model = Bigram(corpus)
    logs, hits = [], 0
    for begin in range(0, truth.size, _ROWS):
        part = slice(begin, begin + _ROWS)
        predicted = model.between(left[part], right[part], ~special[left[part]], ~special[right[part]])
        logs.append(np.log(predicted[np.arange(len(predicted)), truth[part]]))
        hits += int((predicted.argmax(1) == truth[part]).sum())
    return {
        "positions": int(truth.size),
        "unigram_accuracy": float((truth == model.unigram.argmax()).mean()),
        "unigram_perplexity": float(np.exp(-np.log(model.unigram[truth]).mean())),
        "bigram_accuracy": hits / truth.size,
        "bigram_perplexity": float(np.exp(-np.concatenate(logs).mean())),
    }


class Bigram:
    """Counts of tokens and of neighbours within a document.

    Attributes:
        unigram: float64 [V], p(w).
        discount: d, between 0 and 1.
    """

    def __init__(self, corpus: Any) -> None:
        size = corpus.vocab_size
        counts = np.zeros(size, np.int64)
        pairs = sparse.csr_matrix((size, size), dtype=np.int64)
        for shard in corpus.shards:
            # The last token of a document has no right neighbour.
            ends = np.asarray(shard.sentences)[np.asarray(shard.documents)[1:]] - 1
            for begin in range(0, len(shard.tokens), _PAIRS):
                tokens = np.asarray(shard.tokens[begin : begin + _PAIRS + 1])
                counts += np.bincount(tokens[:_PAIRS], minlength=size)
                follows = np.ones(len(tokens) - 1, bool)
                follows[ends[(ends >= begin) & (ends < begin + len(follows))] - begin] = False
                first, second = tokens[:-1][follows], tokens[1:][follows]
                ones = np.ones(first.size, np.int64)
                pairs = pairs + sparse.coo_matrix((ones, (first, second)), shape=(size, size)).tocsr()
        self.unigram = (counts + 1) / (counts.sum() + size)
        once, twice = int((pairs.data == 1).sum()), int((pairs.data == 2).sum())
        self.discount = once / (once + 2 * twice) if once else 0.5
        total = np.asarray(pairs.sum(1)).ravel()
        distinct = np.diff(pairs.indptr)
        # A token that nothing was seen to follow hands all its probability to the unigram.
        self._rest = np.where(total > 0, self.discount * distinct / np.maximum(total, 1), 1.0)
        seen = pairs.astype(np.float64)
        seen.data = (seen.data - self.discount) / np.repeat(total, distinct)
        self._after, self._before = seen, seen.tocsc()

    def after(self, left: np.ndarray) -> np.ndarray:
        """p(w | l): left int [n] to float64 [n, V]."""
        return self._after[left].toarray() + self._rest[left, None] * self.unigram

    def before(self, right: np.ndarray) -> np.ndarray:
        """p(r | w): right int [n] to float64 [n, V]. Its rows do not sum to 1: w is the condition."""
        return self._before[:, right].toarray().T + self.unigram[right, None] * self._rest

    def between(
        self, left: np.ndarray, right: np.ndarray, left_known: np.ndarray, right_known: np.ndarray
    ) -> np.ndarray:
        """p(w | l, r), float64 [n, V]; `left_known` and `right_known`, bool [n], say which neighbours are words."""
        predicted = np.where(left_known[:, None], self.after(left), self.unigram)
        predicted *= np.where(right_known[:, None], self.before(right), 1.0)
        return predicted / predicted.sum(1, keepdims=True)
