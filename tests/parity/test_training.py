"""Training stays together, and the judge of it sees what goes wrong and where."""

import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise

import numpy as np
import pytest

from paddle_nezha.checkpoint.names import parameter_shapes
from parity.faults.training import (
    FAULT_STEPS,
    TRAINING_FAULTS,
    adamw,
    faulty_rows,
    lamb,
    moved_by,
    place,
    run_training_fault,
)
from parity.result import TRAINING
from parity.stages import RATIO_LIMIT
from parity.training import (
    BATCH,
    HEAD,
    OPTIMIZERS,
    QUICK_SEEDS,
    STEPS,
    TIED,
    TRAINING_LIMIT,
    WORDS,
    PaddleTrainer,
    Recipe,
    Trajectory,
    distance_rows,
    follow,
    follow_truth,
    judge_training,
    make_batches,
    trajectory_rows,
)

# ---- the verdict on our model


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_hundred_steps_in_float64_are_the_same_steps(optimizer):
    rows = judge_training(optimizer, "float64")
    parameters = [f"parameter:{name}" for name in parameter_shapes(BATCH.make_config(), HEAD)]
    assert sorted(row.stage for row in rows) == sorted(2 * ["loss", *parameters])
    assert [(row.stage, row.error, row.why) for row in rows if not row.passed] == []
    assert {(row.case, row.head, row.dtype, row.form, row.limit, row.samples) for row in rows} == {
        (optimizer, HEAD, "float64", form, TRAINING_LIMIT, STEPS) for form in ("blocked", "operator")
    }


def test_the_dense_form_trains_alike():
    rows = judge_training("adamw", "float64", steps=FAULT_STEPS, forms=("blocked", "dense"))
    assert {row.form for row in rows if row.passed} == {"blocked", "dense"}
    assert all(row.passed for row in rows)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_float32_ends_no_further_from_the_truth_than_pytorch(optimizer):
    rows = judge_training(optimizer, "float32", quick=True)
    judged = {(row.stage, row.form): row for row in rows if np.isfinite(row.limit)}
    assert sorted(judged) == [(stage, form) for stage in ("loss_curve", "weights") for form in ("blocked", "operator")]
    for row in judged.values():
        assert row.passed and row.limit == RATIO_LIMIT and row.samples == len(QUICK_SEEDS), row
    single = [row for row in rows if row.stage.startswith("weights:")]
    # The tied table is there once.
    assert len(single) == 2 * (len(parameter_shapes(BATCH.make_config(), HEAD)) - 1)
    assert {row.why for row in single} == {"reported, not judged"}
    # The runs did part: a float32 run that equalled the float64 one would be no float32 run.
    assert all(row.error > 0 and row.torch_error > 0 for row in rows)


def test_the_tied_table_stays_tied_and_everything_moves():
    batches = make_batches(FAULT_STEPS, seed=0)
    run = follow(PaddleTrainer(batches[0], Recipe("lamb", STEPS), "float64"), batches)
    np.testing.assert_array_equal(run.parameters[TIED], run.parameters[WORDS])
    start = batches[0].arrays
    for name, values in run.parameters.items():
        assert (values[0] == start[name]).all(), f"{name} moved at rate 0"
        assert (values[-1] != start[name]).any(), f"{name} never moved"


def test_every_batch_is_new():
    first, second = make_batches(2, seed=0)
    assert (first.inputs["input_ids"] != second.inputs["input_ids"]).any()
    assert (first.labels["masked_lm_labels"] == -100).any() and (first.labels["masked_lm_labels"] >= 0).any()
    (other,) = make_batches(1, seed=1)
    assert (other.inputs["input_ids"] != first.inputs["input_ids"]).any()


@pytest.mark.parametrize(("dtype", "runs"), [("float64", 3), ("float32", 4 * len(QUICK_SEEDS))])
def test_progress_counts_every_step(dtype, runs):
    seen = []
    judge_training(
        "adamw", dtype, quick=True, steps=FAULT_STEPS, progress=lambda done, total: seen.append((done, total))
    )
    total = FAULT_STEPS * runs
    assert seen == [(done, total) for done in range(1, total + 1)]


@pytest.mark.parametrize(("optimizer", "dtype"), [("sgd", "float64"), ("adamw", "float16")])
def test_unknown_settings(optimizer, dtype):
    message = f"expected optimizer adamw or lamb and dtype float32 or float64, got '{optimizer}' and '{dtype}'; choose"
    with pytest.raises(ValueError, match=message):
        judge_training(optimizer, dtype)


@pytest.mark.parametrize(("clip", "acted"), [(1e9, 0), (1e-9, 3)])
def test_a_run_that_could_not_see_wrong_clipping_is_no_run(clip, acted):
    with pytest.raises(ValueError, match=rf"act in some of 3 steps and not in others, it acted in {acted}; run more"):
        follow_truth(Recipe("adamw", STEPS, clip=clip), make_batches(3, seed=0))


# ---- the ruler


@pytest.fixture
def trajectory(rng):
    parameters = {
        "a.attention.query.weight": 10.0 + rng.random((5, 2, 3)),
        "a.attention.key.bias": rng.random((5, 3)),
        "b.weight": rng.random((5, 4)),
    }
    return Trajectory(np.linspace(2.0, 1.0, 5), parameters)


def changed(run, name, at, by):
    parameters = {key: values.copy() for key, values in run.parameters.items()}
    losses = run.losses.copy()
    (losses if name == "loss" else parameters[name])[at] += by
    return Trajectory(losses, parameters)


def test_equal_runs_pass(trajectory):
    rows = trajectory_rows("adamw", "blocked", trajectory, trajectory)
    assert [row.stage for row in rows][0] == "loss" and len(rows) == 4
    assert all(row.passed and row.error == 0 and row.question == TRAINING for row in rows)


def test_what_parts_first_comes_first(trajectory):
    ours = changed(changed(trajectory, "loss", (3,), 1e-9), "b.weight", (2, 1), 1e-11)
    rows = trajectory_rows("adamw", "blocked", changed(ours, "b.weight", (4, 0), 1.0), trajectory)
    assert [(row.stage, row.passed, row.why) for row in rows[:3]] == [
        ("parameter:b.weight", False, "parts at step 3"),
        ("loss", False, "parts at step 4"),
        ("parameter:a.attention.query.weight", True, ""),
    ]
    first = rows[0]
    assert first.worst.index == (3, 1) and first.worst.paddle - first.worst.truth == pytest.approx(1e-11, rel=1e-4)
    assert first.error > 0.9  # the largest of all steps, where the place is that of the first


def test_one_scale_for_the_parameters_of_one_attention(trajectory):
    by = 5 * TRAINING_LIMIT  # beyond the limit on the bias's own scale of 1, within it on the weight's of 10
    ours = changed(changed(trajectory, "a.attention.key.bias", (1, 0), by), "b.weight", (1, 0), by)
    failed = [row.stage for row in trajectory_rows("lamb", "blocked", ours, trajectory) if not row.passed]
    assert failed == ["parameter:b.weight"]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["loss", "b.weight"])
def test_what_is_no_number_fails(trajectory, name, bad):
    at = (2,) if name == "loss" else (2, 3)
    row = trajectory_rows("adamw", "blocked", changed(trajectory, name, at, bad), trajectory)[0]
    assert not row.passed and row.stage.endswith(name)
    assert row.worst.index == (3, *at[1:]) and row.why == "parts at step 3"


def test_float32_is_judged_by_the_geometric_mean_over_seeds():
    theirs = [{"weights": 1e-7, "loss_curve": 1e-7, "weights:a": 1e-7}] * 2
    ours = [
        {"weights": 4e-7, "loss_curve": 1e-7, "weights:a": 9e-7},
        {"weights": 1e-7, "loss_curve": 2e-7, "weights:a": 9e-7},
    ]
    rows = {row.stage: row for row in distance_rows("lamb", "blocked", ours, theirs)}
    assert rows["weights"].ratio == pytest.approx(2.0) and not rows["weights"].passed
    assert rows["loss_curve"].ratio == pytest.approx(2**0.5) and rows["loss_curve"].passed
    assert rows["weights:a"].passed and rows["weights:a"].limit == float("inf")
    assert next(iter(rows)) == "weights"  # the failed one first


# ---- planted faults


def test_there_are_enough_faults_and_each_has_its_own_name():
    assert len({fault.name for fault in TRAINING_FAULTS}) == len(TRAINING_FAULTS) >= 8
    assert {fault.case for fault in TRAINING_FAULTS} == set(OPTIMIZERS)
    assert {fault.kind for fault in TRAINING_FAULTS} == {"training"}


@pytest.mark.parametrize("fault", TRAINING_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_and_placed(fault):
    finding = run_training_fault(fault)
    assert finding.seen_stage == fault.stage
    assert finding.error > 10 * TRAINING_LIMIT  # no near miss


@pytest.mark.parametrize("rule", [adamw, lamb], ids=OPTIMIZERS)
def test_planting_the_right_rule_changes_nothing(rule):
    rows = faulty_rows(rule.__name__, moved_by(rule))
    assert place(rows) == "" and max(row.error for row in rows) > 0


def test_places_in_words(trajectory):
    names = ("a.layer_norm.bias", "a.bias", WORDS, "a.weight", "b.weight", "a.attention.key.bias", TIED)
    run = Trajectory(np.ones(2), {name: np.ones((2, 1)) for name in names})

    def where(*changes):
        ours = run
        for name, step in changes:
            ours = changed(ours, name, step - 1, 0.1)
        return place(trajectory_rows("adamw", "dense", ours, run))

    assert where() == ""
    assert where(("loss", 1), ("a.bias", 1)) == "loss of step 1"
    assert where(("a.bias", 1), ("a.weight", 2)) == "parameter:biases after step 1"
    assert where((WORDS, 2), (TIED, 2), ("a.layer_norm.bias", 2)) == "parameter:LayerNorms, words after step 2"
    assert where(("b.weight", 2)) == "parameter:b.weight after step 2"
    assert where(*((name, 2) for name in names[:5])) == "parameter:all after step 2"
