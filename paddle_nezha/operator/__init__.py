"""A layer in C++: attention whose scores never leave the processor's cache, and what lies between the products.

Compiled when first needed (`building`), it runs on processors, in float32 and float64, in eager mode and in traced
graphs. `csrc/attention.h` and `csrc/layer.h` say what it computes. Threads are Paddle's; the instruction set is the
best the processor has, or the one that PADDLE_NEZHA_ISA names: avx512, avx2 or portable.
"""

import ctypes
import logging
import os
import threading
from pathlib import Path
from typing import Optional

from paddle_nezha._paddle import Tensor, is_eager, load_operators, paddle, plain_python, run_operator

from .building import SWITCH, ForcedChoiceError, NotMeantError, OperatorError, existing, library, outlook

__all__ = [
    "OperatorError",
    "describe",
    "fits",
    "foreseen",
    "gelu",
    "instruction_set",
    "load",
    "packed_attention",
    "residual_norm",
    "tell_of_fall_back",
    "unavailable",
]

_LARGEST_HEAD = 256
_lock = threading.Lock()
_loaded: "Optional[Path]" = None
_failure: "Optional[OperatorError]" = None
_told = False
_log = logging.getLogger("paddle_nezha")


def load(path: "Optional[Path]" = None) -> Path:
    """Makes the operator known to Paddle in this process; a second call does nothing.

    Args:
        path: a library, such as the one an exported folder carries; None finds or compiles the installed package's.

    Returns:
        The library that is loaded.

    Raises:
        OperatorError: it cannot be had here, or the file is no library for this Paddle.
    """
    global _loaded, _failure
    with _lock:
        if _loaded is not None:
            return _loaded
        if path is None and _failure is not None:
            raise type(_failure)(str(_failure))
        try:
            found = library() if path is None else Path(path)
            _register(found, named=path is None and found == Path(os.environ.get(SWITCH, "").strip()))
        except OperatorError as error:
            _failure = error if path is None else _failure
            raise
        _loaded, _failure = found, None
        return found


def _register(path: Path, named: bool) -> None:
    """
    Args:
        named: whether it is the environment that names the library.
    """
    why = None
    try:
        if not hasattr(ctypes.CDLL(str(path)), "nezha_instruction_set"):
            why = "it is a library, but not that of the operator"
        else:
            load_operators(str(path))
    except OSError as error:  # the system's own words: Paddle's are about folders of CUDA
        why = str(error)
    except Exception as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
    if why is not None:
        said = f"{path} could not be loaded into Paddle {paddle.__version__}: {why}"
        raise ForcedChoiceError(f"{SWITCH} names a library, but {said}") if named else OperatorError(said)


@plain_python
def unavailable() -> Optional[str]:
    """Why the operator cannot run in this process, or None: it is loaded (compiled first, if need be).

    Raises:
        OperatorError: PADDLE_NEZHA_OPERATOR names a library that is not to be had. It was asked for, so nothing else
            takes its place.
    """
    if _loaded is not None:
        return None
    try:
        load()
    except ForcedChoiceError:
        raise
    except OperatorError as error:
        return str(error)
    return None


def tell_of_fall_back(reason: str) -> None:
    """Says once a process that what the operator would compute is computed without it, and why."""
    global _told
    if not _told and not isinstance(_failure, NotMeantError):
        _told = True
        _log.warning("Attention runs on Paddle's own operations, which are slower: %s", reason)


def foreseen() -> Optional[str]:
    """Why the operator will not run in this process, or None, as far as that can be told without compiling.

    Raises:
        OperatorError: what makes every call of it an error: a library or an instruction set that the environment names
            and that is not to be had.
    """
    try:
        if _loaded is None and _failure is None and existing() is None:
            outlook()
        elif not instruction_set():
            named = os.environ.get("PADDLE_NEZHA_ISA")
            raise ForcedChoiceError(f"PADDLE_NEZHA_ISA must name an instruction set that runs here, but is {named!r}")
    except ForcedChoiceError:
        raise
    except OperatorError as error:
        return str(error)
    return None


def describe() -> str:
    """Whether the operator runs here, with which instruction set, or why not, in one line; compiles nothing."""
    try:
        reason = foreseen()
        if reason is not None:
            return f"not available: {reason}"
        if _loaded is None and existing() is None:
            return outlook()
        return f"{instruction_set()}, {load()}"
    except OperatorError as error:
        return f"not available: {error}"


def instruction_set() -> str:
    """The instruction set that runs: "avx512", "avx2" or "portable"; "" where PADDLE_NEZHA_ISA names none of them.

    Raises:
        OperatorError: there is no operator here.
    """
    name = ctypes.CDLL(str(load())).nezha_instruction_set
    name.restype = ctypes.c_char_p
    return str(name().decode())


@plain_python
def packed_attention(
    qkv: Tensor,
    visible: Optional[Tensor] = None,
    starts: Optional[Tensor] = None,
    *,
    heads: int,
    bias: Optional[Tensor] = None,
    max_relative_position: int = 0,
    tables: Optional[Tensor] = None,
    dropout: float = 0.0,
) -> Tensor:
    """Self-attention over queries, keys and values that lie side by side.

    Args:
        qkv: [B, L, 3N], or [tokens, 3N] of several sequences one after another; float32 or float64, on a CPU.
            D = N / heads is even and at most 256.
        visible: bool [B, L] or [tokens]; False hides a token as a key. None shows all.
        starts: int32 [sequences + 1], with [tokens, 3N] alone: sequence s is the tokens starts[s] .. starts[s + 1] - 1.
        bias: [3N], added to qkv; None is none.
        max_relative_position: m of the sinusoid table (or of `tables`); 0 leaves the relative part out.
        tables: [2, 2m + 1, D], learned tables of keys and of values in place of the sinusoid one.
        dropout: probability with which a probability is dropped, drawn from Paddle's generator.

    Returns:
        context [B, L, N] or [tokens, N]. A query that sees no key gets 0.

    Raises:
        OperatorError: there is no operator here.
    """
    _require()
    if is_eager() and 0 in qkv.shape[:-1] and qkv.shape[-1]:  # Paddle 2.6 lets no operator return nothing
        return qkv[..., : qkv.shape[-1] // 3]
    bias = paddle.zeros(qkv.shape[-1:], qkv.dtype) if bias is None else bias
    settings = {"heads": heads, "max_relative_position": max_relative_position, "dropout": float(dropout)}
    given = {"QKV": qkv, "Bias": bias, **({} if tables is None else {"Tables": tables})}
    given.update({"Visible@OPTIONAL": visible, "Starts@OPTIONAL": starts, "Seed@OPTIONAL": _seed(dropout)})
    name = "nezha_attention" if tables is None else "nezha_attention_learned"
    return run_operator(name, given, settings, ("Out", "LogSumExp"))[0]


@plain_python
def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The exact GELU of ``x + bias`` in one pass: x [..., W], bias [W]; float32 or float64, on a CPU.

    Raises:
        OperatorError: there is no operator here.
    """
    _require()
    return run_operator("nezha_gelu", {"X": x, "Bias": bias}, {}, ("Out",))[0]


@plain_python
def residual_norm(
    x: Tensor,
    residual: Tensor,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    epsilon: float,
    dropout: float = 0.0,
) -> Tensor:
    """``LayerNorm(residual + dropout(x + bias))`` in one pass, with `weight` and `shift` as LayerNorm's own.

    Its gradients are right whatever is asked for, which those of Paddle's LayerNorm on a CPU are not.

    Args:
        x, residual: [..., W]; float32 or float64, on a CPU. bias, weight, shift: [W].
        epsilon: rounded to float32, as Paddle rounds it.

    Returns:
        [..., W].

    Raises:
        OperatorError: there is no operator here.
    """
    _require()
    given = {"X": x, "Residual": residual, "Bias": bias, "Weight": weight, "Shift": shift}
    settings = {"epsilon": float(epsilon), "dropout": float(dropout)}
    outputs = ("Out", "Mean", "Inverse")
    return run_operator("nezha_norm", {**given, "Seed@OPTIONAL": _seed(dropout)}, settings, outputs)[0]


def _require() -> None:
    reason = unavailable()
    if reason is not None:
        raise OperatorError(f"The operators cannot run: {reason}.")


def _seed(dropout: float) -> Optional[Tensor]:
    """New for each call; the mask follows from it, in the backward too. (Paddle's randint ends at 32 bits.)"""
    return paddle.randint(-(1 << 31), (1 << 31) - 1, [2], dtype="int64") if dropout else None


def fits(dtype: object, head_size: int = 2) -> bool:
    """Whether the operators compute in this dtype and head size."""
    return dtype in (paddle.float32, paddle.float64) and head_size % 2 == 0 and head_size <= _LARGEST_HEAD
