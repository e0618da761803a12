"""Whole-word masking: which tokens of an example are hidden, and what stands in their place.

As BERT's whole-word masking does it: the words of an example come in random order, each is taken whole if it fits into
what is left of the budget and skipped if it does not. Of the taken tokens 80 % become [MASK], 10 % a random token, and
10 % stay as they are; all of them are to be predicted. Masking of single tokens is the same with every token a word.

The randomness of an example follows from its key alone, so it is the same in whatever batch the example stands.
"""

from collections.abc import Iterable
from typing import Optional

import numpy as np

IGNORED = -100  # the label of a token that is not predicted
DRAWS_PER = ("token", "word")


class Masking:
    """Hides words of a batch of examples.

    Args:
        vocab_size: ids are 0 .. vocab_size - 1.
        special_ids: they are never predicted, and never stand in for another token. A word that holds one (a character
            that became [UNK], say) is left alone.
        mask_id: the id of [MASK].
        whole_word: False masks single tokens.
        mask_probability: the share of an example's maskable tokens that is predicted: `round` of it, at least 1.
        max_predictions: at most so many tokens of an example are predicted.
        replacement: the shares of [MASK], of a random ordinary token, and of the token itself; together 1.
        draw_per: whether each "token" draws what stands in its place, as BERT does, or each "word" for all its tokens
            (random tokens are drawn one by one in either case).

    Where every word of an example is longer than its budget, one of the shortest is taken even so (within
    `max_predictions`): every example with a word to predict then predicts something.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        special_ids: "Iterable[int]",
        mask_id: int,
        whole_word: bool = True,
        mask_probability: float = 0.15,
        max_predictions: Optional[int] = None,
        replacement: "tuple[float, float, float]" = (0.8, 0.1, 0.1),
        draw_per: str = "token",
    ) -> None:
        self.mask_id = mask_id
        self.whole_word = whole_word
        self.mask_probability = mask_probability
        self.max_predictions = max_predictions
        self.draw_per = draw_per
        self._is_special = np.isin(np.arange(vocab_size), list(special_ids))
        self._ordinary = np.flatnonzero(~self._is_special)
        # Of 32 random bits: below the first is [MASK], below the second a random token.
        self._masked_below, self._random_below = (
            np.uint64(round(share * 2**32)) for share in (replacement[0], replacement[0] + replacement[1])
        )
        if not len(self._ordinary):
            raise ValueError(
                f"A vocabulary of {vocab_size} entries must hold more than the special ones, but all of them are: "
                "check the corpus's tokenizer."
            )

    def __call__(self, ids: np.ndarray, word_starts: np.ndarray, keys: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
        """
        Args:
            ids: int64 [B, L], the whole examples.
            word_starts: bool [B, L], True where a word begins: at position 0, and at each special token and padding.
            keys: uint64 [B], random numbers, from which all randomness of a row follows.

        Returns:
            What the model reads and what it is to predict, both int64 [B, L]; labels are -100 where nothing is.
        """
        if not self.whole_word:
            word_starts = np.ones_like(word_starts)
        first = np.flatnonzero(word_starts)
        sizes = np.diff(first, append=ids.size)
        words = self._words(ids, first, sizes, keys)
        chosen = np.flatnonzero(np.repeat(words, sizes))
        labels = np.full(ids.size, IGNORED, "int64")
        labels[chosen] = ids.ravel()[chosen]
        masked = ids.flatten()
        masked[chosen] = self._replaced(masked[chosen], chosen, first, ids.shape[1], keys)
        return masked.reshape(ids.shape), labels.reshape(ids.shape)

    def _words(self, ids: np.ndarray, first: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """bool [words], True for those to predict; `first` and `sizes` say where each is in the flattened batch."""
        maskable = ~np.logical_or.reduceat(self._is_special[ids].ravel(), first)
        size = np.zeros(ids.shape, "int64")
        size.flat[first] = sizes * maskable  # of the word that begins at a place; 0 elsewhere and where it stays
        bits = _random_bits(keys[:, None], 2 * np.arange(ids.shape[1], dtype="uint64"))
        order = np.argsort(np.where(size > 0, bits, _LARGEST), axis=1)
        taken = np.empty(ids.shape, bool)
        np.put_along_axis(taken, order, _fitting(np.take_along_axis(size, order, 1), self._budget(size)), 1)
        return taken.ravel()[first]

    def _budget(self, size: np.ndarray) -> np.ndarray:
        """int64 [B]: how many tokens of each row may be predicted."""
        budget = np.maximum(1, np.rint(self.mask_probability * size.sum(1)).astype("int64"))
        shortest = np.where(size > 0, size, size.shape[1]).min(1)
        budget = np.maximum(budget, shortest)
        return budget if self.max_predictions is None else np.minimum(budget, self.max_predictions)

    def _replaced(
        self, tokens: np.ndarray, places: np.ndarray, first: np.ndarray, length: int, keys: np.ndarray
    ) -> np.ndarray:
        """What stands in for the tokens at these places of the flattened batch."""
        own = _random_bits_at(places, length, keys)
        draws = own
        if self.draw_per == "word":
            draws = _random_bits_at(first[np.searchsorted(first, places, "right") - 1], length, keys)
        draws = draws >> _32
        random = self._ordinary[((own & _LOW_32) * np.uint64(len(self._ordinary)) >> _32).astype("int64")]
        return np.where(draws < self._masked_below, self.mask_id, np.where(draws < self._random_below, random, tokens))


def _fitting(size: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """Takes words from the left, skipping each that is longer than what is left of the budget.

    In each round those go that can never fit again, and the others are taken up to the first one too long: there are
    at most as many rounds as lengths.

    Args:
        size: int64 [B, words], 0 where there is none.
        budget: int64 [B].

    Returns:
        bool [B, words].
    """
    taken = np.zeros(size.shape, bool)
    left = budget
    while True:
        size = np.where(taken | (size > left[:, None]), 0, size)
        if not size.any():
            return taken
        fits = (size > 0) & (np.cumsum(size, 1) <= left[:, None])
        taken |= fits
        left = left - np.where(fits, size, 0).sum(1)


_32, _LOW_32, _LARGEST = np.uint64(32), np.uint64(2**32 - 1), np.uint64(2**64 - 1)
_STEP, _FACTOR_1, _FACTOR_2 = (
    np.uint64(constant) for constant in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def _random_bits(keys: np.ndarray, number: np.ndarray) -> np.ndarray:
    """uint64: random numbers of the generator SplitMix64 that begins at each key, each by its number in the sequence.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014). NumPy's generators
    would have to be made anew for each example, which takes longer than all the rest.
    """
    bits = keys + (number + np.uint64(1)) * _STEP
    bits ^= bits >> np.uint64(30)
    bits *= _FACTOR_1
    bits ^= bits >> np.uint64(27)
    bits *= _FACTOR_2
    bits ^= bits >> np.uint64(31)
    return bits


def _random_bits_at(places: np.ndarray, length: int, keys: np.ndarray) -> np.ndarray:
    """uint64 [places]: each token's second random number; the first gives the order of the words."""
    rows, columns = np.divmod(places, length)
    return _random_bits(keys[rows], 2 * columns.astype("uint64") + np.uint64(1))
