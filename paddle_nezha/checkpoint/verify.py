"""Is a checkpoint whole and sound, and which one is it? Every tensor held to the config, and a digest of all."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Optional, Union

import numpy as np

from ..config import NeZhaConfig
from .account import Account
from .described import UnknownHead, by_our_names, described
from .errors import CheckpointError, PathLike
from .opening import Opened, open_checkpoint

_SHOWN = 20


@dataclass(frozen=True)
class Check:
    """One question put to a checkpoint. `passed` is None where it could not be put; `told` says why, or the answer."""

    name: str
    passed: Optional[bool]
    told: str


@dataclass(frozen=True)
class TensorRecord:
    """One tensor: the sha256 is of its numbers, little-endian, in C order and our layout."""

    shape: "tuple[int, ...]"
    dtype: str
    sha256: str


@dataclass
class Findings:
    """What was found in a checkpoint.

    Args:
        path: what was verified.
        checks: every question and its answer.
        form, dialect, head: None while the file cannot be opened.
        parameters: how many numbers it holds, a tied weight counted once.
        digest: of all tensors; the same for the same numbers in any format and dialect.
        tensors: by our names without prefix, sorted.
    """

    path: str
    checks: "list[Check]" = field(default_factory=list)
    form: Optional[str] = None
    dialect: Optional[str] = None
    head: Optional[str] = None
    parameters: Optional[int] = None
    digest: Optional[str] = None
    tensors: "dict[str, TensorRecord]" = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether nothing was found wrong."""
        return all(check.passed is not False for check in self.checks)

    def problems(self) -> str:
        """What is wrong, in words."""
        return "\n".join(check.told for check in self.checks if check.passed is False)

    def to_dict(self) -> "dict[str, object]":
        return {"right": self.right, **asdict(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"


def verify(
    path: PathLike,
    *,
    config: "Union[PathLike, NeZhaConfig, None]" = None,
    parameters: Optional[int] = None,
) -> Findings:
    """Reads a whole checkpoint, one tensor in memory at a time, and holds it to what it should be.

    Args:
        path: as for `open_checkpoint`.
        config: a config file, a folder with one, or a config; None looks beside the weights, and does without where
            there is none.
        parameters: how many it must hold, where it has all pretraining heads.

    Returns:
        The findings. A file that is no checkpoint, or a damaged one, is a finding too.

    Raises:
        OSError: nothing is there, or it cannot be opened.
    """
    findings = Findings(str(path))
    try:
        with open_checkpoint(path) as opened:
            _examine(findings, opened)
    except CheckpointError as error:
        findings.checks.append(Check("readable", False, str(error)))
        return findings
    findings.checks.append(_structure(findings, path, config))
    if parameters is not None and findings.head is not None:
        findings.checks.append(_count(findings, parameters))
    return findings


def digest_of(tensors: "Mapping[str, TensorRecord]") -> str:
    """One sha256 for all tensors: of a line for each, sorted by name, with its dtype, shape and own sha256."""
    lines = [
        f"{name} {record.dtype} {'x'.join(map(str, record.shape))} {record.sha256}\n"
        for name, record in sorted(tensors.items())
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def record_of(array: np.ndarray) -> TensorRecord:
    """Shape, dtype and sha256 of an array."""
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1)
    return TensorRecord(array.shape, array.dtype.name, hashlib.sha256(plain.view(np.uint8).data).hexdigest())


def _examine(findings: Findings, opened: Opened) -> None:
    """Reads every tensor once: digests, and whether all are finite."""
    findings.form = opened.form
    account = by_our_names(opened)
    findings.dialect = account.dialect
    unsound = _read(findings, account)
    findings.parameters = sum(prod(record.shape) for record in findings.tensors.values())
    findings.digest = digest_of(findings.tensors)
    told = f"not finite (NaN or infinity): {_listed(unsound)}" if unsound else "every number is finite"
    findings.checks.append(Check("values", not unsound, told))


def _read(findings: Findings, account: Account) -> "list[str]":
    """Records every tensor and gives the names of those that hold NaN or infinity."""
    unsound = []
    for name in sorted(account.tensors):
        array = account.tensors[name].read()
        findings.tensors[name] = record_of(array)
        if array.dtype.kind == "f" and array.size and not np.isfinite([array.min(), array.max()]).all():
            unsound.append(name)
    return unsound


def _structure(findings: Findings, path: PathLike, config: "Union[PathLike, NeZhaConfig, None]") -> Check:
    try:
        with described(path, config=config) as checkpoint:
            findings.head = checkpoint.head
            account = checkpoint.account
            return Check("structure", True, f"{checkpoint.head}: {account.summary()}")
    except FileNotFoundError as error:
        if config is not None:
            raise
        return Check("structure", None, f"not held to a config, since there is none: {error}")
    except UnknownHead as error:
        return Check("structure", None, str(error))
    except ValueError as error:  # CheckpointError too
        return Check("structure", False, str(error))


def _count(findings: Findings, expected: int) -> Check:
    found = findings.parameters
    if findings.head != "pretraining":
        told = f"{found:,} parameters, of a {findings.head}; {expected:,} go with all pretraining heads"
        return Check("parameters", None, told)
    told = f"{found:,} parameters" if found == expected else f"expected {expected:,} parameters, found {found:,}"
    return Check("parameters", found == expected, told)


def _listed(names: "list[str]") -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
