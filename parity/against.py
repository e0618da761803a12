"""Held against an implementation nobody here wrote: the reference in float64, and paddle_nezha in float32."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from paddle_nezha.config import NeZhaConfig
from parity import outside
from parity.cases import CASES, Case, Sample, make_sample
from parity.compare import distance, scale_of, worst_of
from parity.judge import MORE_SEEDS, SEEDS, arithmetic_rows
from parity.result import OUTSIDE, OUTSIDE_ARITHMETIC, Row
from parity.sides import Observed, PaddleSide, TorchSide
from parity.stages import RATIO_LIMIT

# torch_ref in float64 against the other in float64, with an exact table. Measured: outputs 3e-14, gradients 2e-14.
OUTPUT_LIMIT, GRADIENT_LIMIT = 1e-10, 1e-9
# Cases on which the float32 question is asked too.
_FLOAT32_CASES = ("plain", "odd-sizes", "pad-ragged", "segments", "m64-length66", "gelu-tanh")


def judge_against(name: str, case: Case, head: str) -> "tuple[list[Row], str]":
    """Rows for one case, and the reason where it cannot be compared there.

    Args:
        name: "transformers" or "paddlenlp", installed.
    """
    sample = make_sample(case, head, 0)
    known = outside.differences(name, sample.config, head, sample.inputs, sample.labels)
    if "*" in known:
        return [], known["*"]
    if name == "paddlenlp" and case.head_gain > 1:
        known = {**known, "loss": outside.FAR_LOGITS}
    rows = _float64_rows(name, case.name, sample, known)
    if case.name in _FLOAT32_CASES:
        single = _float32_rows(name, case, head, known, SEEDS)
        if not all(row.passed for row in single):  # by chance, or truly
            single = _float32_rows(name, case, head, known, MORE_SEEDS)
        rows += single
    return rows, ""


def cases_against(name: str) -> "Iterator[tuple[Case, str]]":
    """Every case and head; those that the other cannot run say so when they are judged."""
    return ((case, head) for case in CASES for head in case.heads)


def _float64_rows(name: str, case: str, sample: Sample, known: "dict[str, str]") -> "list[Row]":
    reference = TorchSide(sample.config, sample.head, "float64")
    reference.load(sample.arrays)
    ours = reference.observe(sample).named()
    theirs = _observe(name, sample, "float64", known).named()
    rows = []
    for stage, values in theirs.items():
        mine = ours[stage]
        if stage.startswith("grad:"):
            parameter = stage.partition(":")[2]
            values, mine = (outside.comparable_gradient(name, sample.config, parameter, x) for x in (values, mine))
        error, index = distance(
            stage, mine, values, scale_of(stage, {**theirs, stage: values}, sample.real), sample.real
        )
        limit = GRADIENT_LIMIT if stage.startswith("grad:") else OUTPUT_LIMIT
        worst = worst_of(index, mine, values)
        rows.append(Row(OUTSIDE, case, sample.head, "float64", name, stage, error, limit, error <= limit, worst=worst))
    return rows


def _float32_rows(name: str, case: Case, head: str, known: "dict[str, str]", seeds: "tuple[int, ...]") -> "list[Row]":
    config = case.make_config()
    ours, truth_side = PaddleSide(config, head, "float32"), TorchSide(config, head, "float64")
    samples = []
    for seed in seeds:
        sample = make_sample(case, head, seed).rounded()
        ours.load(sample.arrays)
        truth_side.load(sample.arrays)
        theirs = _observe(name, sample, "float32", known)
        seen, truth = ours.observe(sample, "dense"), truth_side.observe(sample)
        # Gradients meet PyTorch's own in the float32 question of every run; here their word table lacks a row.
        theirs.gradients.clear()
        seen = Observed({stage: seen.stages[stage] for stage in theirs.stages})
        samples.append((sample, seen, theirs, truth))
    return arithmetic_rows(case.name, name, samples, OUTSIDE_ARITHMETIC, lambda *_: (RATIO_LIMIT, ""))


def _observe(name: str, sample: Sample, dtype: str, known: "dict[str, str]") -> Observed:
    arrays = {key: value for key, value in sample.arrays.items() if not key.endswith("decoder_weight")}
    result = outside.run(name, sample.config, sample.head, arrays, sample.inputs, sample.labels, dtype)
    stages = as_stages(sample.config, sample.head, result.outputs)
    if result.loss is not None and "loss" not in known:
        stages["loss"] = np.array(result.loss, np.float64)
    gradients = {} if "grad" in known else result.gradients
    kept = {stage: value for stage, value in stages.items() if not ("attentions" in known and stage.endswith(".probs"))}
    return Observed(kept, {key: np.asarray(value, np.float64) for key, value in gradients.items()})


def as_stages(config: NeZhaConfig, head: str, outputs: "dict[str, Any]") -> "dict[str, np.ndarray]":
    """Outputs under torch_ref's names as stages of the judge, in forward order."""
    stages: "dict[str, Any]" = {}
    for number, state in enumerate(outputs.get("hidden_states", ())):
        stages["embeddings" if number == 0 else f"layer.{number - 1}.output"] = state
        if 0 < number <= len(outputs.get("attentions", ())):
            stages[f"layer.{number - 1}.probs"] = outputs["attentions"][number - 1]
    names = {
        "pooler_output": "pooler",
        "prediction_logits": "mlm.logits",
        "seq_relationship_logits": "nsp.logits",
        "logits": {"masked_lm": "mlm.logits", "next_sentence": "nsp.logits"}.get(head, "classifier.logits"),
    }
    stages.update({stage: outputs[key] for key, stage in names.items() if outputs.get(key) is not None})
    if outputs.get("start_logits") is not None:
        stages["classifier.logits"] = np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    return {stage: np.asarray(value, np.float64) for stage, value in stages.items()}
