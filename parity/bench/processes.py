"""The parent's side of an engine's process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from parity.bench.plan import Engine, Setting, spelled

_CHECKOUT = Path(__file__).resolve().parents[2]
# Set by whoever tunes; "stock" is without them.
_TUNING_VARIABLES = (
    "MKL_DEBUG_CPU_TYPE",
    "GLIBC_TUNABLES",
    "PADDLE_NEZHA_TUNE",
    "PADDLE_NEZHA_ISA",
    "PADDLE_NEZHA_ATTENTION",
)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class EngineFailed(Exception):
    """It answered that it cannot do what it was asked; its process goes on."""


class EngineMissing(EngineFailed):
    """It cannot be had here at all."""


class EngineDied(Exception):
    """Its process ended without an answer."""


def missing(engine: Engine) -> str:
    """What an engine needs and is not installed, in words; "" where nothing is missing."""
    for name in engine.needs:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{name} is not installed"
    return ""


def environment(engine: Engine, threads: int) -> "dict[str, str]":
    kept = {name: value for name, value in os.environ.items() if name not in _TUNING_VARIABLES}
    kept.update((name, str(threads)) for name in _THREAD_VARIABLES)
    if engine.isa:
        kept["PADDLE_NEZHA_ISA"] = engine.isa
    return kept


_BUSY = """
import time
end = time.perf_counter() + 0.3
while time.perf_counter() < end: pass
began, used = time.perf_counter(), time.process_time()
while time.perf_counter() < began + 0.5: pass
print((time.process_time() - used) / (time.perf_counter() - began))
"""


def free_processors(count: int) -> float:
    """How many processors `count` busy processes get at this moment."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        return sum(float(process.communicate()[0] or 0.0) for process in busy)
    finally:
        for process in busy:
            process.kill()
            process.wait()


class EngineProcess:
    """One engine, opened in a process of its own, which ends with ours.

    Args:
        tuned: in place of the engine's own: memory is always read without tuning, which keeps what was freed.

    Raises:
        EngineMissing: it cannot be had here; the message says why.
        EngineFailed, EngineDied: it could not be opened.
    """

    def __init__(self, engine: Engine, setting: Setting, tuned: bool) -> None:
        self.engine = engine
        self.threads = engine.threads or setting.threads
        reason = missing(engine)
        if reason:
            raise EngineMissing(reason)
        self._said = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C is for the parent, which then ends this one.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "parity.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment(engine, self.threads),
            cwd=_CHECKOUT,
            start_new_session=True,
        )
        try:
            opened = self.ask("open", engine=spelled(engine), setting=spelled(setting), tuned=tuned)
        except BaseException:
            self.close()
            raise
        self.facts: "dict[str, str]" = opened["facts"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, verb: str, **message: Any) -> "dict[str, Any]":
        """
        Raises:
            EngineFailed, EngineDied: instead of an answer.
        """
        pipes = self._process.stdin, self._process.stdout
        assert pipes[0] is not None and pipes[1] is not None
        try:
            pipes[0].write(json.dumps({"do": verb, **message}).encode() + b"\n")
            pipes[0].flush()
            line = pipes[1].readline()
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if not line.endswith(b"\n"):
            raise EngineDied(self._how_it_ended())
        answer = json.loads(line)
        if "unavailable" in answer:
            raise EngineMissing(answer["unavailable"])
        if "error" in answer:
            raise EngineFailed(answer["error"])
        return answer

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return "its process was killed, perhaps for lack of memory"
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - 4096))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return f"its process ended with code {code}" + (f": {lines[-1].strip()}" if lines else "")

    def close(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # half a message was on its way
                    pass
        self._said.close()
