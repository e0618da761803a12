"""Every planted fault is caught, at its own stage, and leaves nothing behind."""

import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest

from paddle_nezha.checkpoint.names import parameter_shapes
from parity import faults
from parity.cases import make_sample
from parity.faults.base import KINDS, Fault, find_case
from parity.faults.loader import LOADER_FAULTS, observe_loaded
from parity.judge import formula_rows
from parity.sides import PaddleSide, TorchSide
from parity.stages import forward_stages

JUDGED_BY_STAGE = [fault for fault in faults.FAULTS if fault.kind != "training"]
IN_THE_MODEL = [fault for fault in JUDGED_BY_STAGE if fault.kind != "loader"]


def _named(items):
    return pytest.mark.parametrize("fault", items, ids=[fault.name for fault in items])


def _unplanted(fault):
    return replace(fault, plant=lambda _: nullcontext())


@_named(faults.FAULTS)
def test_the_fault_is_caught_at_its_stage(fault):
    finding = faults.run_fault(fault)
    assert finding.seen_stage == fault.stage
    assert finding.caught and finding.placed


@_named(IN_THE_MODEL)
def test_the_plant_is_undone(fault):
    sample = make_sample(find_case(fault.case), fault.head, seed=0)
    ours, truth = (side(sample.config, fault.head, "float64") for side in (PaddleSide, TorchSide))
    ours.load(sample.arrays)
    truth.load(sample.arrays)
    with fault.plant(ours.model):
        pass
    rows = formula_rows(fault.case, fault.form, sample, ours.observe(sample, fault.form, True), truth.observe(sample))
    assert [row.stage for row in rows if not row.passed] == []


@pytest.mark.parametrize("file", sorted({fault.file for fault in LOADER_FAULTS}))
@pytest.mark.parametrize("case, head", [("plain", "pretraining"), ("all-square", "sequence_classification")])
def test_a_sound_loader_passes_on_every_kind_of_file(file, case, head):
    fault = _unplanted(replace(LOADER_FAULTS[0], case=case, head=head, file=file))
    sample, ours, truth = observe_loaded(fault)
    assert [row.stage for row in formula_rows(case, fault.form, sample, ours, truth) if not row.passed] == []


def test_there_are_enough_of_each_kind():
    kinds = Counter(fault.kind for fault in faults.FAULTS)
    assert set(kinds) == set(KINDS)
    assert kinds["backward"] >= 8 and kinds["loader"] >= 8 and kinds["training"] >= 6 and sum(kinds.values()) >= 60


def test_names_are_unique():
    assert [name for name, count in Counter(fault.name for fault in faults.FAULTS).items() if count > 1] == []


@_named(JUDGED_BY_STAGE)
def test_the_stage_is_one_of_the_judges(fault):
    config = find_case(fault.case).make_config()
    gradients = [f"grad:{name}" for name in parameter_shapes(config, fault.head)]
    stages = gradients if fault.kind == "backward" else forward_stages(config, fault.head)
    assert fault.stage in stages


def test_every_kind_of_stage_has_a_fault():
    config = find_case("plain").make_config()
    stages = {stage for head in ("pretraining", "token_classification") for stage in forward_stages(config, head)}
    faulty = {fault.stage.rpartition(".")[2] for fault in faults.FAULTS}
    assert {stage.rpartition(".")[2] for stage in stages} - faulty == set()


# ---- the runner


@pytest.fixture
def harmless():
    return Fault("harmless", "forward", "nothing", "plain", "model", "pooler", lambda model: nullcontext())


def test_a_fault_that_nobody_sees_is_reported_so(harmless):
    finding = faults.run_fault(harmless)
    assert not finding.caught and not finding.placed
    assert finding.seen_stage == "" and finding.cause == ""
    assert finding.error < 1e-10  # the judge's own limit: all passed


def test_a_fault_seen_at_another_stage_is_caught_but_not_placed():
    fault = next(fault for fault in faults.FAULTS if fault.name == "query-turned")
    finding = faults.run_fault(replace(fault, stage="layer.0.key"))
    assert finding.caught and not finding.placed and finding.seen_stage == "layer.0.query"


def test_run_takes_kinds_and_names_and_tells_of_each():
    told = []
    findings = faults.run(kinds=["loader", "forward"], names=["map-norms", "epsilon", "beta1"], progress=told.append)
    assert [finding.fault.name for finding in findings] == ["epsilon", "map-norms"]
    assert told == findings and all(finding.placed for finding in findings)


@pytest.mark.parametrize(
    "wrong, known", [({"kinds": ["sideways"]}, "backward"), ({"names": ["no-such"]}, "query-turned")]
)
def test_an_unknown_kind_or_name_is_refused_with_the_known_ones(wrong, known):
    (value,) = next(iter(wrong.values()))
    with pytest.raises(ValueError, match=f"There is no (kind|fault) '{value}'; choose from: .*{known}"):
        faults.run(**wrong)
