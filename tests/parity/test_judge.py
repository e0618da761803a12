"""The model through the judge: every case and head in float64, and the float32 question on a few."""

import numpy as np
import pytest

from paddle_nezha.checkpoint import parameter_shapes
from parity.cases import CASES, make_sample
from parity.judge import arithmetic_rows, formula_rows, judge_arithmetic, judge_formula
from parity.sides import FORMS, Observed, PaddleSide, TorchSide, missing_stages
from parity.stages import HEADS, forward_stages, ratio_limit

BY_NAME = {case.name: case for case in CASES}
EVERY = [(case.name, head) for case in CASES for head in case.heads]


@pytest.mark.parametrize("name, head", EVERY, ids=lambda value: value)
def test_paddle_in_float64_is_the_reference(name, head):
    rows = judge_formula(BY_NAME[name], head)
    failed = [f"{row.form} {row.stage}: {row.error:.1e} {row.worst} {row.why}" for row in rows if not row.passed]
    assert not failed
    stages = forward_stages(BY_NAME[name].make_config(), head)
    assert [row.stage for row in rows if row.form == "dense"][: len(stages)] == stages
    parameters = {row.stage for row in rows if row.stage.startswith("grad:")}
    tied, embeds = head in ("pretraining", "masked_lm"), BY_NAME[name].embeds
    assert len(parameters) == len(parameter_shapes(BY_NAME[name].make_config(), head)) - tied + embeds


def test_every_head_and_encoding_has_a_case():
    assert {head for case in CASES for head in case.heads} == set(HEADS)
    encodings = {case.make_config().position_encoding for case in CASES}
    assert encodings == {"functional_relative", "parametric_relative", "absolute"}
    assert {case.make_config().max_relative_position for case in CASES} >= {5, 64, 127}


@pytest.mark.parametrize(
    "name, head", [("pad-ragged", "masked_lm"), ("segments", "question_answering"), ("peaked", "pretraining")]
)
def test_paddle_in_float32_is_as_good_as_pytorch(name, head):
    rows = judge_arithmetic(BY_NAME[name], head)
    assert not [(row.form, row.stage, row.ratio, row.why) for row in rows if not row.passed]
    assert {row.form for row in rows} == set(FORMS)


def test_a_sample_is_the_same_every_time_and_differs_by_case_head_and_seed():
    case = BY_NAME["pad-ragged"]
    first, again = make_sample(case, "masked_lm", 0), make_sample(case, "masked_lm", 0)
    np.testing.assert_array_equal(first.inputs["input_ids"], again.inputs["input_ids"])
    name = "nezha.pooler.dense.weight"
    np.testing.assert_array_equal(first.arrays[name], again.arrays[name])
    others = [
        make_sample(case, "masked_lm", 1),
        make_sample(case, "pretraining", 0),
        make_sample(BY_NAME["plain"], "masked_lm", 0),
    ]
    assert all((first.arrays[name] != other.arrays[name]).any() for other in others)


def test_float32_samples_hold_only_what_float32_can():
    sample = make_sample(BY_NAME["embeds"], "model", 0).rounded()
    for array in (*sample.arrays.values(), sample.inputs["inputs_embeds"], *sample.cotangents):
        np.testing.assert_array_equal(array, array.astype(np.float32))


@pytest.fixture
def observed():
    sample = make_sample(BY_NAME["plain"], "masked_lm", 0)
    ours, truth = PaddleSide(sample.config, "masked_lm", "float64"), TorchSide(sample.config, "masked_lm", "float64")
    ours.load(sample.arrays)
    truth.load(sample.arrays)
    return sample, ours.observe(sample, "dense"), truth.observe(sample)


def test_a_stage_that_is_never_reached_is_a_failure(observed):
    sample, ours, truth = observed
    assert missing_stages(ours, sample.config, "masked_lm", "dense") == []
    blind = Observed({name: value for name, value in ours.stages.items() if name != "layer.1.context"}, ours.gradients)
    failed = [row for row in formula_rows("plain", "dense", sample, blind, truth) if not row.passed]
    assert [(row.stage, row.why) for row in failed] == [("layer.1.context", "the model never reached this stage")]


def test_one_element_off_by_a_little_is_seen_and_placed(observed):
    sample, ours, truth = observed
    ours.stages["layer.0.ffn"][1, 2, 3] += 1e-8
    failed = [row for row in formula_rows("plain", "dense", sample, ours, truth) if not row.passed]
    assert [(row.stage, row.worst.index) for row in failed] == [("layer.0.ffn", (1, 2, 3))]


def test_exact_stages_allow_nothing_and_the_table_almost_nothing(observed):
    sample, ours, truth = observed
    ours.stages["rows"] = ours.stages["rows"] + np.eye(7)
    ours.stages["table"] = ours.stages["table"].astype(np.float32).astype(np.float64)
    failed = {row.stage: row.limit for row in formula_rows("plain", "dense", sample, ours, truth) if not row.passed}
    assert failed == {"rows": 0.0, "table": 2e-14}


def _float32(observed, ours_noise, theirs_noise):
    sample, _, truth = observed
    noise = np.random.default_rng(0)

    def shaken(size):
        value = truth.stages["pooler"]
        return Observed({"pooler": value + size * np.abs(value).max() * noise.uniform(-1, 1, value.shape)})

    samples = [
        (sample, shaken(ours_noise), shaken(theirs_noise), Observed({"pooler": truth.stages["pooler"]}))
        for _ in range(8)
    ]
    (row,) = arithmetic_rows("plain", "dense", samples)
    return row


def test_the_ratio_decides_in_float32(observed):
    assert _float32(observed, 1e-6, 1e-6).passed
    twice = _float32(observed, 2e-6, 1e-6)
    assert not twice.passed and 1.6 < twice.ratio < 2.4


def test_equal_errors_pass_however_large_they_are(observed):
    # Two float32 libraries may both be far from the truth on a hard case, and neither wrong.
    assert _float32(observed, 1e-3, 1e-3).passed


def test_a_single_sample_far_out_fails_though_the_mean_is_good(observed):
    sample, _, truth = observed
    right = Observed({"pooler": truth.stages["pooler"]})
    off = Observed({"pooler": truth.stages["pooler"] + 1e-4})
    samples = [(sample, off if number == 3 else right, right, right) for number in range(48)]
    (row,) = arithmetic_rows("plain", "dense", samples)
    assert row.ratio < 1.5 and not row.passed and "one sample" in row.why


def test_only_sums_over_many_tokens_may_be_noisier_than_the_rule():
    assert ratio_limit("grad:pooler.dense.weight", (32, 32), 4096)[0] == 1.5
    assert ratio_limit("layer.0.output", (2, 7, 32), 4096)[0] == 1.5
    assert ratio_limit("grad:pooler.dense.bias", (32,), 64)[0] == 1.5
    limit, why = ratio_limit("grad:pooler.dense.bias", (32,), 256)
    assert limit == 3.0 and "256 tokens" in why
