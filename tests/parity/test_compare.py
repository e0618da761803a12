"""The ruler itself: what counts as an error, on which scale, and where it says it is."""

from dataclasses import replace

import numpy as np
import pytest

from parity.cases import Case, make_sample
from parity.compare import distance, scale_of, worst_of
from parity.judge import formula_rows
from parity.sides import Observed
from parity.stages import EXACT, FORMULA_LIMIT, TABLE_LIMIT, forward_stages

REAL = np.array([[True, True, True], [True, False, False]])  # [B, L]: two texts of 3 and 1 tokens
BATCH, LENGTH = REAL.shape
# A stage of each rank that has pads, with an index on a pad and one on a real token.
PADDED = {
    "layer.0.query": ((BATCH, LENGTH, 4), (1, 2, 3), (1, 0, 3)),
    "layer.0.probs": ((BATCH, 2, LENGTH, LENGTH), (1, 0, 2, 0), (1, 0, 0, 2)),
    "layer.1.scores": ((BATCH, 2, LENGTH, LENGTH), (1, 1, 1, 1), (0, 1, 2, 2)),
    "mlm.logits": ((BATCH, LENGTH, 5), (1, 1, 4), (0, 2, 4)),
}


@pytest.fixture
def rng():
    return np.random.default_rng(4)


@pytest.fixture(params=sorted(PADDED))
def padded(request):
    return request.param


# ---- how far


def test_equal_arrays_are_no_distance_apart(rng):
    x = rng.standard_normal((BATCH, 4))
    assert distance("pooler", x, x.copy(), 1.0, REAL)[0] == 0.0


def test_the_error_is_the_largest_difference_over_the_scale_and_says_where(rng):
    truth = rng.standard_normal((BATCH, 4))
    ours = truth.copy()
    ours[1, 2] += 0.5
    ours[0, 1] -= 0.25
    error, index = distance("pooler", ours, truth, 2.0, REAL)
    assert error == pytest.approx(0.25, rel=1e-12)  # one rounding of the sum and of the difference
    assert index == (1, 2)


def test_a_difference_at_a_pad_query_does_not_count_and_one_at_a_real_query_does(padded):
    shape, pad, token = PADDED[padded]
    truth = np.ones(shape)
    for index, expected in ((pad, 0.0), (token, 1.0)):
        ours = truth.copy()
        ours[index] = 2.0
        assert distance(padded, ours, truth, 1.0, REAL)[0] == expected


def test_a_key_that_is_a_pad_counts_for_a_real_query():
    truth = np.zeros((BATCH, 1, LENGTH, LENGTH))
    ours = truth.copy()
    ours[1, 0, 0, 2] = 1e-28  # what a softmax that cannot reach 0 leaves
    assert distance("layer.0.probs", ours, truth, 1.0, REAL) == (1e-28, (1, 0, 0, 2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_infinitely_wrong_even_at_a_pad(padded, bad):
    shape, pad, _ = PADDED[padded]
    ours = np.ones(shape)
    ours[pad] = bad
    assert distance(padded, ours, np.ones(shape), 1.0, REAL) == (float("inf"), pad)


def test_another_shape_is_infinitely_wrong_even_where_it_would_broadcast():
    assert distance("pooler", np.ones((1, 4)), np.ones((BATCH, 4)), 1.0, REAL) == (float("inf"), ())
    assert distance("loss", np.ones((1,)), np.ones(()), 1.0, REAL) == (float("inf"), ())


def test_where_the_truth_is_zero_anything_else_is_infinitely_wrong():
    zeros = np.zeros((BATCH, 4))
    assert distance("pooler", zeros, zeros, 0.0, REAL)[0] == 0.0
    assert distance("pooler", zeros + 1e-300, zeros, 0.0, REAL)[0] == float("inf")


def test_a_square_matrix_turned_is_seen(rng):
    weight = rng.standard_normal((4, 4))
    assert distance("grad:pooler.dense.weight", weight.T, weight, 1.0, REAL)[0] > 0.1


def test_a_scalar_has_an_index_too():
    error, index = distance("loss", np.array(1.5), np.array(1.0), 1.0, REAL)
    assert (error, index) == (0.5, ())
    assert worst_of(index, np.array(1.5), np.array(1.0)).paddle == 1.5


def test_an_empty_array_is_right():
    assert distance("pooler", np.ones((0, 4)), np.ones((0, 4)), 1.0, REAL) == (0.0, ())


# ---- on which scale


def test_the_scale_is_the_largest_truth_over_real_tokens(padded):
    shape, pad, token = PADDED[padded]
    truth = np.ones(shape)
    truth[pad], truth[token] = 100.0, -7.0
    assert scale_of(padded, {padded: truth}, REAL) == 7.0


@pytest.mark.parametrize(
    "stage, sibling",
    [
        ("encoder.layer.1.attention.key.bias", "encoder.layer.1.attention.value.weight"),
        ("encoder.layer.1.attention.key.weight", "encoder.layer.1.attention.query.bias"),
        ("nezha.encoder.layer.1.attention.relative_key.weight", "nezha.encoder.layer.1.attention.value.weight"),
        ("classifier.bias", "classifier.weight"),
        ("encoder.layer.1.layer_norm.bias", "encoder.layer.1.layer_norm.weight"),
    ],
)
@pytest.mark.parametrize("kind", ["grad", "parameter"])
def test_a_parameter_that_may_be_zero_is_measured_by_its_siblings(kind, stage, sibling):
    truth = {f"{kind}:{stage}": np.zeros(3), f"{kind}:{sibling}": np.array([0.0, -5.0])}
    assert scale_of(f"{kind}:{stage}", truth, REAL) == 5.0


@pytest.mark.parametrize(
    "stranger",
    [
        "grad:encoder.layer.11.attention.value.weight",
        "grad:encoder.layer.1.attention.dense.weight",
        "grad:encoder.layer.1.layer_norm.weight",
        "parameter:encoder.layer.1.attention.value.weight",
    ],
)
def test_a_stranger_does_not_lend_its_scale(stranger):
    stage = "grad:encoder.layer.1.attention.key.bias"
    assert scale_of(stage, {stage: np.full(3, 2.0), stranger: np.array([50.0])}, REAL) == 2.0


def test_a_larger_scale_of_its_own_is_kept():
    truth = {"grad:classifier.bias": np.full(3, 9.0), "grad:classifier.weight": np.full((2, 3), 4.0)}
    assert scale_of("grad:classifier.bias", truth, REAL) == 9.0


# ---- where


def test_the_worst_place_holds_all_three_numbers():
    ours, truth, torch = np.array([[1.0, 2.0]]), np.array([[1.0, 3.0]]), np.array([[1.0, 4.0]])
    worst = worst_of((0, 1), ours, truth, torch)
    assert (worst.index, worst.paddle, worst.truth, worst.torch) == ((0, 1), 2.0, 3.0, 4.0)
    assert worst_of((0, 1), ours, truth).torch is None


def test_of_another_shape_no_number_is_given():
    worst = worst_of((), np.ones((1, 4)), np.ones((2, 4)))
    assert worst.index == () and np.isnan(worst.paddle) and np.isnan(worst.truth)


# ---- rows: a whole case measured


@pytest.fixture
def sample():
    return make_sample(Case("ruler", "two texts, one padded", padding="right", mask="2d"), "masked_lm", seed=1)


@pytest.fixture
def truth(sample, rng):
    shapes = {
        "table": (129, 8),
        "rows": (7, 7),
        "mask": (2, 1, 7, 7),
        "pooler": (2, 32),
        "mlm.logits": (2, 7, 99),
        "loss": (),
    }
    for stage in forward_stages(sample.config, "masked_lm"):
        tokens = (2, 4, 7, 7) if stage.endswith((".scores", ".probs")) else (2, 7, 37 if stage.endswith("ffn") else 32)
        shapes.setdefault(stage, tokens)
    arrays = {stage: rng.uniform(-1.0, 1.0, shapes[stage]) for stage in forward_stages(sample.config, "masked_lm")}
    return Observed(arrays, {"classifier.weight": rng.uniform(-1.0, 1.0, (32, 3)), "classifier.bias": np.zeros(3)})


def _failed(sample, ours, truth, form="dense"):
    return [row for row in formula_rows("ruler", form, sample, ours, truth) if not row.passed]


def _shifted(truth, stage, by):
    values = truth.stages[stage].copy()
    values.reshape(-1)[0] += by  # a real token: the first of the first text
    return replace(truth, stages={**truth.stages, stage: values})


def test_the_truth_passes(sample, truth):
    assert _failed(sample, truth, truth) == []


def test_the_limit_is_where_it_is_said_to_be(sample, truth):
    scale = scale_of("pooler", truth.stages, sample.real)
    assert _failed(sample, _shifted(truth, "pooler", 0.9 * FORMULA_LIMIT * scale), truth) == []
    (row,) = _failed(sample, _shifted(truth, "pooler", 1.1 * FORMULA_LIMIT * scale), truth)
    assert row.stage == "pooler" and row.limit == FORMULA_LIMIT and row.worst.index == (0, 0)


def test_the_table_has_a_limit_of_its_own_and_gathers_have_none(sample, truth):
    scale = scale_of("table", truth.stages, sample.real)
    assert [row.stage for row in _failed(sample, _shifted(truth, "table", 2 * TABLE_LIMIT * scale), truth)] == ["table"]
    for stage in EXACT:
        tiny = float(np.spacing(np.abs(truth.stages[stage]).max()))
        assert [row.stage for row in _failed(sample, _shifted(truth, stage, tiny), truth)] == [stage]


def test_a_stage_that_was_never_reached_fails(sample, truth):
    ours = replace(truth, stages={name: x for name, x in truth.stages.items() if name != "layer.1.probs"})
    (row,) = _failed(sample, ours, truth)
    assert row.stage == "layer.1.probs" and "never reached" in row.why
    assert _failed(sample, ours, truth, form="blocked") == []  # which never holds probabilities whole


def test_what_is_no_number_fails_on_either_side(sample, truth):
    broken = _shifted(truth, "loss", np.nan)
    assert [row.stage for row in _failed(sample, broken, truth)] == ["loss"]
    assert [row.stage for row in _failed(sample, truth, broken)] == ["loss"]
    assert [row.stage for row in _failed(sample, broken, broken)] == ["loss"]


def test_gradients_come_in_the_order_of_the_backward(sample, truth):
    rows = [row.stage for row in formula_rows("ruler", "dense", sample, truth, truth)]
    assert rows[-3:] == ["loss", "grad:classifier.bias", "grad:classifier.weight"]
