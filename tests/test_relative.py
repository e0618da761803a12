"""The sinusoid table, and the rows of it that each pair of positions meets."""

import numpy as np
import pytest
import reference

from paddle_nezha._paddle import constant, paddle
from paddle_nezha.native import by_distance, skew, table_like, unskew
from paddle_nezha.relative import relative_table

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.mark.parametrize("m, head_size", [(1, 8), (5, 64), (64, 32), (127, 64), (3, 2)])
def test_table_is_sines_and_cosines_of_float64(m, head_size):
    got = relative_table(m, head_size)
    assert got.dtype == np.float64 and got.shape == (2 * m + 1, head_size)
    # Angles reach 254, so one rounding of an angle is 2.8e-14; most are far smaller.
    assert np.abs(got - reference.table(m, head_size)).max() <= 6e-14


def test_float32_table_is_the_float64_one_rounded_once(tiny):
    config = tiny(hidden_size=256)
    for dtype in ("float32", "float64"):
        got = table_like(paddle.zeros([1], dtype), config)
        assert (got.numpy() == relative_table(64, 64).astype(dtype)).all()
        assert got.stop_gradient


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_tables_follow_the_tensor(dtype, tiny):
    got = table_like(paddle.zeros([1], "float32").astype(dtype), tiny())
    assert str(got.dtype).endswith(dtype)
    # One unit in the last place of values up to 1, 11 and 8 bits long: Paddle 2.6.2 cuts where 3.x rounds.
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert np.abs(got.astype("float32").numpy() - relative_table(64, 8)).max() <= unit


def test_table_is_made_once_for_each_dtype(tiny):
    one, two = (table_like(paddle.zeros([1], dtype), tiny()) for dtype in ("float32", "float64"))
    assert table_like(paddle.ones([5], "float32"), tiny()) is one and two is not one


def test_q66_table_is_made_where_the_tensor_is(tiny, monkeypatch):
    # With a GPU as Paddle's default device, a model kept on the processor still needs its table there.
    places = []
    monkeypatch.setattr(
        "paddle_nezha.native.constant", lambda values, dtype, place: places.append(place) or constant(values, dtype)
    )
    table_like(paddle.zeros([1]), tiny(max_relative_position=33))
    assert places == ["cpu"]


@pytest.mark.parametrize(
    "m, length", [(1, 1), (1, 2), (5, 7), (64, 64), (64, 65), (64, 66), (127, 129), (5, 130), (64, 200)]
)
def test_row_is_key_minus_query_clipped(m, length):
    marks = paddle.arange(2 * m + 1, dtype="float64").unsqueeze(-1)  # a table whose rows name themselves
    by_key = skew(by_distance(marks, 0, length, length).reshape([1, 1, 1, -1]).tile([1, 1, length, 1]), length)
    assert (by_key.numpy()[0, 0] == reference.rows(range(length), length, m)).all()


@pytest.mark.parametrize("first, queries, keys", [(0, 1, 1), (0, 3, 9), (4, 5, 9), (8, 1, 9), (100, 60, 160)])
def test_rows_of_a_block_of_queries(first, queries, keys):
    marks = paddle.arange(2 * 64 + 1, dtype="float64").unsqueeze(-1)
    wide = by_distance(marks, first, queries, keys)
    assert list(wide.shape) == [queries + keys, 1]
    by_key = skew(wide.reshape([1, 1, 1, -1]).tile([1, 1, queries, 1]), keys)
    assert (by_key.numpy()[0, 0] == reference.rows(range(first, first + queries), keys, 64)).all()


@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 5), (4, 4), (3, 7), (6, 2)])
def test_unskew_is_the_transpose_of_skew(queries, keys, rng):
    by_key = paddle.to_tensor(rng.standard_normal([2, 3, queries, keys]))
    by_row = paddle.to_tensor(rng.standard_normal([2, 3, queries, queries + keys]))
    there = (skew(by_row, keys) * by_key).sum().item()
    back = (by_row * unskew(by_key)).sum().item()
    assert there == pytest.approx(back, rel=1e-13)  # the same products, summed in another order
    assert (skew(unskew(by_key), keys) == by_key).all().item()
