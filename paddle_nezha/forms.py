"""Which form a layer is computed in: chosen by itself, or forced by `using_form` or PADDLE_NEZHA_ATTENTION."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Optional

from paddle_nezha import operator
from paddle_nezha._paddle import Tensor, is_eager, paddle, plain_python

FORMS = ("operator", "blocked", "dense")
FORM_VARIABLE = "PADDLE_NEZHA_ATTENTION"
NATIVE = ("blocked", "dense", "native")  # asking for one of these keeps every operator out
_CHOICES = ("operator", *NATIVE)
_WITHOUT_OPERATORS = {
    "native": "plain Paddle operations (blocked or dense, by the call)",
    "blocked": "plain Paddle operations, blocked (dense in traced graphs, for learned tables and for probabilities)",
    "dense": "plain Paddle operations, dense",
}
_forced: "ContextVar[Optional[str]]" = ContextVar("forced", default=None)


@contextmanager
def using_form(form: Optional[str]) -> "Iterator[None]":
    """Within the block layers are computed in this form, whatever would be chosen.

    Args:
        form: "operator" (in traced graphs too; an error where it cannot run), "blocked", "dense", or "native" for
            either of these two. A call that a native form cannot serve takes the other. None leaves the choice free.

    Raises:
        ValueError: another name.
    """
    token = _forced.set(None if form is None else _known(form, "form"))
    try:
        yield
    finally:
        _forced.reset(token)


def _known(form: str, what: str) -> str:
    if form not in _CHOICES:
        raise ValueError(
            f"{what} must be one of {', '.join(_CHOICES)}, but is {form!r}: leave it out to let it be chosen."
        )
    return form


@plain_python
def forced_form() -> Optional[str]:
    """The form that `using_form` or PADDLE_NEZHA_ATTENTION asks for, or None."""
    form, named = _forced.get(), os.environ.get(FORM_VARIABLE, "")
    return form or (_known(named, FORM_VARIABLE) if named else None)


@plain_python
def why_no_operators(like: Tensor) -> Optional[str]:
    """What keeps the operators from computing with a tensor, or None if they can.

    Where it is that they are not to be had, a line of notice says so, once a process.

    Args:
        like: a tensor of the dtype and place that they would compute in.

    Raises:
        OperatorError: PADDLE_NEZHA_OPERATOR names a library that is not to be had.
    """
    if not operator.fits(like.dtype):
        return f"they compute in float32 and float64, not in {like.dtype}"
    if is_eager() and not like.place.is_cpu_place():
        return f"they run on processors, and the model is on {like.place}"
    reason = operator.unavailable()
    if reason is not None and forced_form() != "operator":  # which is an error that says it
        operator.tell_of_fall_back(reason)
    return reason


@plain_python
def by_operators(like: Tensor) -> bool:
    """Whether what lies between a layer's products is computed by operators; `like` as in `why_no_operators`.

    Not in a graph, whatever form is forced there: Paddle Inference joins these steps to the products by itself, and an
    operator between them would keep it from that (measured: 1.4 times as slow at (8, 128)).
    """
    if not is_eager() or forced_form() in NATIVE:
        return False
    return why_no_operators(like) is None


def describe() -> str:
    """What layers are computed by in this process, and why, in one line; compiles nothing."""
    try:
        forced = forced_form()
        missing = None if forced in NATIVE else operator.foreseen()
    except (ValueError, operator.OperatorError) as error:
        return f"an error at every call of a model: {error}"
    because = "" if forced is None else f", as {FORM_VARIABLE} asks ({forced})"
    if forced in NATIVE:
        return f"{_WITHOUT_OPERATORS[forced]}{because}"
    if missing is not None:
        if forced == "operator":
            return f"an error at every call that the operator could compute{because}: {missing}"
        return f"{_WITHOUT_OPERATORS['native']}, since the operator is not available: {missing}"
    device = paddle.device.get_device()
    if device != "cpu":
        return f"{_WITHOUT_OPERATORS['native']}, since the device is {device} (the operator on models moved to cpu)"
    graphs = "" if forced == "operator" else "in traced graphs, "
    modes = "eager mode and traced graphs" if forced == "operator" else "eager mode"
    return (
        f"the operator on processors in {modes}{because}; plain Paddle operations {graphs}for masks of pairs, where "
        "probabilities are asked for, and on GPUs"
    )
