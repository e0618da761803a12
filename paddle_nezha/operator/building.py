"""The operator's library: found where a wheel put it, or compiled here, once for each Paddle and source.

Compiling takes the compiler and the flags that `paddle.utils.cpp_extension` names for extensions, but runs the compiler
itself: files side by side, and in folders of any name. A library is tried in a process of its own before anybody else
sees it.

A failure is remembered, so that not every process spends half a minute on it, if it is what the compiler, the linker or
the trial has to say of the source: for that compiler and those headers, and for a day. What may be over the next moment
(a full disk, a process that was killed, a folder that cannot be written) is tried again by the next process.
"""

import errno
import hashlib
import importlib
import logging
import multiprocessing
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Optional

from filelock import FileLock, Timeout

from paddle_nezha._files import replaced
from paddle_nezha._paddle import paddle
from paddle_nezha.hub import pin, read_pin, sha256_of
from paddle_nezha.hub.places import cache_home

SOURCES = Path(__file__).parent / "csrc"
PREBUILT = Path(__file__).parent / "prebuilt"
SWITCH = "PADDLE_NEZHA_OPERATOR"
# No -ffast-math, neither here nor for the linker: a library linked so makes the whole process flush subnormals to zero.
# Contraction is what makes a product and a sum one rounded operation.
_FLAGS = ("-O3", "-fPIC", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
_MINUTES = 15
_PATIENT = 2.0  # seconds of waiting for another process before a line says so
_REMEMBERED = 24 * 3600.0  # seconds
# What ended a compiler or a trial without a word about the source: the system's words, and who ends processes.
_ERRORS = ("ENOSPC", "EDQUOT", "ENOMEM", "EAGAIN", "EIO", "EMFILE", "ENFILE", "EROFS", "EACCES")
_PASSING = (
    *(os.strerror(getattr(errno, name)) for name in _ERRORS if hasattr(errno, name)),
    *("Killed", "Terminated", "terminated program", "memory exhausted", "out of memory", "bad_alloc"),
)
_ENDINGS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM", "SIGXCPU", "SIGXFSZ")
_ENDED = tuple(int(getattr(signal, name)) for name in _ENDINGS if hasattr(signal, name))

_log = logging.getLogger("paddle_nezha")


class OperatorError(RuntimeError):
    """The operator cannot be had here; the message says why, and what would help."""


class ForcedChoiceError(OperatorError):
    """The environment names what cannot be had: an error of every call, in whose place nothing else computes."""


class NotMeantError(OperatorError):
    """It is switched off, or this is no system that it is made for: no news, so no notice."""


class _RefusedError(OperatorError):
    """What the compiler, the linker or the trial say of the source, and would say again: it is remembered."""


def library() -> Path:
    """The library for this Paddle, compiled now if need be.

    Raises:
        OperatorError: switched off, no compiler, a failure (now or earlier), or a process that must not compile.
    """
    found = existing()
    if found is not None:
        return found
    target, command = built_path(), _usable_compiler()
    if _in_a_data_worker():
        raise OperatorError("a data worker does not compile: call the model once in the main process first")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target):
            if not _is_whole(target):
                _build(target, command)
    except OSError as error:
        raise _unwritable(target.parent, error) from None
    return target


@contextmanager
def _locked(target: Path) -> "Iterator[None]":
    lock = FileLock(f"{target}.lock")
    try:
        try:
            lock.acquire(timeout=_PATIENT)
        except Timeout:
            _log.warning("Waiting for another process that compiles the attention operator ...")
            lock.acquire(timeout=60 * _MINUTES)
    except Timeout:
        raise OperatorError(
            f"another process has been compiling it for {_MINUTES} minutes ({lock.lock_file})"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _unwritable(folder: Path, why: object) -> OperatorError:
    return OperatorError(f"its folder {folder} cannot be written ({why}); PADDLE_NEZHA_HOME names another")


def existing() -> Optional[Path]:
    """The library, where it was compiled before; None where it still has to be.

    Raises:
        NotMeantError: it is switched off, or made for other systems.
        ForcedChoiceError: the environment names a library that is not there.
    """
    named = os.environ.get(SWITCH, "").strip()
    if named.lower() in ("0", "off", "no", "false"):
        raise NotMeantError(f"it is switched off by {SWITCH}={named}")
    if named.lower() not in ("", "1", "on", "yes", "true"):
        if not Path(named).is_file():
            raise ForcedChoiceError(f"{SWITCH} must be 0, 1 or a library's path, but {named} is no file")
        return Path(named)
    if not sys.platform.startswith("linux"):
        raise NotMeantError(f"it is made for processors under Linux, not for {sys.platform}")
    prebuilt = PREBUILT / f"{key()}.so"
    if prebuilt.is_file():
        return prebuilt
    return built_path() if _is_whole(built_path()) else None


def outlook() -> str:
    """What asking for a library that does not exist yet would meet, without asking.

    Raises:
        OperatorError: no compiler, a failure on record, or a folder that cannot be written.
    """
    command, target = _usable_compiler(), built_path()
    _raise_if_it_failed(target, command)
    nearest = next(folder for folder in target.parents if os.path.exists(folder))
    try:  # asking for permissions is not enough: root has them all, and a disk may be full
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise _unwritable(target.parent, error) from None
    return f"not compiled yet: the first call of a model does it, with {command}"


@lru_cache(maxsize=1)
def key() -> str:
    """What a library belongs to: Paddle's release, the kind of processor, and the source with its flags."""
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".h", ".cc"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return f"nezha_attention-paddle{paddle.__version__}-{platform.machine()}-{digest.hexdigest()[:12]}"


def built_path() -> Path:
    return cache_home() / "operator" / f"{key()}.so"


def compiler() -> Optional[str]:
    """The C++ compiler: what CXX names, else the first found of the usual ones."""
    named = os.environ.get("CXX")
    return next(filter(None, map(shutil.which, [named] if named else ["g++", "c++", "clang++"])), None)


def _usable_compiler() -> str:
    command = compiler()
    if command is None and os.environ.get("CXX"):
        named = os.environ["CXX"]
        raise OperatorError(f"CXX={named} names no program: let it name a C++ compiler without options, or unset it")
    if command is None:
        raise OperatorError("there is no C++ compiler (g++ or clang++; CXX can name one)")
    return command


def _is_whole(target: Path) -> bool:
    """Whether a library is there as it was compiled: one that is cut short would end the process that loads it."""
    try:
        return read_pin(target) == sha256_of(target)
    except (OSError, ValueError):
        return False


def _record(target: Path) -> Path:
    return target.with_suffix(".failed")


def _raise_if_it_failed(target: Path, command: str) -> None:
    record = _record(target)
    if not record.is_file() or abs(time.time() - record.stat().st_mtime) > _REMEMBERED:
        return
    then, _, why = record.read_text(encoding="utf-8", errors="replace").partition("\n")
    if then == _identity(command):
        raise OperatorError(
            f"it failed before with this compiler; delete {record} to try again, which happens by itself after a day. "
            f"Then: {_gist(why)}"
        )


def _gist(said: str) -> str:
    """The line of a compiler's words that tells most."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [""]
    return next((line for line in lines if "error" in line.lower()), lines[-1])


def _build(target: Path, command: str) -> None:
    """Compiles and tries a library; a refusal is written down beside it."""
    _raise_if_it_failed(target, command)
    _log.warning("Compiling the attention operator, once for this Paddle (about half a minute) ...")
    try:
        with replaced(target) as unfinished:
            compile_library(Path(unfinished), command)
            _try(Path(unfinished))
            pin(target, sha256_of(unfinished))
    except _RefusedError as error:
        with suppress(OSError), replaced(_record(target)) as path:
            Path(path).write_text(f"{_identity(command)}\n{error}\n", encoding="utf-8")
        raise
    with suppress(OSError):
        _record(target).unlink()


def compile_library(target: Path, command: "Optional[str]" = None) -> None:
    """Compiles the operator for the Paddle that is installed.

    Raises:
        OperatorError: with the end of what the compiler said.
    """
    command = command or _usable_compiler()
    sources = sorted(SOURCES.glob("*.cc"))
    try:
        extension = importlib.import_module("paddle.utils.cpp_extension").CppExtension(
            sources=[str(one) for one in sources]
        )
    except Exception as error:  # it imports setuptools, which may be missing or too new
        hint = "pip install setuptools may help"
        raise OperatorError(f"paddle.utils.cpp_extension cannot be used ({error!r}); {hint}") from None
    given = extension.extra_compile_args
    flags = [*(given.get("cxx", []) if isinstance(given, dict) else given), *_FLAGS, *_standard()]
    flags.append(f"-fmacro-prefix-map={SOURCES}{os.sep}=")  # errors name the file, not this machine's folders
    includes = [f"-I{folder}" for folder in extension.include_dirs]
    # No run path: a process that loads the operator has loaded Paddle, and a library may be carried to another machine.
    libraries = [f"-L{folder}" for folder in extension.library_dirs]
    with _scratch() as folder:
        objects = [str(Path(folder) / f"{source.stem}.o") for source in sources]
        jobs = [[command, *flags, *includes, "-c", str(one), "-o", out] for one, out in zip(sources, objects)]
        with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
            list(pool.map(_run, jobs))
        _run(
            [
                command,
                "-shared",
                *objects,
                "-o",
                str(target),
                *libraries,
                *extension.extra_link_args,
                *_openmp(extension),
            ]
        )


@contextmanager
def _scratch() -> "Iterator[str]":
    try:
        folder = tempfile.TemporaryDirectory(prefix="nezha-operator-")
    except OSError as error:
        raise OperatorError(f"a compiler's files have no place ({error}); TMPDIR names one") from None
    with folder:
        yield folder.name


def prebuild() -> Path:
    """Compiles the library into the package itself, for a wheel to carry; removes older ones.

    Raises:
        OperatorError: it cannot be compiled, or fails its trial.
    """
    PREBUILT.mkdir(exist_ok=True)
    target = PREBUILT / f"{key()}.so"
    for old in PREBUILT.glob("*.so"):
        old.unlink()
    with replaced(target) as unfinished:
        compile_library(Path(unfinished))
        _try(Path(unfinished))
    return target


def _standard() -> "list[str]":
    # What Paddle's headers are written in: C++14 for 2.6, C++17 since 3.0.
    return [
        "-std=gnu++14" if int(paddle.__version__.split(".")[0]) == 2 else "-std=gnu++17",
        "-D_GLIBCXX_USE_CXX11_ABI=1",
    ]


def _openmp(extension: object) -> "list[str]":
    """Paddle's own OpenMP, so that one number of threads holds for both. Where it brings none, the compiler's."""
    for folder in getattr(extension, "library_dirs", []):
        if (Path(folder) / "libiomp5.so").is_file():
            return ["-Wl,--no-as-needed", "-l:libiomp5.so"]
    return ["-fopenmp"]


def _run(command: "list[str]") -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60 * _MINUTES,
            env={**os.environ, "LC_ALL": "C"},  # the words that `_PASSING` knows
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperatorError(f"{command[0]} could not be run: {error}") from None
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
        raise _kind(done)(f"{command[0]} ended with {done.returncode}:\n{said}")


def _kind(done: "subprocess.CompletedProcess[str]") -> "type[OperatorError]":
    """Of a compiler's or a trial's failure, whether it is about the source."""
    ended_by = -done.returncode if done.returncode < 0 else done.returncode - 128  # a shell's way to say the same
    passing = ended_by in _ENDED or any(words in done.stderr for words in _PASSING)
    return OperatorError if passing else _RefusedError


def _try(path: Path) -> None:
    """Loads a new library in another process and compares its numbers there, in every instruction set."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "paddle_nezha.operator.trial", str(path)],
            capture_output=True, text=True, errors="replace", timeout=60 * _MINUTES,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), SWITCH: "0"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OperatorError("the compiled library did not end its trial") from None
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-6:])
        raise _kind(done)(f"the compiled library failed its trial ({done.returncode}):\n{said}")


def _identity(command: str) -> str:
    """What a record of failure holds for: a compiler by path and first line of its version, and Python's headers."""
    version, headers = "?", "no headers"
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([command, "--version"], capture_output=True, text=True, errors="replace", timeout=60)
        version = (done.stdout.splitlines() or ["?"])[0]
    with suppress(OSError):
        headers = f"headers of {os.stat(_headers()).st_mtime_ns}"
    return f"{command} {version}, {headers}"


def _headers() -> str:
    return sysconfig.get_path("include")


def _in_a_data_worker() -> bool:
    return paddle.io.get_worker_info() is not None or bool(getattr(multiprocessing.current_process(), "daemon", False))
