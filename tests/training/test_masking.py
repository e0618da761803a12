"""Which tokens are hidden, how many, and by what: counted over a million tokens, and against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training.masking import IGNORED, Masking, _fitting

VOCABULARY = 5000
PAD, UNK, CLS, SEP, MASK = SPECIAL = (0, 100, 101, 102, 103)  # as in BERT's vocabulary: among the ordinary ones
LENGTH, ROWS = 128, 8000  # 1,008,000 tokens beside [CLS] and [SEP]


def masking(**changes):
    return Masking(**{"vocab_size": VOCABULARY, "special_ids": SPECIAL, "mask_id": MASK, **changes})


def rows_of(words, length=None, first_id=200):
    """ids, word starts of [CLS] words [SEP] padding; `words` are lists of the words' sizes, one list a row."""
    length = length or max(sum(sizes) for sizes in words) + 2
    ids, starts = np.full([len(words), length], PAD, "int64"), np.ones([len(words), length], bool)
    for row, sizes in enumerate(words):
        n = sum(sizes)
        ids[row, : n + 2] = [CLS, *range(first_id, first_id + n), SEP]
        starts[row, 1 : n + 1] = [place == 0 for size in sizes for place in range(size)]
    return ids, starts


@pytest.fixture
def keys(rng):
    return lambda count: rng.integers(0, 2**64, count, dtype="uint64")


@pytest.fixture(scope="module")
def million():
    """Text with words as long as Chinese ones are, 1 to 4 tokens, and some [UNK]."""
    rng = np.random.default_rng(5)
    ordinary = np.setdiff1d(np.arange(VOCABULARY), SPECIAL)
    ids = rng.choice(ordinary, [ROWS, LENGTH])
    ids[rng.random(ids.shape) < 0.003] = UNK
    starts = np.ones([ROWS, LENGTH], bool)
    starts[:, 2:-1] = False
    ends = 1 + rng.choice([1, 2, 3, 4], starts.shape, p=[0.45, 0.42, 0.08, 0.05]).cumsum(1)
    np.put_along_axis(starts, np.minimum(ends, LENGTH - 1), True, 1)
    ids[:, 0], ids[:, -1] = CLS, SEP
    return ids, starts


def parts(labels, starts):
    """Of each word, how many of its tokens are labelled, and how many it has."""
    first = np.flatnonzero(starts)
    return np.add.reduceat((labels != IGNORED).ravel().astype(int), first), np.diff(first, append=starts.size)


@pytest.mark.parametrize("draw_per", ["token", "word"])
@pytest.mark.parametrize("whole_word", [True, False])
def test_a_million_tokens(million, keys, whole_word, draw_per):
    ids, starts = million
    masked, labels = masking(whole_word=whole_word, draw_per=draw_per)(ids, starts, keys(ROWS))
    predicted = labels != IGNORED

    assert not np.isin(ids[predicted], SPECIAL).any()
    assert np.array_equal(labels[predicted], ids[predicted])
    assert np.array_equal(masked[~predicted], ids[~predicted])
    labelled, sizes = parts(labels, starts)
    split = (labelled > 0) & (labelled < sizes)
    first = np.flatnonzero(starts)
    maskable = ~np.logical_or.reduceat(np.isin(ids, SPECIAL).ravel(), first)
    if whole_word:
        assert split.sum() == 0
        assert sizes[maskable].sum() > 990_000
        assert predicted.sum() / sizes[maskable].sum() == pytest.approx(0.15, abs=0.003)
    else:
        assert split.sum() > 10_000
        assert predicted.sum() / (~np.isin(ids, SPECIAL)).sum() == pytest.approx(0.15, abs=0.003)

    now, before = masked[predicted], ids[predicted]
    assert (now == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert ((now != MASK) & (now != before)).mean() == pytest.approx(0.1, abs=0.01)
    assert (now == before).mean() == pytest.approx(0.1, abs=0.01)
    assert not np.isin(now[now != MASK], SPECIAL).any()

    # Within a predicted word of two tokens: whether its tokens fare alike.
    pairs = first[(sizes == 2) & (labelled == 2)]
    alike = (masked.ravel()[pairs] == MASK) == (masked.ravel()[pairs + 1] == MASK)
    if draw_per == "word" and whole_word:
        assert len(pairs) > 10_000 and alike.all()
    else:
        assert len(pairs) > 2000
        assert alike.mean() == pytest.approx(0.8**2 + 0.2**2, abs=5 * (0.68 * 0.32 / len(pairs)) ** 0.5)


def test_random_tokens_are_uniform_over_the_ordinary_ones(keys):
    ids, starts = rows_of([[1] * 100] * 5000)
    small = masking(vocab_size=310, replacement=(0.0, 1.0, 0.0), mask_probability=1.0)
    masked, labels = small(ids, starts, keys(len(ids)))
    drawn = np.bincount(masked[labels != IGNORED], minlength=310)
    assert not drawn[list(SPECIAL)].any()
    drawn = np.delete(drawn, SPECIAL)
    assert drawn.sum() == 500_000
    mean = 500_000 / 305
    assert np.abs(drawn - mean).max() < 5 * mean**0.5  # of a Poisson count, 305 times


def test_every_place_is_chosen_as_often(keys):
    ids, starts = rows_of([[1] * 20] * 40_000)
    _, labels = masking()(ids, starts, keys(len(ids)))
    predicted = labels[:, 1:-1] != IGNORED
    assert (predicted.sum(1) == 3).all()
    assert np.abs(predicted.mean(0) - 0.15).max() < 5 * (0.15 * 0.85 / 40_000) ** 0.5
    together = np.corrcoef(predicted.T)[~np.eye(20, dtype=bool)]
    assert np.abs(together + 1 / 19).max() < 5 / 40_000**0.5  # -1 / 19: three of twenty, without putting back


@pytest.mark.parametrize(
    "tokens, probability, predicted",
    [(1, 0.15, 1), (9, 0.15, 1), (10, 0.15, 2), (17, 0.15, 3), (100, 0.15, 15), (100, 1.0, 100), (7, 0.01, 1)],
)
def test_the_budget_is_rounded_and_at_least_one(keys, tokens, probability, predicted):
    ids, starts = rows_of([[1] * tokens])
    _, labels = masking(mask_probability=probability)(ids, starts, keys(1))
    assert (labels != IGNORED).sum() == predicted


def test_max_predictions(keys):
    ids, starts = rows_of([[1, 2, 3] * 20] * 200)
    _, labels = masking(max_predictions=5)(ids, starts, keys(200))
    assert ((labels != IGNORED).sum(1) == 5).all()


def test_where_every_word_is_too_long_one_of_the_shortest_is_predicted(keys):
    ids, starts = rows_of([[4, 3, 5, 3]] * 400)  # a budget of 2
    _, labels = masking()(ids, starts, keys(400))
    chosen = {tuple(np.flatnonzero(row != IGNORED)) for row in labels}
    assert chosen == {(5, 6, 7), (13, 14, 15)}
    _, labels = masking(max_predictions=2)(ids, starts, keys(400))
    assert (labels == IGNORED).all()


def test_a_word_with_an_unknown_character_stays_and_so_do_empty_rows(keys):
    ids, starts = rows_of([[2, 2], [2], []])
    ids[0, 2] = ids[1, 1] = UNK
    masked, labels = masking(mask_probability=1.0)(ids, starts, keys(3))
    predicted = labels != IGNORED
    assert np.flatnonzero(predicted[0]).tolist() == [3, 4]
    assert not predicted[1:].any()
    assert np.array_equal(masked[1:], ids[1:])


@pytest.mark.parametrize("draw_per", ["token", "word"])
def test_a_row_depends_on_its_key_alone(million, keys, draw_per):
    ids, starts = (part[:40] for part in million)
    row_keys, mask = keys(40), masking(draw_per=draw_per)
    together = mask(ids, starts, row_keys)
    wider = [np.pad(part, [(0, 0), (0, 16)], constant_values=value) for part, value in ((ids, PAD), (starts, True))]
    padded = mask(*wider, row_keys)
    for row in range(40):
        alone = mask(ids[row : row + 1], starts[row : row + 1], row_keys[row : row + 1])
        for a, b, c in zip(alone, together, padded):
            assert np.array_equal(a[0], b[row]) and np.array_equal(a[0], c[row, :LENGTH])
    other = mask(ids, starts, row_keys + np.uint64(1))
    assert (other[1] != together[1]).any(1).all()


def test_what_is_given_is_not_changed(million, keys):
    ids, starts = (part[:40].copy() for part in million)
    masking()(ids, starts, keys(40))
    masking(whole_word=False)(ids, starts, keys(40))
    assert np.array_equal(ids, million[0][:40]) and np.array_equal(starts, million[1][:40])


def test_a_vocabulary_of_special_tokens_alone_is_refused():
    with pytest.raises(ValueError, match="5 entries must hold more than the special ones"):
        Masking(vocab_size=5, special_ids=range(5), mask_id=4)


def one_by_one(sizes, budget):
    taken = []
    for size in sizes:
        fits = 0 < size <= budget
        taken.append(fits)
        budget -= size * fits
    return taken


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.lists(st.integers(0, 7), min_size=12, max_size=12), st.integers(0, 30)), min_size=1))
def test_words_are_taken_as_one_by_one(rows):
    taken = _fitting(np.array([sizes for sizes, _ in rows]), np.array([budget for _, budget in rows]))
    assert taken.tolist() == [one_by_one(sizes, budget) for sizes, budget in rows]
