"""Processes of their own: for what may crash, for what is read once, and for what a process keeps."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "operator")))


def environment(changes=None):
    """This process's, with the project importable and `changes` made; None takes a variable away."""
    made = {**os.environ, "PYTHONPATH": _PATHS, "OMP_NUM_THREADS": "1", **(changes or {})}
    return {name: str(value) for name, value in made.items() if value is not None}


def start(script, *arguments, changes=None):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        cwd=ROOT, env=environment(changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip


def run(script, *arguments, changes=None, timeout=120):
    """Standard output and error of a script that must end well."""
    process = start(script, *arguments, changes=changes)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout} s\n{out[-2000:]}\n{err[-4000:]}") from None
    assert process.returncode == 0, f"ended with {process.returncode}\n{out[-2000:]}\n{err[-4000:]}"
    return out, err
