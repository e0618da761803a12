"""The verdict on one case: is it the same formula, and is the arithmetic as good?"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable, Optional

import numpy as np

from parity.cases import Case, Sample, make_sample
from parity.compare import distance, scale_of, worst_of
from parity.device import torch_device
from parity.result import ARITHMETIC, FORMULA, Row, Worst
from parity.sides import FORMS, Observed, PaddleSide, TorchSide, missing_stages
from parity.stages import EXACT, FORMULA_LIMIT, SINGLE_FACTOR, SINGLE_ULPS, TABLE_LIMIT, ULP, ratio_limit

RatioLimit = Callable[[str, "tuple[int, ...]", int], "tuple[float, str]"]
Plant = Callable[[Any], "AbstractContextManager[Any]"]

SEEDS = tuple(range(8))
# The geometric mean of eight ratios scatters by about a fifth, so of a thousand rows some exceed any limit by luck. A
# case with such a row is judged again over these, and that verdict stands.
MORE_SEEDS = tuple(range(48))


def judge_formula(
    case: Case, head: str, forms: "tuple[str, ...]" = FORMS, seed: int = 0, plant: Optional[Plant] = None
) -> "list[Row]":
    """Float64 on both sides: every stage and gradient, at most FORMULA_LIMIT apart.

    Args:
        plant: puts a fault into the Paddle model for the time of the run (`parity.faults`).
    """
    sample, truth, seen = observe_formula(case, head, forms, seed, plant)
    return [row for form, ours in seen.items() for row in formula_rows(case.name, form, sample, ours, truth)]


def observe_formula(
    case: Case, head: str, forms: "tuple[str, ...]" = FORMS, seed: int = 0, plant: Optional[Plant] = None
) -> "tuple[Sample, Observed, dict[str, Observed]]":
    """What `judge_formula` judges: the numbers of the case, what PyTorch makes of them, and Paddle by form."""
    sample = make_sample(case, head, seed)
    paddle_side, torch_side = PaddleSide(sample.config, head, "float64"), TorchSide(sample.config, head, "float64")
    paddle_side.load(sample.arrays)
    torch_side.load(sample.arrays)
    truth = torch_side.observe(sample)
    with plant(paddle_side.model) if plant else nullcontext():
        seen = {form: paddle_side.observe(sample, form, small_blocks=form == "blocked") for form in forms}
    return sample, truth, seen


def formula_rows(case: str, form: str, sample: Sample, ours: Observed, truth: Observed) -> "list[Row]":
    """One row a stage, in the order of the forward, then of the backward."""
    rows = _unseen(FORMULA, case, form, "float64", sample, ours)
    right = truth.named()
    for stage, values in ours.named().items():
        scale = scale_of(stage, right, sample.real)
        error, index = distance(stage, values, right[stage], scale, sample.real)
        limit = 0.0 if stage in EXACT else TABLE_LIMIT if stage == "table" else FORMULA_LIMIT
        worst = worst_of(index, values, right[stage])
        rows.append(Row(FORMULA, case, sample.head, "float64", form, stage, error, limit, error <= limit, worst=worst))
    return rows


def judge_arithmetic(
    case: Case, head: str, forms: "tuple[str, ...]" = FORMS, seeds: "tuple[int, ...]" = SEEDS, device: str = "cpu"
) -> "list[Row]":
    """Float32 on both sides against float64: Paddle's error no worse than PyTorch's own, over several seeds.

    Args:
        device: "cpu" or "gpu", prepared by `parity.device`; the truth is computed on the CPU.
    """
    rows = _arithmetic_over(case, head, forms, seeds, device)
    if all(row.passed for row in rows) or len(seeds) >= len(MORE_SEEDS):
        return rows
    return _arithmetic_over(case, head, forms, MORE_SEEDS, device)


def _arithmetic_over(
    case: Case, head: str, forms: "tuple[str, ...]", seeds: "tuple[int, ...]", device: str
) -> "list[Row]":
    config = case.make_config()
    ours, theirs = PaddleSide(config, head, "float32"), TorchSide(config, head, "float32", torch_device(device))
    truth_side = TorchSide(config, head, "float64")
    triples: "dict[str, list[tuple[Sample, Observed, Observed, Observed]]]" = {form: [] for form in forms}
    for seed in seeds:
        sample = make_sample(case, head, seed).rounded()
        for side in (ours, theirs, truth_side):
            side.load(sample.arrays)
        torch_seen, truth = theirs.observe(sample), truth_side.observe(sample)
        for form in forms:
            triples[form].append((sample, ours.observe(sample, form), torch_seen, truth))
    rows = []
    for form in forms:
        first, seen, _, _ = triples[form][0]
        rows += _unseen(ARITHMETIC, case.name, form, "float32", first, seen)
        rows += arithmetic_rows(case.name, form, triples[form])
    return rows


def arithmetic_rows(
    case: str,
    form: str,
    samples: "list[tuple[Sample, Observed, Observed, Observed]]",
    question: str = ARITHMETIC,
    ratio_limit: RatioLimit = ratio_limit,
) -> "list[Row]":
    """One row a stage, over all samples of (sample, Paddle's float32, the other's float32, the float64 truth).

    Args:
        ratio_limit: the limit of a stage's ratio and its reason, from the stage, its shape and the number of tokens.
    """
    first, rows = samples[0][0], []
    named = [(sample, ours.named(), theirs.named(), truth.named()) for sample, ours, theirs, truth in samples]
    for stage in named[0][1]:
        errors: "list[float]" = []
        torch_errors: "list[float]" = []
        worst: Optional[Worst] = None
        for sample, ours, theirs, truth in named:
            scale = scale_of(stage, truth, sample.real)
            error, index = distance(stage, ours[stage], truth[stage], scale, sample.real)
            if not errors or error > max(errors):
                worst = worst_of(index, ours[stage], truth[stage], theirs[stage])
            errors.append(error)
            torch_errors.append(distance(stage, theirs[stage], truth[stage], scale, sample.real)[0])
        ratio: Optional[float] = None
        if stage in EXACT:
            limit, passed, why = 0.0, max(errors) == 0.0, "exact"
        else:
            limit, reason = ratio_limit(stage, named[0][3][stage].shape, first.real.size)
            ratio, passed, complaint = _as_good(errors, torch_errors, limit)
            why = complaint or reason
        rows.append(
            Row(
                question,
                case,
                first.head,
                "float32",
                form,
                stage,
                max(errors),
                limit,
                passed,
                len(errors),
                max(torch_errors),
                ratio,
                worst,
                why,
            )  # fmt: skip
        )
    return rows


def _as_good(errors: "list[float]", torch_errors: "list[float]", limit: float) -> "tuple[float, bool, str]":
    """The ratio of Paddle's errors to PyTorch's, whether it may be so, and what is wrong beside the ratio."""
    half = ULP["float32"] / 2
    ratios = (np.array(errors) + half) / (np.array(torch_errors) + half)
    ratio = float(np.exp(np.log(ratios).mean()))
    if max(errors) > SINGLE_FACTOR * max(torch_errors) + SINGLE_ULPS * ULP["float32"]:
        return ratio, False, f"one sample is beyond {SINGLE_FACTOR:g} times PyTorch's worst and {SINGLE_ULPS:g} ulp"
    return ratio, ratio <= limit, ""


def _unseen(question: str, case: str, form: str, dtype: str, sample: Sample, ours: Observed) -> "list[Row]":
    return [
        Row(
            question,
            case,
            sample.head,
            dtype,
            form,
            stage,
            float("inf"),
            0.0,
            False,
            why="the model never reached this stage",
        )
        for stage in missing_stages(ours, sample.config, sample.head, form)
    ]
