"""Batches of similar length: every example once, budgets kept, padding bounded, the same for all processes."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training.sampling import POOL_BATCHES, LengthBatchSampler, feature_lengths


def as_lists(batches):
    return [batch.tolist() for batch in batches]


def padding(lengths, batches):
    return sum(len(batch) * lengths[batch].max() - lengths[batch].sum() for batch in batches)


@pytest.fixture
def corpus(rng):
    """Lengths as texts have them: mostly short, with a tail to 512."""
    return np.minimum(512, 4 + rng.lognormal(3.5, 0.9, 20_000).astype("int64"))


limits = st.one_of(
    st.fixed_dictionaries({"tokens_per_batch": st.integers(1, 300), "unpad": st.booleans()}),
    st.fixed_dictionaries({"batch_size": st.integers(3, 20)}),
)


@given(
    st.lists(st.integers(1, 60), min_size=3, max_size=300),
    limits,
    st.integers(1, 3),
    st.sampled_from([1, 8]),
    st.booleans(),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=200)
def test_every_example_once_within_the_budget(lengths, limit, minimum, multiple, shuffle, epoch):
    sampler = LengthBatchSampler(lengths, **limit, minimum_rows=minimum, pad_to_multiple_of=multiple, shuffle=shuffle)
    batches = sampler.batches(epoch)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert min(map(len, batches)) >= minimum
    real = np.array(lengths)
    counted = real if limit.get("unpad") else -(-real // multiple) * multiple
    for batch in batches:
        rows = counted[batch]
        assert (np.diff(rows) <= 0).all()  # the longest first
        cost = rows.sum() if limit.get("unpad") else rows.size * rows.max()
        too_much = len(batch) > limit["batch_size"] if "batch_size" in limit else cost > limit["tokens_per_batch"]
        assert not too_much or len(batch) < 2 * minimum


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("minimum", [1, 4])
def test_padding_is_bounded_by_a_budget(corpus, epoch, minimum):
    """T * ln(longest / shortest) a pool, whatever the lengths; and what that is for these."""
    budget = 4096
    sampler = LengthBatchSampler(corpus, tokens_per_batch=budget, minimum_rows=minimum)
    batches = sampler.batches(epoch)
    pools = max(1, round(len(corpus) / (POOL_BATCHES * int(budget / corpus.mean()))))
    waste = padding(corpus, batches)
    assert pools > 1 and waste <= pools * budget * np.log(corpus.max() / corpus.min())
    assert waste / corpus.sum() < 0.03
    unsorted = np.array_split(np.random.default_rng(epoch).permutation(len(corpus)), len(batches))
    assert padding(corpus, unsorted) > 20 * waste  # the bound would hold for no plan


def test_padding_is_bounded_by_the_fixed_size(corpus):
    sampler = LengthBatchSampler(corpus, batch_size=32)
    pools = -(-len(corpus) // (32 * POOL_BATCHES))
    assert padding(corpus, sampler.batches(0)) <= pools * 32 * (corpus.max() - corpus.min())
    whole = LengthBatchSampler(corpus, batch_size=32, shuffle=False)
    assert padding(corpus, whole.batches(0)) <= 32 * (corpus.max() - corpus.min())
    assert sorted(map(len, sampler.batches(0)))[1:] == [32] * (len(corpus) // 32 - (len(corpus) % 32 == 0))


def test_real_tokens_fill_the_budget_where_padding_is_removed(corpus):
    sampler = LengthBatchSampler(corpus, tokens_per_batch=4096, unpad=True)
    tokens = [corpus[batch].sum() for batch in sampler.batches(0)]
    assert max(tokens) <= 4096 and sum(tokens) / len(tokens) > 4096 * 0.95
    for unpad, expected in ((True, [[0, 1, 2, 3], [4]]), (False, [[0, 1], [2, 3, 4]])):
        sampler = LengthBatchSampler([10, 5, 3, 2, 1], tokens_per_batch=20, unpad=unpad, shuffle=False)
        assert as_lists(sampler.batches(0)) == expected


def test_what_is_left_of_the_last_pool_makes_no_small_batch():
    sampler = LengthBatchSampler([5] * (4 * POOL_BATCHES + 1), batch_size=4, minimum_rows=3)
    assert sorted(map(len, sampler.batches(0))) == [4] * (POOL_BATCHES - 1) + [5]
    sampler = LengthBatchSampler([5] * 9, batch_size=8, minimum_rows=3, shuffle=False)
    assert [len(batch) for batch in sampler.batches(0)] == [6, 3]


def test_epochs_and_seeds_shuffle_and_nothing_else_does(corpus):
    def plan(epoch, **options):
        return as_lists(LengthBatchSampler(corpus, tokens_per_batch=4096, **options).batches(epoch))

    assert plan(0) == plan(0) != plan(1) and plan(0, seed=1) != plan(0)
    together = [{frozenset(batch) for batch in plan(epoch)} for epoch in (0, 1)]
    assert len(together[0] & together[1]) < 5  # examples meet others
    longest = [corpus[batch].max() for batch in plan(0)]
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.1  # batches of all lengths, at any time
    begins = [
        [corpus[batch[0]] for batch in LengthBatchSampler(corpus, batch_size=16).batches(epoch)] for epoch in (0, 1)
    ]
    assert abs(np.corrcoef(*begins)[0, 1]) < 0.1  # and at other times in the next epoch
    assert plan(0, shuffle=False) == plan(3, shuffle=False, seed=9)


@pytest.mark.parametrize("limit", [{"tokens_per_batch": 500}, {"batch_size": 16}])
def test_any_number_of_processes_shares_the_same_batches(rng, limit):
    lengths = rng.integers(3, 80, 1001)
    alone = LengthBatchSampler(lengths, **limit, minimum_rows=4)
    for processes in (1, 2, 3, 4):
        shares = [
            LengthBatchSampler(lengths, **limit, minimum_rows=4, rank=rank, processes=processes)
            for rank in range(processes)
        ]
        passes = [list(share) for share in shares]
        assert [len(one) for one in passes] == [len(alone)] * processes
        for batch, *parts in zip(alone.batches(0), *passes):
            assert sorted(place for part in parts for place in part) == sorted(batch.tolist())
            sizes = [len(part) for part in parts]
            assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


def test_a_pass_begins_anywhere_and_the_next_one_is_the_next_epoch(rng):
    lengths = rng.integers(3, 80, 500)
    whole = LengthBatchSampler(lengths, tokens_per_batch=300)
    first, second = list(whole), list(whole)
    assert first == as_lists(whole.batches(0)) and second == as_lists(whole.batches(1)) and whole.epoch == 2
    everything = first + second
    for number in (0, 1, len(first) - 1, len(first), len(first) + 7):
        again = pickle.loads(pickle.dumps(LengthBatchSampler(lengths, tokens_per_batch=300)))
        again.resume(number)
        rest = (first if number < len(first) else everything)[number:]
        assert len(again) == len(rest) and list(again) == rest
    again.set_epoch(1, 3)
    assert next(iter(again)) == second[3] and list(again) == second[3:] and again.epoch == 2
    again.set_epoch(1, len(second))
    assert list(again) == [] and len(again) == len(again.batches(2))


def test_lengths_of_features():
    assert feature_lengths([{"input_ids": [1, 2, 3]}, {"input_ids": [[1], [1, 2]]}]) == [3, 4]


@pytest.mark.parametrize(
    "lengths, options, message",
    [
        ([3], {}, "Give tokens_per_batch or batch_size, one of the two, but got None and None"),
        ([3], {"tokens_per_batch": 9, "batch_size": 2}, "one of the two, but got 9 and 2"),
        ([3], {"batch_size": 0}, "batch_size must be a whole number of at least 1, but got 0"),
        ([3], {"batch_size": 2, "rank": 1}, "rank must be below processes=1, but got 1"),
        ([3, 3], {"batch_size": 2, "processes": 2}, "an example for each of 2 processes, but minimum_rows is 1"),
        ([3, 3], {"batch_size": 2, "minimum_rows": 3}, "batch_size must be at least minimum_rows=3"),
        ([3], {"batch_size": 2, "processes": 2, "minimum_rows": 2}, "at least 2 examples, each at least 1, but got 1"),
        ([], {"batch_size": 2}, "at least 1 examples, each at least 1, but got 0 of them: check the data"),
        ([3, 0], {"batch_size": 2}, "but got 2 of them, the shortest 0"),
    ],
)
def test_mistakes(lengths, options, message):
    with pytest.raises(ValueError, match=message):
        LengthBatchSampler(lengths, **options)


def test_a_batch_that_is_not_there():
    sampler = LengthBatchSampler([3] * 10, batch_size=2)
    with pytest.raises(ValueError, match="first_batch must be from 0 to 5, the batches of epoch 2, but got 6"):
        sampler.set_epoch(2, 6)
