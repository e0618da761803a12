"""The likely cause: named where a known mistake gives the very numbers, and nowhere else."""

import re
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from dataclasses import replace

import numpy as np
import pytest

from parity import faults
from parity.causes import _HYPOTHESES, _View, likely_cause
from parity.faults.base import find_case
from parity.judge import observe_formula

# The mistakes a report must name, and words it must use.
NAMED = {
    "query-turned": "not transposed",
    "dense-turned": "not transposed",
    "mlm-turned": "not transposed",
    "map-pooler-as-it-is": "not transposed",
    "map-classifier-as-it-is": "not transposed",
    "epsilon": "1e-05",
    "epsilon-of-one-layer": "1e-05",
    "gelu-tanh": "tanh form in place of the erf form",
    "gelu-erf": "erf form in place of the tanh form",
    "mlm-gelu": "tanh form in place of the erf form",
    "distance-sign": "sign of the distance",
    "value-positions-sign": "sign of the distance",
    "clip-early": "m - 1",
    "clip-late": "m + 1",
    "mask-ignored": "mask is ignored",
    "mask-unused": "mask is ignored",
    "mask-inverted": "inverted",
    "mask-on-queries": "queries and keys",
    "mask-additive": "-1e4",
    "query-key-swapped": "the key's",
    "map-query-key": "the key's",
    "map-layers-as-text": "layer 10's",
    "layers-swapped": "layer 1's",
    "norms-swapped": "LayerNorms of the layer are swapped",
    "map-norms": "LayerNorms of the layer are swapped",
    "map-gamma-beta": "weight and bias are swapped",
    "key-bias-dropped": "bias is missing",
    "mlm-bias-dropped": "bias is missing",
    "residual-missing": "residual is missing",
    "table-off-by-one": "row 1",
    "table-float32-buffer": "float32",
    "tables-swapped": "learned table",
    "loss-over-all": "all positions",
    "loss-clipped": "exp(-64)",
    "segments-constant": "zero",
    "block-query-unscaled": "2.82843 times",
}
# Cases in which each formula runs another way.
SOUND = [
    ("plain", "masked_lm"),
    ("pad-ragged", "token_classification"),
    ("row-hidden", "multiple_choice"),
    ("mask-4d-heads", "question_answering"),
    ("segments", "next_sentence"),
    ("embeds", "multiple_choice"),
    ("gelu-tanh", "masked_lm"),
    ("relu", "masked_lm"),
    ("parametric-padded", "pretraining"),
    ("absolute-padded", "sequence_classification"),
    ("epsilon", "model"),
    ("far-logits", "token_classification"),
]
# NumPy's sums against both sides': a few roundings of float64, as in the judge's own limit for a formula.
ROUNDING = 1e-10


@pytest.fixture(scope="module")
def findings():
    return {finding.fault.name: finding for finding in faults.run(names=NAMED)}


@pytest.fixture(scope="module")
def observed():
    sample, truth, seen = observe_formula(find_case("pad-right"), "masked_lm", ("dense",))
    return sample, seen["dense"], truth


@pytest.mark.parametrize("name", NAMED)
def test_a_known_mistake_is_named(findings, name):
    assert NAMED[name] in findings[name].cause


@pytest.mark.parametrize("case, head", SOUND)
def test_every_formula_without_a_mistake_gives_the_truth(case, head):
    sample, truth, _ = observe_formula(find_case(case), head, ("dense",))
    checked = set()
    for pattern, formula, _ in _HYPOTHESES:
        for stage, right in truth.named().items():
            view = _View(stage, sample, truth, truth)
            if re.fullmatch(pattern, stage) and (stage != "loss" or head in ("masked_lm", "next_sentence")):
                predicted = formula(view)
                assert np.abs(predicted - right).max() <= ROUNDING * max(1.0, np.abs(right).max()), stage
                checked.add(pattern)
    assert len(checked) >= 10


@pytest.mark.parametrize(
    "stage", ["mask", "embeddings", "layer.0.query", "layer.1.probs", "pooler", "mlm.logits", "loss"]
)
def test_an_unknown_mistake_has_no_cause(observed, stage):
    sample, ours, truth = observed
    noise = np.random.default_rng(3).uniform(0.1, 1.0, ours.stages[stage].shape)
    assert likely_cause(stage, sample, _with(ours, stage, ours.stages[stage] + noise), truth) == ""


def test_what_passes_has_no_cause(observed):
    sample, ours, truth = observed
    assert [likely_cause(stage, sample, ours, truth) for stage in ours.named()] == [""] * len(ours.named())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_has_no_cause(observed, bad):
    sample, ours, truth = observed
    for stage in ("embeddings", "layer.0.scores", "layer.1.output", "loss"):
        assert likely_cause(stage, sample, _with(ours, stage, np.full_like(ours.stages[stage], bad)), truth) == ""


def test_another_shape_or_an_unseen_stage_has_no_cause(observed):
    sample, ours, truth = observed
    assert likely_cause("pooler", sample, _with(ours, "pooler", ours.stages["pooler"][:1]), truth) == ""
    without = {name: x for name, x in ours.stages.items() if name != "pooler"}
    assert likely_cause("pooler", sample, replace(ours, stages=without), truth) == ""


@pytest.mark.parametrize("name", ["key-positions-missing", "scores-unscaled", "heads-last", "value-positions-missing"])
def test_the_blocked_form_shows_mistakes_in_scores_at_the_context(name):
    fault = next(fault for fault in faults.FAULTS if fault.name == name)
    dense, blocked = (faults.run_fault(replace(fault, form=form)) for form in ("dense", "blocked"))
    assert blocked.seen_stage == "layer.0.context"
    assert blocked.cause == dense.cause != ""


def _with(ours, stage, values):
    return replace(ours, stages={**ours.stages, stage: values})
