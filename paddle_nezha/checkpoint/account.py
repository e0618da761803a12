"""Every tensor accounted for: which parameter it became, and one error for all that do not fit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Optional, Union

import numpy as np

from .dialects import DIALECTS, Dialect, detect, dropped
from .errors import CheckpointError, shown
from .names import ABSOLUTE_TABLE, HEAD_PARTS, RELATIVE_TABLES, TIES, bare
from .stored import Held, Stored, Turned, Widened, pieces, same_values

# Of each kind of problem: more than the largest real model has tensors.
_LISTED = 1000


@dataclass
class Account:
    """What became of each tensor of a checkpoint and of each parameter of a model.

    `tensors` holds what was found for each parameter, by its name and in its layout, still in the file: `read` and
    `arrays` fetch the numbers, in the stored precision (bfloat16 as float32). A tied parameter is the very tensor of
    its partner.
    """

    dialect: str
    tensors: dict[str, Stored] = field(default_factory=dict)
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

    def read(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each parameter's name and its numbers, one tensor in memory at a time; a tied parameter comes once, under the
        name of what it is tied to.

        Raises:
            CheckpointError: after the last one, if numbers were not finite; the message lists all of those.
        """
        for name, tensor in self._once().items():
            array = tensor.read()
            self._look_at(name, array)
            yield name, array
        self._end()

    def read_pieces(self) -> Iterator[tuple[str, int, np.ndarray]]:
        """As `read`, but large tensors come some rows at a time: name, number of the first row, rows."""
        for name, tensor in self._once().items():
            for start, rows in pieces(tensor):
                self._look_at(name, rows)
                yield name, start, rows
        self._end()

    def _once(self) -> "dict[str, Stored]":
        first: "dict[int, str]" = {}
        for name, tensor in self.tensors.items():
            first.setdefault(id(tensor), name)
        return {name: self.tensors[name] for name in first.values()}

    def _look_at(self, name: str, array: np.ndarray) -> None:
        if array.size and not np.isfinite([array.min(), array.max()]).all():  # NaN passes through both
            if name not in self.not_finite:
                self.not_finite.append(name)

    def _end(self) -> None:
        if self.not_finite:
            raise CheckpointError(_message(self), self)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """All of `tensors`, read."""
        once = {id(tensor): tensor for tensor in self.tensors.values()}
        read = {key: tensor.read() for key, tensor in once.items()}
        return {name: read[id(tensor)] for name, tensor in self.tensors.items()}

    def summary(self) -> str:
        """One line for people."""
        parts = [
            f"{len(self.tensors)} parameters loaded from {self.dialect} names"
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
                lines.extend(f"  {shown(name)}" for name in names[:_LISTED])
                if len(names) > _LISTED:
                    lines.append(f"  and {len(names) - _LISTED:,} more")
        return "\n".join(lines)


def reconcile(
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, Union[np.ndarray, Stored]],
    *,
    dialect: Optional[Dialect] = None,
    new_allowed: Iterable[str] = (),
    ignore_mismatched_sizes: bool = False,
    check_values: bool = True,
    bfloat16_bits: bool = True,
    skipped: Optional[Mapping[str, str]] = None,
) -> Account:
    """Gives each parameter its tensor, or says everything that stands in the way.

    Args:
        expected: shapes by our names (`parameter_shapes`).
        found: a file's tensors by their names, in any dialect, with any prefix; in memory or still stored.
        dialect: whose names they are; None detects it.
        new_allowed: prefixes of parts (`classifier.`, `pooler.`) that the checkpoint may lack as a whole. Of
            a part that is there, everything must be.
        ignore_mismatched_sizes: count what has another shape as new, in place of refusing it.
        check_values: read every tensor now and refuse what is not finite; without it `Account.read` does.

        bfloat16_bits: uint16 numbers are the bits of bfloat16, as in `.pdparams`; in no other format.
        skipped: what the file's reader left out already, and why; it goes into the account.

    Returns:
        The account, complete.

    Raises:
        CheckpointError: anything missing, unexpected, mis-shaped, not finite or contradictory. The message
            lists all of it, `error.account` holds it.
    """
    dialect = dialect or detect(found)
    account = Account(dialect.name, dropped=dict(skipped or {}))
    wanted = {bare(name): name for name in expected}
    stored = {name: Held(item) if isinstance(item, np.ndarray) else item for name, item in found.items()}
    claims = _claims(account, wanted, stored, dialect)
    for ours, name in wanted.items():
        tensor = _chosen(account, name, claims.get(ours, []))
        if tensor is not None:
            if bfloat16_bits and tensor.dtype == np.uint16:  # no parameter is an integer
                account.widened.append(name)
                tensor = Widened(tensor)
            _accept(account, name, tuple(expected[name]), tensor)
    if ignore_mismatched_sizes:
        account.new.update({name: f"{name} ({what})" for name, what in account.misshaped.items()})
        account.misshaped.clear()
    _settle_ties(account, wanted, claims)
    _settle_absent(account, wanted, claims, tuple(new_allowed))
    if check_values or not account.complete:  # a refusal tells everything
        _check_values(account)
    if not account.complete:
        raise CheckpointError(_message(account), account)
    return account


def _check_values(account: Account) -> None:
    """Reads everything once; what is not finite is noted, and refused with the rest."""
    try:
        for _ in account.read():
            pass
    except CheckpointError:
        if not account.not_finite:  # not ours: a tensor that cannot be read
            raise


class _Claim(NamedTuple):
    name: str  # in the file
    tensor: Stored  # in our layout
    turned: bool


def _claims(
    account: Account, wanted: Mapping[str, str], found: Mapping[str, Stored], dialect: Dialect
) -> dict[str, list[_Claim]]:
    """The tensors that mean each wanted parameter; the others go to `dropped` or `unexpected`."""
    claims: dict[str, list[_Claim]] = {}
    for name, tensor in found.items():
        weight, why = dialect.to_ours(name), dropped(name)
        if why is not None:
            account.dropped[name] = why
        elif weight is None:
            account.unexpected.append(name)
        elif weight.ours in wanted:
            claim = _Claim(name, Turned(tensor) if weight.turned else tensor, weight.turned)
            claims.setdefault(weight.ours, []).append(claim)
        elif _part(weight.ours) and not any(_part(ours) == _part(weight.ours) for ours in wanted):
            account.dropped[name] = f"of another head ({_part(weight.ours)})"
        else:
            account.unexpected.append(name)
    return claims


def _part(ours: str) -> str:
    """The part of a head that a parameter belongs to, or "" for the model itself."""
    return next((part[:-1] for part in HEAD_PARTS if ours.startswith(part)), "")


def _chosen(account: Account, name: str, claims: list[_Claim]) -> Optional[Stored]:
    """The one tensor for a parameter, or None when nothing or more than one thing claims it."""
    if not claims:
        return None
    first = claims[0]
    for other in claims[1:]:
        if not same_values(first.tensor, other.tensor):
            account.conflicts[name] = f"{first.name} and {other.name}"
            return None
        account.dropped[other.name] = "a second copy"
    if first.name != name:
        account.renamed[first.name] = name
    if first.turned:
        account.turned.append(name)
    return first.tensor


def _accept(account: Account, name: str, shape: tuple[int, ...], tensor: Stored) -> None:
    if tensor.dtype.kind != "f":
        account.misshaped[name] = f"expected {list(shape)}, found {list(tensor.shape)} of {tensor.dtype}"
    elif tuple(tensor.shape) != shape:
        account.misshaped[name] = f"expected {list(shape)}, found {list(tensor.shape)}"
    else:
        account.tensors[name] = tensor


def _settle_ties(account: Account, wanted: Mapping[str, str], claims: Mapping[str, list[_Claim]]) -> None:
    for tied, partner in TIES.items():
        if tied not in wanted or partner not in wanted:
            continue
        shared, own = account.tensors.get(wanted[partner]), account.tensors.get(wanted[tied])
        if shared is None or (own is None and tied in claims):
            continue
        if own is None or same_values(own, shared):
            account.tensors[wanted[tied]] = shared
        else:
            both = f"{claims[tied][0].name} and {claims[partner][0].name}"
            account.conflicts[wanted[tied]] = f"{both}, which are one parameter"


def _settle_absent(
    account: Account,
    wanted: Mapping[str, str],
    claims: Mapping[str, list[_Claim]],
    new_allowed: tuple[str, ...],
) -> None:
    absent = [part for part in new_allowed if not any(ours.startswith(part) for ours in claims)]
    for ours, name in wanted.items():
        if ours in claims or name in account.tensors:
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
    meant = (DIALECTS[account.dialect].to_ours(name) for name in account.unexpected)
    unexpected = {weight.ours for weight in meant if weight is not None}
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
