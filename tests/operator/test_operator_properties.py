"""Properties of the operator that hold whatever the shapes, masks and packings: hypothesis looks for exceptions."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing import Answer, Definition, drawn, instruction_set, off, runnable_sets, starts_of

from paddle_nezha._paddle import paddle

pytestmark = pytest.mark.usefixtures("seeded")

# The same examples in every run; a machine that is busy is no failure.
FEW = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# As in test_operator_numbers, whose sizes these are below.
LIMITS = {"float64": 1e-12, "float32": 1e-5}


@st.composite
def cases(draw):
    some = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 140)), min_size=1, max_size=4)
    lengths = draw(some.filter(any))  # no token at all is test_operator_refusals' business
    heads, size = draw(st.integers(1, 3)), 2 * draw(st.integers(1, 24))
    m = draw(st.sampled_from([0, 1, 2, 5, 16, 63, 64, 127]))
    learned = draw(st.booleans()) and m > 0
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    qkv, grad = drawn(rng, sum(lengths), heads, size)
    tables = rng.standard_normal([2, 2 * m + 1, size]).astype("float32").astype("float64") if learned else None
    share = draw(st.sampled_from([None, 0.0, 0.2, 0.8, 0.97, 1.0]))
    visible = None if share is None else rng.random(sum(lengths)) < share
    return {
        "qkv": qkv, "grad": grad, "lengths": lengths, "heads": heads, "m": 0 if learned else m, "tables": tables,
        "visible": visible, "dtype": draw(st.sampled_from(sorted(LIMITS))),
        "isa": draw(st.sampled_from(runnable_sets())),
    }  # fmt: skip


def answer(case, **changes):
    """Context, log-sum-exp and the gradients of qkv and tables."""
    case = {**case, **changes}
    grad, isa = case.pop("grad"), case.pop("isa")
    with instruction_set(isa):
        one = Answer(**case)
        return [one.context, one.log_sum_exp, *one.gradients(grad)]


def parts(case):
    """The sequences on their own."""
    for first, end in zip(starts_of(case["lengths"]), starts_of(case["lengths"])[1:]):
        visible = None if case["visible"] is None else case["visible"][first:end]
        yield slice(first, end), {"qkv": case["qkv"][first:end], "grad": case["grad"][first:end],
                                  "lengths": [end - first], "visible": visible}  # fmt: skip


@FEW
@given(cases())
def test_equal_to_the_definition(case):
    truth = Definition(*(case[name] for name in ("qkv", "lengths", "heads", "m", "tables", "visible")))
    slope, slopes = truth.gradients(case["grad"])
    context, log_sum_exp, got, got_tables = answer(case)
    limit, scale = LIMITS[case["dtype"]], np.abs(slope).max(initial=0.0) or 1.0
    assert off(context, truth.context) <= limit
    assert off(log_sum_exp, truth.log_sum_exp, 10) <= limit  # scores of up to 30
    assert off(got, slope, scale) <= limit
    if slopes is not None:
        assert off(got_tables, slopes) <= limit


@FEW
@given(cases())
def test_packed_sequences_are_separate_ones(case):
    context, log_sum_exp, slope, slopes = answer(case)
    total = 0.0
    for where, changes in parts(case):
        if not context[where].size:  # a sequence of no tokens: alone it never reaches the operator
            continue
        alone = answer(case, **changes)
        # Bit for bit: a sequence does not know what stands beside it.
        assert (context[where] == alone[0]).all() and (log_sum_exp[:, where] == alone[1]).all()
        assert (slope[where] == alone[2]).all()
        total = total + (0.0 if slopes is None else alone[3].astype("float64"))
    if slopes is not None:  # another order of a few additions
        assert off(slopes, total) <= 10 * LIMITS[case["dtype"]]


@FEW
@given(cases(), st.sampled_from([1e3, 1e12, -1e30, 1e-300]), st.randoms())
def test_what_a_hidden_key_holds_does_not_matter(case, value, random):
    if case["visible"] is None or case["visible"].all():
        return
    hidden = np.flatnonzero(~case["visible"])
    width = case["qkv"].shape[1] // 3
    changed = case["qkv"].copy()
    changed[random.choice(hidden), width:] = value
    before, after = answer(case), answer(case, qkv=changed)
    assert all(a is b or (a == b).all() for a, b in zip(before, after))
    assert (before[2][hidden, width:] == 0).all()


@FEW
@given(cases(), st.randoms())
def test_heads_in_another_order_give_their_contexts_in_that_order(case, random):
    heads, tokens = case["heads"], len(case["qkv"])
    order = random.sample(range(heads), heads)

    def moved(x, sides):
        return x.reshape(tokens, sides, heads, x.shape[1] // sides // heads)[:, :, order].reshape(x.shape)

    before, after = answer(case), answer(case, qkv=moved(case["qkv"], 3), grad=moved(case["grad"], 1))
    assert (moved(before[0], 1) == after[0]).all() and (before[1][order] == after[1]).all()
    assert (moved(before[2], 3) == after[2]).all()


@FEW
@given(cases(), st.integers(0, 30), st.integers(0, 30))
def test_where_a_sequence_stands_does_not_matter(case, before, behind):
    """Moved along by other sequences' tokens: distances within it stay."""
    rng = np.random.default_rng(before)
    extra = [drawn(rng, n, case["heads"], case["qkv"].shape[1] // 3 // case["heads"]) for n in (before, behind)]
    wide = {name: np.concatenate([extra[0][i], case[name], extra[1][i]]) for i, name in enumerate(("qkv", "grad"))}
    visible = None
    if case["visible"] is not None:
        visible = np.concatenate([np.ones(before, bool), case["visible"], np.ones(behind, bool)])
    here, there = answer(case), answer(case, **wide, lengths=[before, *case["lengths"], behind], visible=visible)
    where = slice(before, before + len(case["qkv"]))
    assert (here[0] == there[0][where]).all() and (here[1] == there[1][:, where]).all()
    assert (here[2] == there[2][where]).all()


@FEW
@given(cases())
def test_padding_on_the_right_is_no_padding(case):
    """A batch padded to its longest row, the padding hidden: what packing leaves away."""
    lengths, longest = case["lengths"], max(case["lengths"])
    real = np.arange(longest) < np.array(lengths)[:, None]

    def padded(x, fill):
        wide = np.full([*real.shape, *x.shape[1:]], fill, x.dtype)
        wide[real] = x
        return wide

    seen = padded(np.ones(len(case["qkv"]), bool) if case["visible"] is None else case["visible"], False)
    packed = answer(case)
    batch = answer(case, qkv=padded(case["qkv"], 3.0), grad=padded(case["grad"], 0.0), lengths=None, visible=seen)
    limit, scale = LIMITS[case["dtype"]], np.abs(packed[2]).max(initial=0.0) or 1.0
    assert off(batch[0][real], packed[0]) <= limit and off(batch[2][real], packed[2], scale) <= limit


@FEW
@given(cases(), st.sampled_from([0.1, 0.5, 0.9]), st.integers(0, 1000))
def test_dropout_repeats_and_keeps_hidden_keys_hidden(case, dropout, seed):
    width = case["qkv"].shape[1] // 3
    answers = []
    for _ in range(2):
        paddle.seed(seed)
        answers.append(answer(case, dropout=dropout))
    assert all(a is b or (a == b).all() for a, b in zip(*answers))
    assert all(np.isfinite(x).all() for x in (answers[0][0], answers[0][2]))
    if case["visible"] is not None:
        assert (answers[0][2][~case["visible"], width:] == 0).all()
