"""The judge's processes, where they are stopped at the worst moment."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HALF_AN_ANSWER = """
import os, signal, struct, sys, time
import parity.run

def half(job):
    "Begins to send an answer of a MiB, as a worker does that is killed just then."
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    queue = frame.f_locals["result_queue"]
    queue._wlock.acquire()
    os.write(queue._writer.fileno(), struct.pack("!i", 1 << 20) + b"x" * 5000)
    open(sys.argv[1] + str(os.getpid()), "w").close()
    time.sleep(600)

parity.run._run = half
if __name__ == "__main__":
    def stop(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    try:
        next(parity.run._executed([1, 2], 2))
    except KeyboardInterrupt:
        print("ended")
"""
FOUND_DEAD_FIRST = """
import signal, time
from multiprocessing.process import BaseProcess
import parity.run

def slow(job):
    time.sleep(600 if job else 0)

def kill(worker, at_once=BaseProcess.kill):
    at_once(worker)
    time.sleep(0.3)  # for the pool's own thread to be the first to see it

parity.run._run = slow
BaseProcess.kill = kill
if __name__ == "__main__":
    def stop(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, stop)
    jobs = parity.run._executed(list(range(20)), 2)
    next(jobs)
    signal.setitimer(signal.ITIMER_REAL, 0.3)  # while an answer is waited for
    try:
        next(jobs)
    except KeyboardInterrupt:
        print("ended")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Unix signals")
def test_workers_that_the_pool_finds_dead_first_are_no_error(tmp_path):
    script = tmp_path / "dead.py"
    script.write_text(FOUND_DEAD_FIRST)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, timeout=120)
    assert (done.stdout, done.stderr) == (b"ended\n", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="of Unix signals")
def test_a_worker_killed_in_the_middle_of_an_answer_does_not_hold_up_the_end(tmp_path):
    script = tmp_path / "half.py"
    script.write_text(HALF_AN_ANSWER)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen([sys.executable, script, tmp_path / "sent"], env=environment, stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("sent*")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.2)  # for the reader to be in the middle of it
        run.terminate()
        assert run.communicate(timeout=60)[0] == b"ended\n"
    finally:
        run.kill()
        run.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="of closed descriptors")
@pytest.mark.parametrize(
    "arguments, code",
    [
        (["-m", "parity", "run", "--case", "none"], 2),
        (["-m", "parity", "run", "--case", "plain", "--head", "model", "--dtype", "float64", "--jobs", "1"], 0),
    ],
)
def test_closed_output_does_not_change_the_exit_code(arguments, code):
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, *arguments], cwd=ROOT, stderr=subprocess.PIPE
    )
    assert closed.returncode == code and b"Traceback" not in closed.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_reports_are_written_even_if_the_output_cannot_be(tmp_path):
    command = [sys.executable, "-m", "parity", "run", "--case", "plain", "--head", "model", "--dtype", "float64"]
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [*command, "--jobs", "1", "--report", tmp_path], cwd=ROOT, stdout=full, stderr=subprocess.PIPE
        )
    assert run.returncode == 2 and b"No space left" in run.stderr
    assert len(list(tmp_path.iterdir())) == 4
