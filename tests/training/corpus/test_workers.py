"""A worker in the middle of a long task when its parent is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus_texts import ROOT

SCRIPT = """
import os, sys, time
from paddle_nezha.training.corpus.workers import Workers

class Slow:
    def __call__(self, path):
        with open(path, "w") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(120)

if __name__ == "__main__":
    with Workers(2, Slow) as workers:
        workers.do(sys.argv[1])
        list(workers.finish())
"""


def is_running(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_it_ends_at_once(tmp_path):
    script, noted = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(SCRIPT)
    parent = subprocess.Popen([sys.executable, str(script), str(noted)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        while not (noted.exists() and noted.read_text().endswith("\n")):
            assert parent.poll() is None
            time.sleep(0.01)
        worker = int(noted.read_text())
        assert is_running(worker)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    end = time.monotonic() + 30
    while is_running(worker) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_running(worker)
