"""A checkpoint with its config: which head it holds, and every tensor under our names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from ..config import NeZhaConfig
from .account import Account, reconcile
from .configs import from_foreign, remarks_from
from .dialects import DIALECTS, Dialect, detect, dropped
from .errors import CheckpointError, PathLike
from .heads import head_of_class, head_of_tensors
from .names import HEAD_PARTS, HEADS, TIES, parameter_shapes
from .opening import Opened, open_checkpoint
from .stored import Stored

# What a checkpoint of a head may lack: see `Described`.
_MAY_LACK = (*HEAD_PARTS, "pooler.")


class UnknownHead(ValueError):
    """A classifier of which neither tensors nor config tell what it classifies."""


@dataclass(frozen=True)
class Described:
    """An open checkpoint that fits its config.

    Args:
        opened: the weights.
        config: the settings, as they are meant here.
        head: one of `HEADS`.
        account: the tensors of that head. A part that the file lacks as a whole is in `account.new`.
        remarks: what a person should know of the config.
    """

    opened: Opened
    config: NeZhaConfig
    head: str
    account: Account
    remarks: "list[str]"


@contextmanager
def described(
    path: PathLike,
    *,
    dialect: Optional[str] = None,
    head: Optional[str] = None,
    config: "Union[PathLike, NeZhaConfig, None]" = None,
    overrides: "Optional[Mapping[str, Any]]" = None,
) -> Iterator[Described]:
    """Opens a checkpoint and holds its tensors to its config; no numbers are read but those of tied weights.

    Args:
        path: as for `open_checkpoint`.
        dialect: whose names the tensors bear, one of `DIALECTS`; None detects it.
        head: one of `HEADS`; None tells it by the tensors, and by the config's `architectures` where those cannot.
        config: a config file, a folder with one, or a config; None looks beside the weights.
        overrides: settings that win over the file's.

    Raises:
        CheckpointError: the weights cannot be read, or are not those of the config; the message lists all.
        UnknownHead: no telling which head.
        ValueError: no such dialect or head; a config that cannot be honoured.
        FileNotFoundError: no weights, or no config.
    """
    with open_checkpoint(path) as opened:
        tongue = _dialect(dialect) or _told(opened, lambda: detect(opened.tensors))
        place = config if config is not None else _beside(Path(path))
        settings, said = _settings(place, tongue, dict(overrides or {}))
        kind = _head(opened, settings, head)
        account = _told(
            opened,
            lambda: reconcile(
                parameter_shapes(settings, kind),
                opened.tensors,
                dialect=tongue,
                new_allowed=_MAY_LACK,
                check_values=False,
                bfloat16_bits=opened.form == "pdparams",
                skipped=opened.skipped,
            ),
        )
        yield Described(opened, settings, kind, account, said)


def by_our_names(opened: Opened, dialect: Optional[str] = None) -> Account:
    """Every tensor of a checkpoint under our bare names and in our layout, whatever its head and without a config.

    A tied weight is there once. Tensors that mean no parameter keep the names they have.

    Raises:
        CheckpointError: names that tell no dialect, or one parameter twice with different values.
    """
    tongue = _dialect(dialect) or _told(opened, lambda: detect(opened.tensors))
    shapes: "dict[str, tuple[int, ...]]" = {}
    known: "dict[str, Any]" = {}
    unknown: "dict[str, Any]" = {}
    for name, tensor in opened.tensors.items():
        weight, why = tongue.to_ours(name), dropped(name)
        if weight is None and why is None:
            unknown[name] = tensor
            continue
        known[name] = tensor
        if weight is not None and why is None:
            shapes.setdefault(weight.ours, tensor.shape[::-1] if weight.turned else tensor.shape)
    account = _told(
        opened,
        lambda: reconcile(
            shapes,
            known,
            dialect=tongue,
            check_values=False,
            bfloat16_bits=opened.form == "pdparams",
            skipped=opened.skipped,
        ),
    )
    account.tensors = {**untied(account.tensors), **unknown}
    return account


def untied(tensors: "Mapping[str, Stored]") -> "dict[str, Stored]":
    """Without the second names of tied weights."""
    ties = {name for name in tensors if name in TIES}
    return {name: tensor for name, tensor in tensors.items() if name not in ties or not _is_shared(name, tensors)}


def _is_shared(name: str, tensors: "Mapping[str, Stored]") -> bool:
    return any(tensors[name] is tensor for other, tensor in tensors.items() if other != name)


def _told(opened: Opened, ask: Any) -> Any:
    """The answer; an error names the file."""
    try:
        return ask()
    except CheckpointError as error:
        raise CheckpointError(f"{opened.file}: {error}", error.account) from None


def _dialect(name: Optional[str]) -> Optional[Dialect]:
    if name is not None and name not in DIALECTS:
        raise ValueError(f"dialect must be one of {', '.join(DIALECTS)}, but got {name!r}.")
    return None if name is None else DIALECTS[name]


def _beside(path: Path) -> Path:
    """Where the config of weights lies; a TensorFlow prefix is no file and has it in its folder too."""
    return path if path.is_dir() else path.parent


def _settings(
    place: "Union[PathLike, NeZhaConfig]", dialect: Dialect, overrides: "dict[str, Any]"
) -> "tuple[NeZhaConfig, list[str]]":
    if isinstance(place, NeZhaConfig):
        return place, []
    raw = NeZhaConfig.from_pretrained(place).to_dict()
    try:
        if dialect.name != "tensorflow":
            return NeZhaConfig.from_pretrained(place, **overrides), []
        said = [] if "hidden_act" in overrides else remarks_from(raw, dialect.name)
        return from_foreign(raw, dialect.name, **overrides), said
    except TypeError as error:  # of the overrides: a file's unknown keys are kept
        raise ValueError(str(error)) from None


def _head(opened: Opened, config: NeZhaConfig, asked: Optional[str]) -> str:
    if asked is not None:
        if asked not in HEADS:
            raise ValueError(f"head must be one of {', '.join(HEADS)}, but got {asked!r}.")
        return asked
    named = next(filter(None, map(head_of_class, config.architectures or ())), None)
    head = head_of_tensors(opened.tensors) or named
    if head is None:
        raise UnknownHead(
            f"{opened.file} holds a classifier, but its config names no architecture, so it may classify texts, tokens "
            "or choices. Say which by head= (--head on the command line): sequence_classification, "
            "token_classification or multiple_choice."
        )
    return head
