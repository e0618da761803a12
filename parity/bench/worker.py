"""One engine in a process of its own: `python -m parity.bench.worker`, which answers one line of JSON with another.

The first line opens the engine; then each line is one of `begin` (make the inputs, warm up, find how many calls fill a
repetition), `repeat` (one repetition), `end` (drop the inputs), `memory` and `accuracy`. An answer holds "error" where
it failed, "unavailable" where the engine cannot be had here. The process ends when its input does.
"""

import ctypes
import gc
import json
import math
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Optional, TextIO

from parity.bench.backends import Backend, Unavailable, open_backend
from parity.bench.plan import Case, Engine, Setting
from parity.device import quiet_imports

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_WARM_UP = Case(1, 8)
_MEGABYTE = 1 << 20


class Worker:
    """The state of this process."""

    def __init__(self, engine: Engine, setting: Setting, tuned: bool) -> None:
        facts = {}
        if tuned:
            from parity.bench.tuning import tune

            facts["tuning"] = tune()
        self.setting = setting
        self.backend: Backend = open_backend(engine, setting)
        self.backend.facts.update(facts)
        self._calls: "dict[str, tuple[Callable[[], Any], int]]" = {}

    def begin(self, key: str, task: str, case: Case) -> "dict[str, Any]":
        call = self.backend.call(task, case)
        first, _ = _timed(call, 1)
        # The first call also loads and compiles; one that lasted is measure enough.
        lasting = first if first > 1.0 else _timed(call, 1)[0]
        count = max(1, math.ceil(self.setting.least / max(lasting, 1e-6)))
        self._calls[key] = call, count
        return {"calls": count}

    def repeat(self, key: str) -> "dict[str, Any]":
        call, count = self._calls[key]
        wall, cpu = _timed(call, count)
        return {"cpu": cpu, "wall": wall}

    def end(self) -> "dict[str, Any]":
        self._calls.clear()
        _trim()
        return {}

    def memory(self, task: str, case: Case) -> "dict[str, Any]":
        """Growth over building the engine, and the peak over one call at this shape with its tables; in MB."""
        if not _STATUS.is_file():
            return {"error": "peak memory is read from /proc, which this system lacks"}
        before = _resident("VmRSS")
        # What is loaded and made once for all comes first, on another shape.
        self.backend.call(task, _WARM_UP)()
        _trim()
        held = _resident("VmRSS") - before
        call = self.backend.call(task, case)
        self.backend.forget()
        _trim()
        base = _resident("VmRSS")
        earlier = _reset_peak()
        call()
        peak = _resident("VmHWM")
        if earlier is not None and peak <= earlier:
            return {"error": "this system does not let a process reset its peak, and an earlier one was higher"}
        return {"held_mb": held, "peak_mb": peak - base}

    def accuracy(self, case: Case, scale: float) -> "dict[str, Any]":
        from parity.bench.truth import errors

        outputs, gradients = errors(self.backend, case, self.setting, scale)
        return {"output_error": outputs, "gradient_error": gradients}


def _timed(call: "Callable[[], Any]", count: int) -> "tuple[float, float]":
    """Seconds of one call, of the clock and of this process's processors; the mean of `count` calls in a row."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def _resident(key: str) -> float:
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith(key + ":"))
    return int(kib) * 1024 / _MEGABYTE


def _reset_peak() -> Optional[float]:
    """Sets the peak to the present size; where the system forbids it, the peak so far."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return _resident("VmHWM")
    return None


def _trim() -> None:
    """Gives what is free back to the system, so that the next growth is seen."""
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None:
            trim(0)


def _end_with_parent() -> None:
    """Also in the middle of a call, however the parent ends; a thread that watches would be timed along."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _answer(worker: "Optional[Worker]", message: "dict[str, Any]") -> "tuple[Optional[Worker], dict[str, Any]]":
    verb = message.pop("do")
    if "case" in message:
        message["case"] = Case(**message["case"])
    if verb == "open":
        engine, setting = Engine(**message["engine"]), Setting(**message["setting"])
        worker = Worker(engine, setting, message["tuned"])
        return worker, {"facts": worker.backend.facts}
    return worker, getattr(worker, verb)(**message)


def serve(requests: TextIO, answers: TextIO) -> None:
    worker: Optional[Worker] = None
    for line in requests:
        try:
            worker, answer = _answer(worker, json.loads(line))
        except Unavailable as error:
            answer = {"unavailable": str(error)}
        except Exception as error:  # frameworks fail in their own ways; the parent puts it into words
            if os.environ.get("PARITY_TRACEBACK"):
                traceback.print_exc()
            first = next((part.strip() for part in str(error).splitlines() if part.strip()), "")
            answer = {"error": f"{type(error).__name__}: {first}" if first else type(error).__name__}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    _end_with_parent()
    # Frameworks print. What they print to stdout goes to stderr, and the answers have the pipe to themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    quiet_imports()
    warnings.simplefilter("ignore")
    serve(requests, answers)


if __name__ == "__main__":
    main()
