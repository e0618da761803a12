"""What a value may be: said once for keywords and for files, with one form of refusal."""

import operator
import os
import reprlib
from typing import Any, Callable, NamedTuple, Optional

import numpy as np
from tokenizers import AddedToken

UNLIMITED = 10**30  # HF's way to write "no limit"; its own files hold float 1e30 turned to int, a little more


class Kind(NamedTuple):
    """`read` gives a value in its one form, and raises TypeError or ValueError for a value of another kind."""

    expected: str
    advice: str
    read: Callable[[Any], Any]


def checked(name: str, value: Any, kind: Kind, file: Optional[str] = None) -> Any:
    """`value` as `kind` reads it.

    Raises:
        ValueError: a value of another kind, with its name and the file it stands in.
    """
    try:
        return kind.read(value)
    except (TypeError, ValueError):
        where = "" if file is None else f" in {file!r}"
        raise ValueError(
            f"expected {name}{where} to be {kind.expected}, got {reprlib.repr(value)}; {kind.advice}"
        ) from None


def path_of(what: str, given: Any) -> str:
    """A path as text.

    Raises:
        TypeError: no path.
    """
    try:
        return os.fsdecode(given)
    except TypeError:
        raise TypeError(
            f"expected {what} to be a path (str or os.PathLike), got {type(given).__name__}; "
            "check where the path comes from"
        ) from None


def _flag(value: Any) -> bool:
    if not isinstance(value, (int, np.bool_)) or value not in (0, 1):  # 0 and 1: what strtobool gives
        raise ValueError
    return bool(value)


def _count(value: Any, least: int = 1) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or number < least:
        raise ValueError
    return number


def _model_length(value: Any) -> Optional[int]:
    if value is None:
        return None
    number = _count(int(value) if isinstance(value, float) and value.is_integer() else value)
    return None if number >= UNLIMITED else number


def _side(value: Any) -> str:
    if value not in ("left", "right"):
        raise ValueError
    return str(value)


def _token(value: Any) -> str:
    if not isinstance(value, str) or value.strip() == "":
        raise ValueError
    value.encode("utf-8")  # lone surrogates fail here; Rust strings cannot hold them
    return value


def _addable(value: Any) -> Any:
    _token(value.content if isinstance(value, AddedToken) else value)
    return value


def _addables(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return [_addable(token) for token in value]


FLAG = Kind("True or False", "give it as a truth value, without quotes", _flag)
FLAG_OR_NONE = FLAG._replace(expected="True, False or None", read=lambda value: None if value is None else _flag(value))
LENGTH = Kind("a whole number of at least 1", "leave it out for the default", _count)
DISTANCE = Kind("a whole number of at least 0", "leave it out for the default", lambda value: _count(value, least=0))
MODEL_LENGTH = LENGTH._replace(
    expected=f"{LENGTH.expected}, or None for no limit", advice="NeZha takes any length", read=_model_length
)
SIDE = Kind("'left' or 'right'", "pass one of the two", _side)
TOKEN = Kind("text, not blank and without lone surrogates", "give the token itself, such as '[UNK]'", _token)
ADDABLE = TOKEN._replace(advice="leave it out", read=_addable)
ADDABLES = Kind(
    "a list of texts, not blank and without lone surrogates", "put one token in a list too: ['[E]']", _addables
)
