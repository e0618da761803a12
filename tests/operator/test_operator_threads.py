"""Threads: Paddle's own number of them, the same numbers whatever it is, and callers side by side."""

import json
import shutil
import subprocess
from pathlib import Path

import children
import pytest

from paddle_nezha import operator
from paddle_nezha._paddle import paddle

# All bits of forward and backward: heads fewer than threads (which then share a head's queries out), many short
# sequences, learned tables (whose gradient is a sum over all of them), dropout, holes; both dtypes.
_EVERYTHING = """
import hashlib
import numpy as np
from packing import Answer, drawn
from paddle_nezha._paddle import paddle
rng = np.random.default_rng(0)
digest = hashlib.sha256()
for lengths, heads, size, m, learned in (
    ([700], 1, 16, 64, False), ([450, 3, 0, 389], 1, 8, 5, True), ([30] * 9, 3, 32, 64, False),
    ([65, 64], 2, 8, 127, True), ([640], 1, 8, 0, False),
):
    tokens = sum(lengths)
    qkv, grad = drawn(rng, tokens, heads, size)
    tables = rng.standard_normal([2, 2 * m + 1, size]) if learned else None
    for visible in (None, rng.random(tokens) < 0.8):
        for dropout in (0.0, 0.2):
            for dtype in ("float32", "float64"):
                paddle.seed(1)
                answer = Answer(qkv, lengths, heads, 0 if learned else m, tables, visible, dropout, dtype)
                for part in (answer.context, answer.log_sum_exp, *answer.gradients(grad)):
                    digest.update(b"" if part is None else part.tobytes())
print(digest.hexdigest())
"""


def test_the_numbers_do_not_depend_on_the_number_of_threads():
    digests = [children.run(_EVERYTHING, changes={"OMP_NUM_THREADS": threads})[0] for threads in (1, 2, 3)]
    assert len(digests[0]) == 65 and digests[0] == digests[1] == digests[2]


# What each thread of the process has computed during some calls, in clock ticks of 10 ms, the busiest first.
_WORK = """
import json, os
from paddle_nezha._paddle import paddle
from paddle_nezha.operator import packed_attention

def ticks():
    times = {}
    for task in os.listdir("/proc/self/task"):
        fields = open(f"/proc/self/task/{task}/stat").read().rsplit(")", 1)[1].split()
        times[task] = int(fields[11])
    return times

os.environ["PADDLE_NEZHA_ISA"] = "portable"  # the slowest: more ticks
qkv = paddle.randn([1, 1024, 3 * 256])
qkv.stop_gradient = False
packed_attention(qkv, heads=4, max_relative_position=64).sum().backward()
before = ticks()
for _ in range(20):
    packed_attention(qkv, heads=4, max_relative_position=64).sum().backward()
after = ticks()
print(json.dumps(sorted((after[task] - before.get(task, 0) for task in after), reverse=True)))
"""


def test_so_many_threads_work_as_paddle_has_and_share_the_work_out():
    totals = []
    for threads in (1, 2):
        out, _ = children.run(_WORK, changes={"OMP_NUM_THREADS": threads})
        work = json.loads(out.splitlines()[-1])
        totals.append(sum(work))
        assert totals[-1] >= 20  # 0.2 s: enough of these ticks to tell
        # On a busy machine the shares differ; none of two threads does less than a fifth of what there is.
        assert len([ticks for ticks in work if ticks > 0.2 * sum(work)]) == threads, work
    # Where a loop's iterations come from another OpenMP than its threads, each thread runs all of them: twice the work.
    assert totals[1] < 1.6 * totals[0], totals


def test_openmp_is_paddle_s_and_nothing_of_it_comes_from_another():
    """A symbol that Paddle's libiomp5 lacks would be taken from whatever libgomp the process happens to hold, which
    knows nothing of the threads, or be missing."""
    paddle_libraries = [Path(folder) for folder in (paddle.sysconfig.get_lib(), Path(paddle.__file__).parent / "libs")]
    openmp = next((f / "libiomp5.so" for f in paddle_libraries if (f / "libiomp5.so").is_file()), None)
    if openmp is None or shutil.which("nm") is None:
        pytest.skip("needs nm, and a Paddle that brings its OpenMP")

    def symbols(library, kinds):
        listed = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
        fields = [line.split() for line in listed.splitlines()]
        return {one[-1].split("@")[0] for one in fields if len(one) > 1 and one[-2] in kinds}

    wanted = {name for name in symbols(operator.load(), "U") if name.lower().startswith(("gomp_", "omp_", "__kmp"))}
    assert wanted and wanted <= symbols(openmp, "TW"), wanted - symbols(openmp, "TW")


# Each thread has its own shapes, so that scratch shared between them would be overwritten. (`backward`: several threads
# in `paddle.grad` at once crash Paddle, whatever they compute.)
_SIDE_BY_SIDE = """
import threading
import numpy as np
from packing import drawn, starts_of, tensor
from paddle_nezha._paddle import paddle
from paddle_nezha.operator import packed_attention

rng = np.random.default_rng(0)
work = [(*drawn(rng, length, 2, size), length, m) for length, size, m in
        ((150, 8, 5), (64, 32, 64), (200, 16, 127), (33, 64, 1))]

def answer(qkv, grad, length, m):
    qkv = tensor(qkv)
    context = packed_attention(qkv, None, paddle.to_tensor(starts_of([length])), heads=2, max_relative_position=m)
    context.backward(tensor(grad, frozen=True))
    return context.numpy(), qkv.grad.numpy()

def go(index):
    for _ in range(25):
        assert all((a == b).all() for a, b in zip(answer(*work[index]), truth[index]))
    ended.append(index)

truth, ended = [answer(*arguments) for arguments in work], []
threads = [threading.Thread(target=go, args=(index,)) for index in range(len(work))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sorted(ended) == [0, 1, 2, 3]
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_from_several_python_threads_at_once(threads):
    children.run(_SIDE_BY_SIDE, changes={"OMP_NUM_THREADS": threads})


_FORKED = """
import os, sys
import numpy as np
from packing import Answer, drawn
qkv, grad = drawn(np.random.default_rng(0), 500, 2, 16)
truth = Answer(qkv, [500], 2, 64)
slope = truth.gradients(grad)[0]
child = os.fork()
if child == 0:
    again = Answer(qkv, [500], 2, 64)
    os._exit(0 if (again.context == truth.context).all() and (again.gradients(grad)[0] == slope).all() else 3)
assert os.waitpid(child, 0)[1] == 0
assert (Answer(qkv, [500], 2, 64).context == truth.context).all()
"""


# scikit-learn, imported by any test before, leaves KMP_INIT_AT_FORK=FALSE in the environment: then the OpenMP of Paddle
# is not made anew in the child, which waits for threads that it does not have, in Paddle's own matrix products too.
@pytest.mark.parametrize("threads", [1, 2])
def test_after_a_fork(threads):
    """A worker forked from a process whose threads have worked computes on: it neither hangs nor differs."""
    children.run(_FORKED, changes={"OMP_NUM_THREADS": threads, "KMP_INIT_AT_FORK": None}, timeout=60)


# The main thread forks while another builds one sinusoid table after another: of 2^17 distances, for tokens that see no
# key, so that there is nothing else to do.
_FORKED_MEANWHILE = """
import os, signal, threading, time
from paddle_nezha._paddle import paddle
from paddle_nezha.operator import packed_attention

qkv = paddle.ones([1, (1 << 17) + 1, 48])
hidden = paddle.zeros(qkv.shape[:2], "bool")
few = paddle.ones([1, 5, 48])
packed_attention(few, heads=1, max_relative_position=3)
built, going = [], True

def build():
    while going:
        packed_attention(qkv, hidden, heads=1, max_relative_position=(1 << 20) - len(built))
        built.append(len(built))

builder = threading.Thread(target=build)
builder.start()
for _ in range(8):
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        packed_attention(few, heads=1, max_relative_position=3)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
going = False
builder.join()
assert built
"""


def test_after_a_fork_while_another_thread_builds_a_table():
    children.run(_FORKED_MEANWHILE, changes={"KMP_INIT_AT_FORK": None}, timeout=100)
