"""Two settings that let Paddle use the processor it runs on: `tune_cpu` makes them, `plan` says what it would do.

Neither is made by importing anything, and neither changes what a model computes beyond the order of its sums.
"""

import ctypes
import hashlib
import json
import logging
import math
import os
import platform
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Optional

import numpy as np

from paddle_nezha._files import alone_in, replaced
from paddle_nezha.hub.places import cache_home

__all__ = ["MKL_VARIABLE", "TUNE_VARIABLE", "Processor", "Setting", "Tuning", "plan", "read_processor", "tune_cpu"]

TUNE_VARIABLE = "PADDLE_NEZHA_TUNE"
MKL_VARIABLE = "MKL_DEBUG_CPU_TYPE"

# MKL's AVX-512 code needs the five sets that all AVX-512 server processors have, its AVX2 code these two.
_AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
_AVX2 = {"avx2", "fma"}

# glibc's malloc.h. In this order, so that a refusal half-way leaves the allocator no worse than it was: without mmap
# but still trimming, the heap would shrink and grow with every tensor.
_MALLOPT = (("M_TRIM_THRESHOLD", -1, 2**31 - 1), ("M_TOP_PAD", -2, 64 << 20), ("M_MMAP_MAX", -4, 0))

_LIMIT = 120.0  # seconds for the trial: it takes about three, but Paddle may have to come over a slow network disk
_EDITION = 1  # of the trial: raised with it, so that no older verdict is believed
_NOT_THE_PROCESSOR = {signal.SIGINT, signal.SIGTERM, signal.SIGKILL}  # somebody, or a system out of memory

State = Literal["set", "planned", "kept", "untouched", "refused", "off"]
_TOLD = {
    "set": "set",
    "planned": "would be set",
    "kept": "left as it was set",
    "untouched": "left alone",
    "refused": "left unset",
    "off": "switched off",
}

_logger = logging.getLogger("paddle_nezha.tuning")
_lock = threading.RLock()
_done: "Optional[Tuning]" = None


@dataclass(frozen=True)
class Processor:
    """What decides about a processor. A fact that the system does not tell is empty."""

    vendor: str  # as the processor names itself: "AuthenticAMD", "GenuineIntel"
    model: str
    flags: "frozenset[str]"  # instruction sets, in Linux's spelling
    machine: str  # the architecture: "x86_64", "aarch64"

    @property
    def name(self) -> str:
        return self.model or self.vendor or self.machine or "an unknown processor"


@dataclass(frozen=True)
class Setting:
    """One setting: what happened to it, and why.

    `state` is "set" (by `tune_cpu`), "planned" (it would), "kept" (there was a choice, which is respected), "untouched"
    (nothing to gain, or nothing to set, here), "refused" (tried, and it did not work) or "off" (by PADDLE_NEZHA_TUNE).
    `value` is what is, or would be, in force; None where this package has no part in it.
    """

    name: str
    state: State
    value: Optional[str]
    why: str

    def __str__(self) -> str:
        value = f" {self.value}" if self.value is not None else ""
        return f"{self.name}{value} {_TOLD[self.state]}: {self.why}"


@dataclass(frozen=True)
class Tuning:
    """What was done, or would be: the path of matrix products, and what happens to freed memory."""

    processor: str
    products: Setting
    memory: Setting

    def describe(self) -> str:
        """Three lines for a person."""
        return f"processor: {self.processor}\nmatrix products: {self.products}\nmemory: {self.memory}"

    __str__ = describe


def tune_cpu() -> Tuning:
    """Makes Paddle fast on this processor, where it can be, and says what it did. Call it before the first model runs.

    **Matrix products.** On AMD the MKL inside Paddle's Linux wheel takes its SSE code: 17 % of the processor's peak.
    The environment variable MKL_DEBUG_CPU_TYPE chooses better: 7 with AVX-512, 5 with AVX2 alone. MKL reads it when the
    process first multiplies matrices, divides, or takes a softmax or GELU: after `import paddle` is early enough, after
    the first of these too late. A child process tries the value first, over products, division, exponentials, clipping
    and an optimizer step, all held to NumPy; if it dies, is wrong, or takes more than two minutes, the variable stays
    unset. That takes some seconds, once: the verdict is kept in the cache folder for this processor, Paddle release and
    value. On Intel nothing is set: there 7 gives the speed that MKL finds by itself. The processes that this one starts
    inherit the variable, and an MKL that another package brought reads it too, if older than 2020.

    **Memory.** Tensors of a few MB and more are mapped, filled page by page and given back by every operation: adding
    4 MB costs 1,025 page faults each time. With glibc, `mallopt` makes the process keep its heap, and there are none.
    The price: the process keeps its memory even when idle, never looks smaller than at its peak, and the peak itself
    may grow where sizes vary much. Where memory is short, set any MALLOC_ variable, and this is left alone.

    What the environment sets is respected: MKL_DEBUG_CPU_TYPE; for the memory any MALLOC_ variable, and a
    GLIBC_TUNABLES that speaks of glibc.malloc. PADDLE_NEZHA_TUNE=0 switches everything off. Results may differ from an
    untuned process's as they do between two processors, by the rounding of sums taken in another order.

    It needs no Paddle and imports none. Called again it does nothing and returns what it returned first. What it did is
    one line at level INFO of the logger "paddle_nezha.tuning".

    Raises:
        ValueError: PADDLE_NEZHA_TUNE is neither 0 nor 1. Everything else that goes wrong is a reason in the result.
    """
    global _done
    with _lock:
        if _done is not None:
            return _done
        processor, wheel = _this_processor(), _wheel()
        if not _is_on(os.environ):
            return _off(processor)  # and a later call may be switched on
        products = _choose_path(processor, wheel, os.environ)
        if products.value is not None and products.state == "planned" and wheel is not None:
            products = _set_path(products, products.value, processor, wheel)
        memory = _choose_heap(platform.libc_ver(), _has_foreign_malloc(), os.environ)
        if memory.state == "planned":
            memory = _keep_heap(memory)
        _done = Tuning(processor.name, products, memory)
        _logger.info("tune_cpu on %s: %s; %s", processor.name, products, memory)
        return _done


def plan() -> Tuning:
    """What `tune_cpu` would do in this process, or did. It sets nothing and starts no process.

    Raises:
        ValueError: PADDLE_NEZHA_TUNE is neither 0 nor 1.
    """
    with _lock:
        if _done is not None:
            return _done
        processor, wheel = _this_processor(), _wheel()
        if not _is_on(os.environ):
            return _off(processor)
        products = _choose_path(processor, wheel, os.environ)
        if products.value is not None and products.state == "planned" and wheel is not None:
            verdict = _remembered(_memory(processor, wheel, products.value))
            if verdict is None:
                products = replace(products, why=f"{products.why}, if a child process finds it right")
            else:
                products = _judged(products, verdict)
        return Tuning(processor.name, products, _choose_heap(platform.libc_ver(), _has_foreign_malloc(), os.environ))


def _off(processor: Processor) -> Tuning:
    why = f"{TUNE_VARIABLE}=0"
    return Tuning(processor.name, Setting(MKL_VARIABLE, "off", None, why), Setting("mallopt", "off", None, why))


def _is_on(environ: "Mapping[str, str]") -> bool:
    given = environ.get(TUNE_VARIABLE, "").strip()
    if given not in ("", "0", "1"):
        raise ValueError(
            f"{TUNE_VARIABLE}: expected 1 (tune, which is the default) or 0 (leave everything alone), got {given!r}. "
            "Set it to one of them, or unset it."
        )
    return given != "0"


# ---- what is here


def read_processor(cpuinfo: str, machine: str, fallback: str = "") -> Processor:
    """The processor that the text of Linux's /proc/cpuinfo describes, by its first entry.

    `machine` is the architecture as `platform.machine()` gives it, `fallback` the model's name where the text has none
    (ARM), or where there is no text (other systems).
    """
    facts: "dict[str, str]" = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            facts.setdefault(key.strip().lower(), value.strip())
    flags = facts.get("flags") or facts.get("features") or ""
    return Processor(facts.get("vendor_id", ""), facts.get("model name") or fallback, frozenset(flags.split()), machine)


def _this_processor() -> Processor:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return read_processor(text, platform.machine(), platform.processor())


@dataclass(frozen=True)
class _Wheel:
    """The Paddle that an import would find."""

    version: str
    has_mklml: bool


def _wheel() -> Optional[_Wheel]:
    """Found without importing it, which would cost a second and start its threads."""
    try:
        spec = find_spec("paddle")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    try:
        text = (folder / "version" / "__init__.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    version = re.search(r"^full_version\s*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return _Wheel(version[1] if version else "", (folder / "libs" / "libmklml_intel.so").is_file())


def _has_foreign_malloc() -> bool:
    """Whether another allocator (jemalloc, tcmalloc) stands in for glibc's, whose settings then mean nothing."""
    try:
        used, own = (ctypes.cast(ctypes.CDLL(name).malloc, ctypes.c_void_p).value for name in (None, "libc.so.6"))
    except (OSError, TypeError, AttributeError):  # no glibc, which is told by its version
        return False
    return used != own


# ---- what to do


def _choose_path(processor: Processor, wheel: Optional[_Wheel], environ: "Mapping[str, str]") -> Setting:
    """Which MKL_DEBUG_CPU_TYPE to set, and why or why not. Never 6 or 8, which die of SIGILL in division."""
    given = environ.get(MKL_VARIABLE)
    if given:
        deadly = ", though with 6 and 8 Paddle dies of SIGILL; 5 and 7 work" if given.strip() in ("6", "8") else ""
        return Setting(MKL_VARIABLE, "kept", given, f"it was in the environment before{deadly}")

    def untouched(why: str) -> Setting:
        return Setting(MKL_VARIABLE, "untouched", None, why)

    if wheel is None:
        return untouched("Paddle is not installed")
    if not wheel.has_mklml or processor.machine.lower() not in ("x86_64", "amd64"):
        return untouched("the installed Paddle has no MKLML, which alone reads it")
    if processor.vendor != "AuthenticAMD":
        return untouched(f"{processor.vendor or 'this processor'} is not AMD: MKL chooses well by itself")
    if processor.flags >= _AVX512:
        return Setting(MKL_VARIABLE, "planned", "7", "AVX-512 in place of the SSE that MKL takes on AMD")
    if processor.flags >= _AVX2:
        return Setting(MKL_VARIABLE, "planned", "5", "AVX2 in place of the SSE that MKL takes on AMD")
    return untouched("the processor has no AVX2, so there is nothing better than SSE")


def _choose_heap(libc: "tuple[str, str]", foreign_malloc: bool, environ: "Mapping[str, str]") -> Setting:
    """Whether to keep the heap, and why or why not. `libc` is the C library's name and version."""
    given = sorted(name for name in environ if name.startswith("MALLOC_"))
    if "glibc.malloc" in environ.get("GLIBC_TUNABLES", ""):
        given.insert(0, "GLIBC_TUNABLES")
    if given:
        return Setting("mallopt", "kept", None, f"the environment sets {', '.join(given)}")
    if libc[0] != "glibc":
        return Setting("mallopt", "untouched", None, "it is a setting of glibc, which this Python does not run on")
    if foreign_malloc:
        return Setting("mallopt", "untouched", None, "another allocator stands in for glibc's")
    value = " ".join(f"{name}={number}" for name, _, number in _MALLOPT)
    return Setting("mallopt", "planned", value, "large tensors reuse memory that the process keeps")


# ---- doing it


def _set_path(products: Setting, value: str, processor: Processor, wheel: _Wheel) -> Setting:
    memory = _memory(processor, wheel, value)
    with _alone_beside(memory):  # processes started together pay once
        verdict = _remembered(memory)
        if verdict is None:
            verdict = _try(value)
            if verdict.lasting and memory is not None:
                verdict = _remember(memory, verdict, processor, wheel, value)
    judged = _judged(products, verdict)
    if judged.state == "planned":
        os.environ[MKL_VARIABLE] = value  # Python hands it on to the C library, where MKL looks
        late = "; in force unless Paddle, which was already imported, had computed before"
        judged = replace(judged, state="set", why=judged.why + (late if "paddle" in sys.modules else ""))
    return judged


def _keep_heap(memory: Setting) -> Setting:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError) as error:
        return replace(memory, state="refused", value=None, why=f"mallopt cannot be called: {error}")
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    for name, number, value in _MALLOPT:
        if mallopt(number, value) != 1:
            return replace(memory, state="refused", value=None, why=f"mallopt refused {name}={value}")
    return replace(memory, state="set")


# ---- the trial, and its verdict


@dataclass(frozen=True)
class _Verdict:
    right: bool
    why: str
    lasting: bool = True  # about the processor; else about this moment, and not remembered


def _judged(products: Setting, verdict: _Verdict) -> Setting:
    if verdict.right:
        return replace(products, why=f"{products.why}; {verdict.why}")
    return replace(products, state="refused", value=None, why=f"with {products.value} {verdict.why}")


# The child finds the modules that this process finds, so it tries the same Paddle.
_TRIAL = "import sys; sys.path[:] = sys.argv[1:]; from paddle_nezha.tuning import _trial; _trial()"


def _try(value: str, code: str = _TRIAL, limit: float = _LIMIT) -> _Verdict:
    """Runs `code` in a fresh Python with the value set, for at most `limit` seconds."""
    if not sys.executable or getattr(sys, "frozen", False):
        return _Verdict(False, "nothing was tried: there is no Python interpreter to start", lasting=False)
    command = [sys.executable, "-W", "ignore", "-c", code, *(path for path in sys.path if isinstance(path, str))]
    # Without GPUs, whose memory may be full: what is tried is the processor.
    environ = {**os.environ, MKL_VARIABLE: value, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return _Verdict(False, f"a child process did not end within {limit:g} s")
    except (OSError, ValueError) as error:
        return _Verdict(False, f"nothing was tried: {error}", lasting=False)
    if done.returncode < 0:
        died = -done.returncode
        name = signal.Signals(died).name if died in set(signal.Signals) else f"signal {died}"
        return _Verdict(False, f"a child process died of {name}", lasting=died not in _NOT_THE_PROCESSOR)
    with suppress(ValueError, IndexError, KeyError, TypeError):
        findings = json.loads(done.stdout.splitlines()[-1])["wrong"]
        if done.returncode == 0:
            wrong = ", ".join(findings)
            return _Verdict(
                not wrong, f"a child process found {wrong} wrong" if wrong else "a child process found it right"
            )
    said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines() or ["nothing"]
    return _Verdict(
        False, f"a child process failed with exit code {done.returncode}: {ascii(said[-1][:200])[1:-1]}", lasting=False
    )


def _trial() -> None:
    """What the child does: the last line that it prints is the names of what was wrong, in JSON."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a death that is expected leaves no dump in the user's folder
    from paddle_nezha._paddle import paddle

    paddle.set_device("cpu")
    wrong = _wrong(paddle)
    print(f"\n{json.dumps({'wrong': wrong})}", flush=True)


def _wrong(paddle: Any) -> "list[str]":
    """The operations whose results are not NumPy's. Products, division, softmax and GELU are what Paddle asks of MKL:
    these four end the process when MKL is given a type it does not know, and the rest does not."""
    return list(dict.fromkeys(name for name, right in _checks(paddle) if not right))


def _checks(paddle: Any) -> "Iterator[tuple[str, bool]]":
    draw = np.random.default_rng(20)
    # From one row to the width of a base model, with odd sizes, whose rest no vector fills.
    for dtype, rows, inner, columns in (
        ("float32", 1, 5, 3),
        ("float32", 33, 65, 129),
        ("float32", 128, 768, 255),
        ("float64", 33, 65, 129),
    ):
        a, b = draw.standard_normal((rows, inner)).astype(dtype), draw.standard_normal((inner, columns)).astype(dtype)
        yield "matmul", _is_product(paddle.matmul(paddle.to_tensor(a), paddle.to_tensor(b)), a, b)
        flipped = paddle.matmul(paddle.to_tensor(a), paddle.to_tensor(np.ascontiguousarray(b.T)), transpose_y=True)
        yield "matmul", _is_product(flipped, a, b)
    a, b = (
        draw.standard_normal((2, 3, 17, 64)).astype("float32"),
        draw.standard_normal((2, 3, 64, 19)).astype("float32"),
    )
    yield "matmul", _is_product(paddle.matmul(paddle.to_tensor(a), paddle.to_tensor(b)), a, b)

    x = draw.uniform(-3, 3, (7, 1431)).astype("float32")
    positive = draw.uniform(0.5, 2, x.shape).astype("float32")
    tensor, exact = paddle.to_tensor(x), x.astype("float64")
    powers = np.exp(exact)
    erf = np.vectorize(math.erf)(exact / math.sqrt(2))
    yield "division", _is_near(paddle.divide(tensor, paddle.to_tensor(positive)), exact / positive)
    yield "square root", _is_near(paddle.sqrt(paddle.to_tensor(positive)), np.sqrt(positive.astype("float64")))
    yield "exp", _is_near(paddle.exp(tensor), powers)
    yield "tanh", _is_near(paddle.tanh(tensor), np.tanh(exact))
    shares = paddle.nn.functional.softmax(tensor) * x.shape[1]  # of the size of 1, as the bound wants it
    yield "softmax", _is_near(shares, powers / powers.mean(-1, keepdims=True))
    yield "GELU", _is_near(paddle.nn.functional.gelu(tensor), exact * (1 + erf) / 2)
    yield from _checks_of_a_step(paddle, draw)


def _checks_of_a_step(paddle: Any, draw: np.random.Generator) -> "Iterator[tuple[str, bool]]":
    """The gradient of sum(tanh(x W + b) * pull), clipped to norm 1, and one step of AdamW along it."""
    x, weight, bias, pull = (
        draw.standard_normal(shape).astype("float32") for shape in ((17, 65), (65, 33), (33,), (17, 33))
    )
    weight /= 8  # so that tanh is not at its ends, where gradients vanish
    layer = paddle.nn.Linear(65, 33)
    layer.weight.set_value(weight)
    layer.bias.set_value(bias)
    (paddle.tanh(layer(paddle.to_tensor(x))) * paddle.to_tensor(pull)).sum().backward()
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    clipped = clip([(parameter, parameter.grad) for parameter in (layer.weight, layer.bias)])
    # Halves, which float32 holds exactly; and an epsilon that keeps g / (|g| + epsilon) smooth where g is small.
    rate, decay, epsilon = 0.125, 0.5, 2.0**-7
    step = paddle.optimizer.AdamW(
        rate, beta1=0.5, beta2=0.5, epsilon=epsilon, weight_decay=decay, parameters=layer.parameters(), grad_clip=clip
    )
    step.step()

    slope = pull * (1 - np.tanh(_product(x, weight) + bias) ** 2)
    gradients = _product(x.T, slope), slope.sum(0)
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
    for gradient, (parameter, found), before in zip(gradients, clipped, (weight, bias)):
        gradient = gradient / max(norm, 1.0)
        yield "gradient clipping", _is_near(found, gradient)
        after = before * (1 - rate * decay) - rate * gradient / (np.abs(gradient) + epsilon)
        yield "optimizer step", _is_near(parameter, after)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In float64, and by einsum's own loops: NumPy's matrix products may come from the very MKL that is on trial."""
    return np.einsum("...ik,...kj->...ij", a.astype("float64"), b.astype("float64"), optimize=False)


def _is_product(found: Any, a: np.ndarray, b: np.ndarray) -> bool:
    # What any order of summing can lose, in the product and in the truth: Higham, Accuracy and Stability, 3.13.
    unit = np.finfo(a.dtype).eps / 2
    bound = 2 * a.shape[-1] * unit * _product(np.abs(a), np.abs(b))
    return bool((np.abs(found.numpy() - _product(a, b)) <= bound).all())


def _is_near(found: Any, truth: np.ndarray) -> bool:
    # Sixteen roundings of float32 at 1, the size of everything here: MKL's functions lose up to four, sums a few more.
    # Code for another processor that runs at all is wrong in the first digits.
    return bool((np.abs(found.numpy() - truth) <= 1e-6 * (1 + np.abs(truth))).all())


def _memory(processor: Processor, wheel: _Wheel, value: str) -> Optional[Path]:
    """The file of a verdict. A Paddle that does not tell its release gets none: another could take its place."""
    if not wheel.version:
        return None
    key = hashlib.sha256(json.dumps([_EDITION, processor.name, wheel.version, value]).encode()).hexdigest()[:16]
    with suppress(RuntimeError):  # nobody's home
        return cache_home() / "tuning" / f"{key}.json"
    return None


def _remembered(memory: Optional[Path]) -> Optional[_Verdict]:
    if memory is None:
        return None
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
        right, why = content["right"], content["why"]
    except (OSError, ValueError, KeyError, TypeError):  # not there, or not ours
        return None
    if not isinstance(right, bool) or not isinstance(why, str):
        return None
    return _Verdict(right, f"{why} before" if right else f"{why} before (delete {memory} to have it tried again)")


def _remember(memory: Path, verdict: _Verdict, processor: Processor, wheel: _Wheel, value: str) -> _Verdict:
    content = {
        "processor": processor.name,
        "paddle": wheel.version,
        MKL_VARIABLE: value,
        "right": verdict.right,
        "why": verdict.why,
    }
    try:
        with replaced(memory) as temporary:
            Path(temporary).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        return replace(verdict, why=f"{verdict.why}, which cannot be remembered ({error.strerror or error})")
    return verdict


@contextmanager
def _alone_beside(memory: Optional[Path]) -> "Iterator[None]":
    if memory is not None:
        with suppress(OSError):
            memory.parent.mkdir(parents=True, exist_ok=True)
    if memory is None or not memory.parent.is_dir():
        yield
        return
    with alone_in(memory.parent):
        yield
