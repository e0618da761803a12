"""The operator against the definition in NumPy's float64, forward and backward, in every instruction set and dtype."""

import children
import numpy as np
import pytest
from packing import ISA, SETS, Answer, Definition, drawn, instruction_set, off, runnable_sets, tensor
from reference import table

from paddle_nezha import operator
from paddle_nezha._paddle import paddle
from paddle_nezha.native import relative_attention

pytestmark = pytest.mark.usefixtures("seeded")

# float64: sums of up to 2048 products, each rounded by 1.1e-16.
# float32: scores of N(0, 1) inputs reach 4 sqrt(D) = 20 to 60; rounded to 2 ulp they are off by 4e-6, which becomes a
# relative error of the probabilities. Gradients multiply two such numbers. (Typical: 1e-6. The judgement of how good
# the arithmetic is lies with test_operator_accuracy.)
LIMITS = {"float64": 1e-12, "float32": 1e-5}


def check(qkv, grad, lengths, heads, m=0, tables=None, visible=None, queries=None):
    """Holds the operator to the definition: everything it gives, in all instruction sets and dtypes."""
    truth = Definition(qkv, lengths, heads, m, tables, visible, queries=queries)
    slope, slopes = truth.gradients(grad)
    looked_at = ~np.isnan(truth.context[:, 0])
    scale = np.abs(slope).max(initial=0.0) or 1.0  # a lone token's queries and keys have a gradient of 0
    for name in runnable_sets():
        for dtype, limit in LIMITS.items():
            with instruction_set(name):
                answer = Answer(qkv, lengths, heads, m, tables, visible, dtype=dtype)
                grads = answer.gradients(grad)
            what = f"{name}, {dtype}"
            assert off(answer.context[looked_at], truth.context[looked_at]) <= limit, what
            lse = answer.log_sum_exp[:, looked_at]
            assert (
                off(lse, truth.log_sum_exp[:, looked_at], 1 + np.abs(lse[np.isfinite(lse)]).max(initial=0)) <= limit
            ), what
            assert off(grads[0], slope, scale) <= limit, what
            if tables is not None:
                assert off(grads[1], slopes) <= limit, what


# Pairs of length, m and head size, so that every value of each meets several of the others; heads so that neither the
# number of tokens nor that of columns is a multiple of anything.
SHAPES = [
    (1, 64, 8), (1, 1, 64), (1, 127, 2), (2, 5, 32), (2, 127, 8), (2, 1, 256), (7, 1, 8), (7, 64, 64), (7, 5, 6),
    (7, 127, 128), (64, 64, 32), (64, 127, 8), (64, 1, 80), (65, 5, 8), (65, 64, 64), (65, 127, 6), (66, 64, 8),
    (66, 1, 32), (66, 5, 256), (127, 127, 8), (127, 64, 80), (127, 1, 2), (128, 127, 32), (128, 64, 6), (128, 5, 128),
    (129, 64, 8), (129, 127, 64), (129, 1, 128), (130, 127, 8), (130, 5, 80), (130, 64, 2), (200, 64, 8), (200, 5, 64),
    (257, 64, 32), (257, 127, 8), (257, 1, 6),
]  # fmt: skip


@pytest.mark.parametrize("length, m, size", SHAPES)
def test_sinusoid_positions(length, m, size, rng):
    qkv, grad = drawn(rng, 2 * length, 2 if size < 80 else 1, size)
    check(qkv, grad, [length, length], 2 if size < 80 else 1, m)


@pytest.mark.parametrize("length, m, size", SHAPES[::3] + [(5, 70, 8), (40, 41, 34)])
def test_learned_tables_and_their_gradients(length, m, size, rng):
    qkv, grad = drawn(rng, length, 2, size)
    tables = rng.standard_normal([2, 2 * m + 1, size]).astype("float32").astype("float64")
    check(qkv, grad, [length], 2, tables=tables)


@pytest.mark.parametrize("length, size", [(1, 8), (2, 2), (7, 64), (65, 6), (128, 32), (130, 80), (200, 8), (257, 128)])
def test_no_positions(length, size, rng):
    qkv, grad = drawn(rng, length, 2, size)
    check(qkv, grad, [length], 2)


@pytest.mark.parametrize("length, m", [(5, 64), (5, 5000), (1, 100000), (129, 1000)])
def test_a_reach_beyond_the_sequence(length, m, rng):
    """The table's columns are angles up to 2m: float64 holds their sines to 1e-16 m only, in the definition as well."""
    qkv, grad = drawn(rng, length, 2, 8)
    check(qkv, grad, [length], 2, m)


def test_a_reach_beyond_the_sequence_with_learned_tables(rng):
    qkv, grad = drawn(rng, 5, 2, 8)
    check(qkv, grad, [5], 2, tables=rng.standard_normal([2, 1001, 8]).astype("float32").astype("float64"))


@pytest.mark.parametrize(
    "lengths, m", [([5, 200], 1000), ([129], 200), ([130], 200), ([130, 3], 129), ([257, 258], 4000)]
)
def test_tables_cut_to_the_longest_sequence(lengths, m, rng):
    """At 2^k + 1 tokens, where the next table begins, and beside a longer sequence."""
    qkv, grad = drawn(rng, sum(lengths), 1, 8)
    check(qkv, grad, lengths, 1, m)


@pytest.mark.parametrize("lengths", [[16], [5, 0, 17], [1], [70]], ids=str)
def test_rows_of_learned_tables_that_no_pair_is_at_are_not_read(lengths, rng):
    """Whatever they hold, and however many there are, not a bit of the rest changes; their gradient is 0."""
    longest = max(lengths)
    near = rng.standard_normal([2, 2 * longest - 1, 8])
    qkv, grad = drawn(rng, sum(lengths), 2, 8)
    truth = Definition(qkv, lengths, 2, tables=near)
    for name in runnable_sets():
        for dtype, limit in LIMITS.items():
            answers = []
            for extra, content in ((1, 0.0), (1, np.nan), (60, np.inf), (1000, np.nan)):
                tables = np.pad(near, [(0, 0), (extra, extra), (0, 0)], constant_values=content)
                with instruction_set(name):
                    answer = Answer(qkv, lengths, 2, tables=tables, dtype=dtype)
                    slope, slopes = answer.gradients(grad)
                assert (slopes[:, :extra] == 0).all() and (slopes[:, -extra:] == 0).all()
                answers.append((answer.context, answer.log_sum_exp, slope, slopes[:, extra:-extra]))
            assert off(answers[0][0], truth.context) <= limit
            for other in answers[1:]:
                assert all((a == b).all() for a, b in zip(answers[0], other)), (name, dtype)


@pytest.mark.parametrize("length, m, size, learned", [(512, 64, 64, False), (512, 5, 32, True), (2048, 64, 8, False)])
def test_long_sequences_on_a_few_of_their_queries(length, m, size, learned, rng):
    """A gradient for these queries alone makes those of keys, values and tables right without all [L, L, D] pairs."""
    queries = sorted(rng.choice(length, 24, replace=False).tolist() + [0, length - 1])
    qkv, grad = drawn(rng, length, 1, size)
    only = np.zeros_like(grad)
    only[queries] = grad[queries]
    tables = rng.standard_normal([2, 2 * m + 1, size]).astype("float32").astype("float64") if learned else None
    check(qkv, only, [length], 1, 0 if learned else m, tables, queries=queries)


# ---- masks

MASKS = {
    "padding": lambda rng, n: np.arange(n) < n - n // 3,
    "left padding": lambda rng, n: np.arange(n) >= n // 3,
    "holes": lambda rng, n: rng.random(n) < 0.5,
    "one key": lambda rng, n: np.arange(n) == n // 2,
    "the last key": lambda rng, n: np.arange(n) == n - 1,
    "nothing": lambda rng, n: np.zeros(n, bool),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("length, m, learned", [(9, 5, False), (70, 5, True), (140, 64, False), (66, 0, False)])
def test_hidden_keys(name, length, m, learned, rng):
    qkv, grad = drawn(rng, 2 * length, 2, 8)
    visible = np.concatenate([np.ones(length, bool), MASKS[name](rng, length)])
    tables = rng.standard_normal([2, 2 * m + 1, 8]).astype("float32").astype("float64") if learned else None
    check(qkv, grad, [length, length], 2, 0 if learned else m, tables, visible)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", MASKS)
def test_a_hidden_key_gives_and_gets_exactly_nothing(name, dtype, rng):
    length, width = 70, 16
    qkv, grad = drawn(rng, length, 2, 8)
    visible = MASKS[name](rng, length)
    # Products of 1e13 beside scores of 10 would show in any bit; those of the rest are infinite or no number.
    contents = 1e12, np.finfo(dtype).max / 4, -np.inf, np.nan
    for isa in runnable_sets():
        for dropout in (0.0, 0.2):
            answers = []
            for content in (None, *contents):
                changed = qkv.copy()
                if content is not None:
                    changed[~visible, width:] = content
                paddle.seed(1)
                with instruction_set(isa):
                    one = Answer(changed, [length], 2, 5, visible=visible, dropout=dropout, dtype=dtype)
                    answers.append((one.context, one.log_sum_exp, one.gradients(grad)[0]))
            context, log_sum_exp, slope = answers[0]
            for other in answers[1:]:
                assert all((a == b).all() for a, b in zip(answers[0], other)), isa
            assert (slope[~visible, width:] == 0).all()
            if not visible.any():
                assert (context == 0).all() and (slope == 0).all() and (log_sum_exp == -np.inf).all()


# ---- packing and batches

PACKED = [
    [1], [0, 5], [5, 0], [0, 0, 3, 0, 0, 4, 0], [1, 1, 1, 1], [130, 1, 64, 7, 200], [3, 257], [16, 17, 15, 48, 49],
]  # fmt: skip


@pytest.mark.parametrize("lengths", PACKED, ids=str)
@pytest.mark.parametrize("learned", [False, True], ids=["sinusoid", "learned"])
def test_packed_sequences(lengths, learned, rng):
    qkv, grad = drawn(rng, sum(lengths), 3, 6)
    tables = rng.standard_normal([2, 11, 6]).astype("float32").astype("float64") if learned else None
    visible = rng.random(sum(lengths)) < 0.8
    check(qkv, grad, lengths, 3, 0 if learned else 64, tables, visible)


@pytest.mark.parametrize("batch, length", [(1, 9), (3, 33), (5, 1)])
def test_a_batch_is_its_rows_packed(batch, length, rng):
    qkv, grad = drawn(rng, batch * length, 2, 8)
    visible = rng.random([batch, length]) < 0.7
    packed = Answer(qkv, [length] * batch, 2, 5, visible=visible.reshape(-1))
    whole = Answer(qkv.reshape(batch, length, -1), None, 2, 5, visible=visible)
    assert whole.context.shape == (batch, length, 16) and whole.log_sum_exp.shape == (2, batch, length)
    assert (whole.context.reshape(packed.context.shape) == packed.context).all()
    assert (whole.log_sum_exp.reshape(2, -1) == packed.log_sum_exp).all()
    slope, flat = whole.gradients(grad.reshape(batch, length, -1))[0], packed.gradients(grad)[0]
    assert slope.shape == (batch, length, 48) and (slope.reshape(flat.shape) == flat).all()


# ---- hard numbers


def test_scores_200_apart_do_not_overflow(rng):
    qkv, grad = drawn(rng, 70, 2, 8)
    qkv[:, :32] *= 20
    truth = Definition(qkv, [70], 2, 5)
    assert np.ptp(truth.parts[0][0].scores) > 2000
    slope = truth.gradients(grad)[0]
    for name in runnable_sets():
        # A score of 2000 is rounded by 1.1e-13 (float64) or 1.2e-4, twice or so, which its probability repeats.
        for dtype, limit in (("float64", 1e-11), ("float32", 2e-3)):
            with instruction_set(name):
                answer = Answer(qkv, [70], 2, 5, dtype=dtype)
                got = answer.gradients(grad)[0]
            assert off(answer.context, truth.context) <= limit, (name, dtype)
            assert off(got, slope) <= limit, (name, dtype)


@pytest.mark.parametrize("m", [0, 5])
def test_equal_scores_give_the_mean(m):
    """All-zero queries: each context is the mean of values and relative rows, exact to a few ulp."""
    length = 200
    values = np.random.default_rng(3).standard_normal([length, 8])
    qkv = np.concatenate([np.zeros([length, 16]), values], 1)
    answer = Answer(qkv, [length], 1, m)
    rows = np.clip(np.arange(length)[None] - np.arange(length)[:, None], -m, m) + m
    expected = values.mean(0) + (table(m, 8)[rows].mean(1) if m else 0.0)
    assert off(answer.context, np.broadcast_to(expected, answer.context.shape)) <= 1e-14  # 200 additions, some by 16s
    assert off(answer.log_sum_exp, np.full([1, length], np.log(length))) <= 1e-15


# ---- the forms against each other


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("masked", [False, True], ids=["all visible", "masked"])
@pytest.mark.parametrize("length, m", [(1, 5), (65, 64), (140, 5)])
def test_the_forms_agree(length, m, masked, dtype, rng):
    batch, heads, size = 2, 2, 8
    qkv, grad = drawn(rng, batch * length, heads, size)
    visible = np.arange(length) < np.array([length, max(1, length // 2)])[:, None]
    shape = [batch, length, heads, size]
    answers = []
    whole = Answer(qkv.reshape(batch, length, -1), None, heads, m, visible=visible if masked else None, dtype=dtype)
    slope = whole.gradients(grad.reshape(batch, length, -1))[0]
    answers.append([whole.context, *np.split(slope, 3, -1)])
    one = paddle.to_tensor(table(m, size).astype(dtype))
    for form in ("blocked", "dense"):
        inputs = [tensor(x.reshape(shape).transpose(0, 2, 1, 3), dtype) for x in np.split(qkv, 3, 1)]
        seen = paddle.to_tensor(visible[:, None, None]) if masked else None
        context, _ = relative_attention(*inputs, one, one, visible=seen, form=form)
        context.backward(paddle.to_tensor(grad.reshape(shape).transpose(0, 2, 1, 3).astype(dtype)))
        parts = [context.numpy(), *(x.grad.numpy() for x in inputs)]
        answers.append([x.transpose(0, 2, 1, 3).reshape(batch, length, -1) for x in parts])
    scale = np.abs(slope).max()
    for other in answers[1:]:
        assert off(answers[0][0], other[0]) <= 2 * LIMITS[dtype]  # both may be off
        for got, expected in zip(answers[0][1:], other[1:]):
            assert off(got, expected, scale) <= 2 * LIMITS[dtype]


# ---- the choice of the instruction set


def test_the_best_set_is_taken_unless_the_environment_names_one(monkeypatch):
    names = runnable_sets()
    assert names == [name for name in SETS if name in names] and names[-1] == "portable"
    for unset in (None, ""):
        monkeypatch.delenv(ISA, raising=False) if unset is None else monkeypatch.setenv(ISA, unset)
        assert operator.instruction_set() == names[0]
    for name in names:
        monkeypatch.setenv(ISA, name)
        assert operator.instruction_set() == name


def test_the_sets_round_differently_so_they_are_different_code(rng):
    """Or the tests above would hold one of them three times."""
    qkv, _ = drawn(rng, 140, 2, 32)
    answers = {}
    for name in runnable_sets():
        with instruction_set(name):
            answers[name] = Answer(qkv, [140], 2, 64, dtype="float32").context.tobytes()
    assert len(set(answers.values())) == len(answers)


_SHRINKING = """
import numpy as np
from packing import Answer, drawn, starts_of
from paddle_nezha._paddle import paddle
for dtype, lengths in (("float64", [1368, 1360]), ("float32", [2736, 2720])):
    qkv, grad = drawn(np.random.default_rng(0), sum(lengths), 1, 2)
    packed = Answer(qkv, lengths, 1, 3, dtype=dtype)
    slope = packed.gradients(grad)[0]
    for first, end in zip(starts_of(lengths), starts_of(lengths)[1:]):
        alone = Answer(qkv[first:end], [end - first], 1, 3, dtype=dtype)
        assert (packed.context[first:end] == alone.context).all()
        assert (slope[first:end] == alone.gradients(grad[first:end])[0]).all()
"""


def test_lengths_at_which_the_blocks_of_queries_shrink():
    """The block of a shorter sequence may be the larger one: memory made for the longest must hold it.

    In a process of its own, which a write beyond its memory ends, most often. (The sanitizers' calls hold the same.)
    """
    children.run(_SHRINKING, changes={"MALLOC_PERTURB_": 85}, timeout=40)
