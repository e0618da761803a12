"""Windows and batches: everything once, by budget, by the texts alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.pipelines.batches import batches, padded, windows
from paddle_nezha.pipelines.lines import Line

LENGTHS = st.lists(st.integers(2, 50), max_size=60)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200))
def test_every_row_is_in_one_batch_within_the_budget(lengths, budget):
    found = batches(lengths, budget)
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget for batch in found)
    longest = [max(lengths[row] for row in batch) for batch in found]
    assert longest == sorted(longest, reverse=True)


def test_rows_of_like_length_come_together():
    assert batches([2, 9, 3, 9, 2], 18) == [[1, 3], [2, 0, 4]]


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 60), st.integers(1, 3))
def test_windows_keep_the_order_and_do_not_depend_on_where_one_begins(lengths, place, budget):
    lines = [Line(number, "一" * length) for number, length in enumerate(lengths, 1)]
    found = list(windows(lines, budget))
    assert [line for window in found for line in window] == lines
    assert all(sum(len(line.text) for line in window[:-1]) < 32 * budget for window in found)
    begun = sum(map(len, found[:place]))
    assert list(windows(lines[begun:], budget)) == found[place:]  # as a run that goes on


def test_many_empty_lines_fill_a_window_too():
    assert list(map(len, windows([Line(1, "")] * 10_000, 4096))) == [8192, 1808]


def test_padding_is_behind_and_masked():
    ids, mask = padded([[5, 6, 7], [8]], 0)
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]] and mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert ids.dtype == mask.dtype == np.int64


@pytest.mark.parametrize("pad_id", [0, 3])
def test_the_pad_id_is_the_tokenizers(pad_id):
    assert padded([[1, 1], [1]], pad_id)[0][1, 1] == pad_id
