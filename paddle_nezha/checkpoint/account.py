"""Every tensor accounted for: which parameter it became, and one error for all that do not fit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

import numpy as np

from .arrays import widened
from .dialects import Dialect, detect, dropped
from .errors import CheckpointError
from .names import ABSOLUTE_TABLE, HEAD_PARTS, RELATIVE_TABLES, TIES, bare


@dataclass
class Account:
    """What became of each tensor of a checkpoint and of each parameter of a model.

    `arrays` holds what was loaded, by the parameter's name, in the stored precision (bfloat16 as float32).
    Turned arrays are views. A tied parameter is the very array of its partner.
    """

    dialect: str
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # tensor -> parameter
    turned: list[str] = field(default_factory=list)  # parameters that were [out, in] in the file
    widened: list[str] = field(default_factory=list)  # parameters that were bfloat16 in the file
    dropped: dict[str, str] = field(default_factory=dict)  # tensor -> why
    new: dict[str, str] = field(default_factory=dict)  # parameter -> the part of the model it belongs to
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    misshaped: dict[str, str] = field(default_factory=dict)  # parameter -> what was expected and what came
    not_finite: list[str] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)  # parameter -> the tensors that claim it

    @property
    def complete(self) -> bool:
        """Whether every parameter has its value (or is allowed to be new) and every tensor its place."""
        return not (self.missing or self.unexpected or self.misshaped or self.not_finite or self.conflicts)

    def summary(self) -> str:
        """One line for people."""
        parts = [
            f"{len(self.arrays)} parameters loaded from {self.dialect} names"
            f" ({len(self.renamed)} renamed, {len(self.turned)} turned)"
        ]
        if self.widened:
            parts.append(f"{len(self.widened)} bfloat16 read as float32")
        if self.dropped:
            reasons = list(self.dropped.values())
            counted = ", ".join(f"{reasons.count(why)} x {why}" for why in dict.fromkeys(reasons))
            parts.append(f"{len(self.dropped)} tensors dropped ({counted})")
        if self.new:
            parts.append(f"new, to be trained: {', '.join(dict.fromkeys(self.new.values()))}")
        return "; ".join(parts)

    def problems(self) -> str:
        """All that does not fit, one tensor a line."""
        groups = (
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("mis-shaped", [f"{k}: {what}" for k, what in self.misshaped.items()]),
            ("not finite (NaN or infinity)", self.not_finite),
            ("claimed twice with different values", [f"{k}: {what}" for k, what in self.conflicts.items()]),
        )
        lines = []
        for title, names in groups:
            if names:
                lines.append(f"{title} ({len(names)}):")
                lines.extend(f"  {name if name.isprintable() else ascii(name)}" for name in names)
        return "\n".join(lines)


def reconcile(
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, np.ndarray],
    *,
    dialect: Optional[Dialect] = None,
    new_allowed: Iterable[str] = (),
) -> Account:
    """Gives each parameter its tensor, or says everything that stands in the way.

    Args:
        expected: shapes by our names (`parameter_shapes`).
        found: a file's tensors by their names, in any dialect, with any prefix.
        dialect: whose names they are; None detects it.
        new_allowed: prefixes of parts (`classifier.`, `pooler.`) that the checkpoint may lack as a whole. Of
            a part that is there, everything must be.

    Returns:
        The account, complete.

    Raises:
        CheckpointError: anything missing, unexpected, mis-shaped, not finite or contradictory. The message
            lists all of it, `error.account` holds it.
    """
    dialect = dialect or detect(found)
    account = Account(dialect.name)
    wanted = {bare(name): name for name in expected}
    claims = _claims(account, wanted, found, dialect)
    for ours, name in wanted.items():
        array = _chosen(account, name, claims.get(ours, []))
        if array is not None:
            _accept(account, name, tuple(expected[name]), array)
    _settle_ties(account, wanted, claims)
    _settle_absent(account, wanted, claims, tuple(new_allowed))
    if not account.complete:
        raise CheckpointError(_message(account), account)
    return account


class _Claim(NamedTuple):
    tensor: str  # its name in the file
    array: np.ndarray  # in our layout
    turned: bool


def _claims(
    account: Account, wanted: Mapping[str, str], found: Mapping[str, np.ndarray], dialect: Dialect
) -> dict[str, list[_Claim]]:
    """The tensors that mean each wanted parameter; the others go to `dropped` or `unexpected`."""
    claims: dict[str, list[_Claim]] = {}
    for name, array in found.items():
        weight, why = dialect.to_ours(name), dropped(name)
        if why is not None:
            account.dropped[name] = why
        elif weight is None:
            account.unexpected.append(name)
        elif weight.ours in wanted:
            claim = _Claim(name, array.T if weight.turned else array, weight.turned)
            claims.setdefault(weight.ours, []).append(claim)
        elif _part(weight.ours) and not any(_part(ours) == _part(weight.ours) for ours in wanted):
            account.dropped[name] = f"of another head ({_part(weight.ours)})"
        else:
            account.unexpected.append(name)
    return claims


def _part(ours: str) -> str:
    """The part of a head that a parameter belongs to, or "" for the model itself."""
    return next((part[:-1] for part in HEAD_PARTS if ours.startswith(part)), "")


def _chosen(account: Account, name: str, claims: list[_Claim]) -> Optional[np.ndarray]:
    """The one array for a parameter, or None when nothing or more than one thing claims it."""
    if not claims:
        return None
    first = claims[0]
    for other in claims[1:]:
        if not np.array_equal(first.array, other.array):
            account.conflicts[name] = f"{first.tensor} and {other.tensor}"
            return None
        account.dropped[other.tensor] = "a second copy"
    if first.tensor != name:
        account.renamed[first.tensor] = name
    if first.turned:
        account.turned.append(name)
    return first.array


def _accept(account: Account, name: str, shape: tuple[int, ...], array: np.ndarray) -> None:
    if array.dtype == np.uint16:  # Paddle's bfloat16: no parameter is an integer
        account.widened.append(name)
        array = widened(array)
    if array.dtype.kind != "f":
        account.misshaped[name] = f"expected {list(shape)}, found {list(array.shape)} of {array.dtype}"
    elif array.shape != shape:
        account.misshaped[name] = f"expected {list(shape)}, found {list(array.shape)}"
    elif array.size and not np.isfinite([array.min(), array.max()]).all():  # NaN passes through both
        account.not_finite.append(name)
    else:
        account.arrays[name] = array


def _settle_ties(account: Account, wanted: Mapping[str, str], claims: Mapping[str, list[_Claim]]) -> None:
    for tied, partner in TIES.items():
        if tied not in wanted or partner not in wanted:
            continue
        shared, own = account.arrays.get(wanted[partner]), account.arrays.get(wanted[tied])
        if shared is None or (own is None and tied in claims):
            continue
        if own is None or own is shared or np.array_equal(own, shared):
            account.arrays[wanted[tied]] = shared
        else:
            both = f"{claims[tied][0].tensor} and {claims[partner][0].tensor}"
            account.conflicts[wanted[tied]] = f"{both}, which are one parameter"


def _settle_absent(
    account: Account,
    wanted: Mapping[str, str],
    claims: Mapping[str, list[_Claim]],
    new_allowed: tuple[str, ...],
) -> None:
    absent = [part for part in new_allowed if not any(ours.startswith(part) for ours in claims)]
    for ours, name in wanted.items():
        if ours in claims or name in account.arrays:
            continue
        part = next((part for part in absent if ours.startswith(part)), None)
        if part is None:
            account.missing.append(name)
        else:
            account.new[name] = part.rstrip(".")


def _message(account: Account) -> str:
    headline = f"The checkpoint does not fit the model ({account.summary()})."
    return "\n".join((headline, account.problems(), _remedy(account)))


def _remedy(account: Account) -> str:
    unexpected = {bare(name) for name in account.unexpected}
    if ABSOLUTE_TABLE in unexpected:
        return (
            "It has absolute position embeddings, so it is a BERT checkpoint and no NeZha: load it with a "
            "config that says use_relative_position=False, or choose a NeZha checkpoint."
        )
    if any(bare(name) == ABSOLUTE_TABLE for name in account.missing):
        return (
            "It has no absolute position embeddings, so it is a NeZha checkpoint and no BERT: load it with "
            "a config that says use_relative_position=True."
        )
    if account.misshaped and all(name.startswith("classifier.") for name in account.misshaped):
        return (
            "Its classifier has another number of outputs: give the config its num_labels, or load it with "
            "the class of the head it was saved from."
        )
    if any(name.endswith(RELATIVE_TABLES) for name in (*unexpected, *account.missing)):
        return (
            'Learned relative tables go with position_encoding="parametric_relative": compare its '
            "config.json with the config used here."
        )
    return "Compare its config.json with the config used here, or load it with the class of the head it was saved from."
