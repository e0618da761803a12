"""The judge is itself judged: mistakes planted one at a time, each of which it must catch and place."""

from collections.abc import Iterable
from typing import Callable, Optional

from parity.cases import Sample
from parity.causes import likely_cause
from parity.faults.backward import BACKWARD_FAULTS
from parity.faults.base import KINDS, Fault, Finding, find_case
from parity.faults.forward import FORWARD_FAULTS
from parity.faults.loader import LOADER_FAULTS, LoaderFault, observe_loaded
from parity.faults.operators import OPERATOR_FAULTS
from parity.faults.training import TRAINING_FAULTS, run_training_fault
from parity.judge import formula_rows, observe_formula
from parity.sides import Observed

FAULTS: "tuple[Fault, ...]" = (
    *FORWARD_FAULTS,
    *BACKWARD_FAULTS,
    *OPERATOR_FAULTS,
    *LOADER_FAULTS,
    *TRAINING_FAULTS,
)


def run(
    kinds: "Optional[Iterable[str]]" = None,
    names: "Optional[Iterable[str]]" = None,
    progress: "Optional[Callable[[Finding], None]]" = None,
) -> "list[Finding]":
    """Plants faults one at a time and judges each.

    Args:
        kinds: of KINDS; None is all.
        names: of faults; None is all.
        progress: called with each finding.

    Raises:
        ValueError: a kind or name that there is not.
    """
    kinds = _known("kind", kinds, KINDS)
    names = _known("fault", names, [fault.name for fault in FAULTS])
    findings = []
    for fault in FAULTS:
        if fault.kind in kinds and fault.name in names:
            findings.append(run_fault(fault))
            if progress:
                progress(findings[-1])
    return findings


def _known(what: str, wanted: "Optional[Iterable[str]]", known: "Iterable[str]") -> "list[str]":
    wanted, known = list(known if wanted is None else wanted), list(known)
    strange = [name for name in wanted if name not in known]
    if strange:
        raise ValueError(f"There is no {what} {', '.join(map(repr, strange))}; choose from: {', '.join(known)}.")
    return wanted


def run_fault(fault: Fault) -> Finding:
    """One fault planted, judged and taken out again."""
    if fault.kind == "training":
        return run_training_fault(fault)
    sample, ours, truth = _observe(fault)
    rows = formula_rows(fault.case, fault.form, sample, ours, truth)
    first = next((row for row in rows if not row.passed), None)
    if first is None:
        return Finding(fault, "", max(row.error for row in rows))
    return Finding(fault, first.stage, first.error, likely_cause(first.stage, sample, ours, truth))


def _observe(fault: Fault) -> "tuple[Sample, Observed, Observed]":
    if isinstance(fault, LoaderFault):
        return observe_loaded(fault)
    sample, truth, seen = observe_formula(find_case(fault.case), fault.head, (fault.form,), plant=fault.plant)
    return sample, seen[fault.form], truth
