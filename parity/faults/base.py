"""What a planted fault is, and what became of it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Callable

from parity.cases import CASES, Case

KINDS = ("forward", "backward", "loader", "training")

# Shapes in which a mistake is at its most invisible; for the faults alone.
_FAULT_CASES = (
    Case(
        "all-square",
        "no shape tells one matrix from another",
        {"vocab_size": 32, "intermediate_size": 32, "num_labels": 32},
    ),
    Case(
        "twelve-layers",
        "layers 1, 10 and 11",
        {"num_hidden_layers": 12, "hidden_size": 8, "num_attention_heads": 2},
    ),
)
_CASES = {case.name: case for case in (*CASES, *_FAULT_CASES)}


@dataclass(frozen=True)
class Fault:
    """One mistake, planted alone.

    Args:
        name: what a report and `--name` call it.
        kind: one of KINDS.
        what: the mistake in a sentence.
        case: the case (by name) in which it must show.
        head: the head likewise.
        stage: the first stage that must part, and so where the mistake is.
        plant: given what runs (the Paddle model; a training fault says itself), puts the mistake in for the time of a
            `with` block.
        form: the attention form that runs.
    """

    name: str
    kind: str
    what: str
    case: str
    head: str
    stage: str
    plant: "Callable[[Any], AbstractContextManager[Any]]"
    form: str = "dense"


@dataclass(frozen=True)
class Finding:
    """What the judge made of a fault.

    Args:
        seen_stage: the first stage beyond its limit; empty when all passed.
        error: of that stage.
        cause: the likely cause, as a user would be told it; empty where no known pattern fits.
    """

    fault: Fault
    seen_stage: str
    error: float
    cause: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.seen_stage)

    @property
    def placed(self) -> bool:
        return self.seen_stage == self.fault.stage


def find_case(name: str) -> Case:
    """
    Raises:
        KeyError: no such case.
    """
    return _CASES[name]
