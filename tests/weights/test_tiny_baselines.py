"""The counted predictors against the same formulas, written out with dictionaries."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from weights.tiny import baselines as module
from weights.tiny.baselines import Bigram, baselines

PAD, UNK, CLS, SEP, MASK, SIZE = 0, 1, 2, 3, 4, 23
ROUNDING = 1e-12  # float64: the same sums in another order


def corpus(*documents):
    """A corpus of one shard; a document is a list of sentences."""
    sentences = [sentence for document in documents for sentence in document]
    shard = SimpleNamespace(
        tokens=np.array([token for sentence in sentences for token in sentence], np.uint16),
        sentences=np.cumsum([0, *map(len, sentences)]),
        documents=np.cumsum([0, *map(len, documents)]),
    )
    return SimpleNamespace(
        shards=(shard,), vocab_size=SIZE, pad_id=PAD, unk_id=UNK, cls_id=CLS, sep_id=SEP, mask_id=MASK
    )


@pytest.fixture
def documents(rng):
    return [[list(rng.integers(5, SIZE - 1, length)) for length in rng.integers(1, 9, 4)] for _ in range(40)]


def written_out(documents, left, right):
    """p(w | l, r) for all w; a neighbour that is None says nothing."""
    runs = [[int(token) for sentence in document for token in sentence] for document in documents]
    counts = Counter(token for run in runs for token in run)
    pairs = Counter(pair for run in runs for pair in zip(run, run[1:]))
    once, twice = (sum(count == times for count in pairs.values()) for times in (1, 2))
    discount = once / (once + 2 * twice)

    def unigram(word):
        return (counts[word] + 1) / (sum(counts.values()) + SIZE)

    def after(first, word):
        if first is None:
            return unigram(word)
        following = {second: count for (start, second), count in pairs.items() if start == first}
        if not following:
            return unigram(word)
        total = sum(following.values())
        own = max(following.get(word, 0) - discount, 0) / total
        return own + discount * len(following) / total * unigram(word)

    scores = [after(left, word) * (1 if right is None else after(word, right)) for word in range(SIZE)]
    return np.array(scores) / sum(scores)


def test_probabilities_are_those_of_the_formula(documents):
    model = Bigram(corpus(*documents))
    for left, right in [(7, 9), (7, None), (None, 9), (None, None), (SIZE - 1, 8), (8, SIZE - 1)]:
        known = [np.array([side is not None]) for side in (left, right)]
        found = model.between(np.array([left or 0]), np.array([right or 0]), *known)[0]
        np.testing.assert_allclose(found, written_out(documents, left, right), rtol=ROUNDING)


def test_each_row_after_a_token_sums_to_one(documents):
    np.testing.assert_allclose(Bigram(corpus(*documents)).after(np.arange(SIZE)).sum(1), 1, rtol=ROUNDING)


def test_pieces_and_shards_count_as_the_whole(documents, monkeypatch):
    whole = Bigram(corpus(*documents)).after(np.arange(SIZE))
    parted = corpus(*documents[:13])
    parted.shards += corpus(*documents[13:]).shards
    monkeypatch.setattr(module, "_PAIRS", 7)
    np.testing.assert_array_equal(Bigram(parted).after(np.arange(SIZE)), whole)


def test_only_masks_with_labels_are_judged_and_masked_neighbours_say_nothing(documents):
    input_ids = np.array([[CLS, MASK, 7, MASK, MASK, SEP, PAD], [MASK, 9, 8, 6, MASK, 5, MASK]])
    labels = np.array([[-100, 6, 7, 8, 9, -100, -100], [5, -100, 10, -100, -100, -100, 11]])
    found = baselines(corpus(*documents), input_ids, labels)
    cases = [(None, 7, 6), (7, None, 8), (None, None, 9), (None, 9, 5), (5, None, 11)]
    predicted = [written_out(documents, left, right) for left, right, _ in cases]
    logs = [math.log(chances[word]) for chances, (*_, word) in zip(predicted, cases)]
    alone = written_out(documents, None, None)
    assert found == pytest.approx(
        {
            "positions": 5,
            "unigram_accuracy": np.mean([alone.argmax() == word for *_, word in cases]),
            "unigram_perplexity": math.exp(-np.mean([math.log(alone[word]) for *_, word in cases])),
            "bigram_accuracy": np.mean([chances.argmax() == word for chances, (*_, word) in zip(predicted, cases)]),
            "bigram_perplexity": math.exp(-np.mean(logs)),
        },
        rel=ROUNDING,
    )


def test_what_one_neighbour_decides_is_predicted():
    found = baselines(
        corpus(*[[[5, 6, 7]], [[8, 9, 7]]] * 50),
        np.array([[5, MASK, MASK], [8, MASK, 7]]),
        np.array([[-100, 6, 7], [-100, 9, -100]]),
    )
    assert found["bigram_accuracy"] == 1 and found["unigram_accuracy"] == pytest.approx(1 / 3)
    assert found["bigram_perplexity"] < 1.5 < found["unigram_perplexity"]


def test_wrong_arrays_are_refused(documents):
    with pytest.raises(ValueError, match="one shape"):
        baselines(corpus(*documents), np.zeros([2, 3]), np.zeros([2, 4]))
    with pytest.raises(ValueError, match="masked positions, got none"):
        baselines(corpus(*documents), np.full([2, 3], 7), np.full([2, 3], 7))
