"""Tuning for the processor: what is decided, what is tried first, what is remembered, and what then really changes."""

import json
import logging
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from paddle_nezha import tuning
from paddle_nezha.tuning import MKL_VARIABLE, TUNE_VARIABLE, Processor, plan, read_processor, tune_cpu

ROOT = Path(__file__).resolve().parent.parent

ZEN5 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model name\t: AMD EPYC 9B45
flags\t\t: fpu sse sse2 fma avx f16c avx2 bmi2 avx512f avx512dq avx512cd avx512bw avx512vl avx512_bf16

processor\t: 1
vendor_id\t: AuthenticAMD
model name\t: another one
flags\t\t: fpu
"""
ZEN2 = """vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 7742 64-Core Processor
flags\t\t: fpu sse sse2 fma avx f16c avx2 bmi2
"""
OPTERON = "vendor_id : AuthenticAMD\nmodel name : AMD Opteron(tm) Processor 6376\nflags : fpu sse sse2 fma avx f16c\n"
ICE_LAKE = ZEN5.replace("AuthenticAMD", "GenuineIntel").replace("AMD EPYC 9B45", "Intel(R) Xeon(R) Platinum 8375C")
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes\nCPU implementer\t: 0x41\n"

THIS = tuning._this_processor()
BEST = "7" if THIS.flags >= tuning._AVX512 else "5" if THIS.flags >= tuning._AVX2 else None
WHEEL = tuning._Wheel("3.3.1", True)
needs_mklml = pytest.mark.skipif(
    BEST is None or not tuning._wheel().has_mklml, reason="needs Paddle's MKLML and a processor with AVX2"
)
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A process that has not been tuned, and a cache of its own. Its heap stays as it is, by the environment."""
    monkeypatch.setattr(tuning, "_done", None)
    for name in (MKL_VARIABLE, TUNE_VARIABLE):
        monkeypatch.setenv(name, "")  # so that it is put back, whatever the test does
        monkeypatch.delenv(name)
    monkeypatch.setenv("PADDLE_NEZHA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    return monkeypatch


@pytest.fixture
def amd(fresh):
    """A Zen 5 whose trials are recorded and end with what the test says: `amd.verdict`."""

    class Machine:
        tried = []
        verdict = tuning._Verdict(True, "a child process found it right")
        patch = fresh

        def again(self):
            """As the next process would find things."""
            fresh.setattr(tuning, "_done", None)
            os.environ.pop(MKL_VARIABLE, None)

        def has(self, text, wheel=WHEEL):
            fresh.setattr(tuning, "_this_processor", lambda: read_processor(text, "x86_64"))
            fresh.setattr(tuning, "_wheel", lambda: wheel)

        def trial(self, value):
            self.tried.append(value)
            return self.verdict

    machine = Machine()
    machine.has(ZEN5)
    fresh.setattr(tuning, "_try", machine.trial)
    return machine


def run(code, **environ):
    """Runs a script in a fresh Python: what it printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_", "MKL_"))}
    clean.pop(TUNE_VARIABLE, None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- what is here


@pytest.mark.parametrize(
    "text, machine, fallback, vendor, model, flag",
    [
        (ZEN5, "x86_64", "x86_64", "AuthenticAMD", "AMD EPYC 9B45", "avx512vl"),
        (ZEN2, "x86_64", "", "AuthenticAMD", "AMD EPYC 7742 64-Core Processor", "avx2"),
        (ICE_LAKE, "x86_64", "", "GenuineIntel", "Intel(R) Xeon(R) Platinum 8375C", "avx512f"),
        (ARM, "aarch64", "Neoverse", "", "Neoverse", "asimd"),
        ("", "arm64", "arm", "", "arm", None),
    ],
)
def test_a_processor_is_read_from_its_first_entry(text, machine, fallback, vendor, model, flag):
    found = read_processor(text, machine, fallback)
    assert (found.vendor, found.model, found.machine) == (vendor, model, machine)
    assert flag in found.flags if flag else not found.flags


def test_a_processor_that_says_nothing_still_has_a_name():
    assert [Processor(*facts, frozenset(), "m").name for facts in (("v", "name"), ("v", ""), ("", ""))] == [
        "name",
        "v",
        "m",
    ]
    assert Processor("", "", frozenset(), "").name == "an unknown processor"


def test_the_installed_paddle_is_found_without_importing_it():
    import paddle

    found = tuning._wheel()
    assert found.version == paddle.__version__
    assert found.has_mklml == (Path(paddle.__file__).parent / "libs" / "libmklml_intel.so").exists()


# ---- what is decided


@pytest.mark.parametrize(
    "text, wheel, environ, state, value, why",
    [
        (ZEN5, WHEEL, {}, "planned", "7", "AVX-512 in place of the SSE"),
        (ZEN5, WHEEL, {MKL_VARIABLE: ""}, "planned", "7", "AVX-512"),
        (ZEN5.replace(" avx512vl", ""), WHEEL, {}, "planned", "5", "AVX2 in place of the SSE"),
        (ZEN2, WHEEL, {}, "planned", "5", "AVX2 in place of the SSE"),
        (OPTERON, WHEEL, {}, "untouched", None, "no AVX2"),
        (ICE_LAKE, WHEEL, {}, "untouched", None, "GenuineIntel is not AMD"),
        ("", WHEEL, {}, "untouched", None, "this processor is not AMD"),
        (ZEN5, tuning._Wheel("3.3.1", False), {}, "untouched", None, "no MKLML"),
        (ZEN5, None, {}, "untouched", None, "Paddle is not installed"),
        (ZEN5, WHEEL, {MKL_VARIABLE: "5"}, "kept", "5", "in the environment before"),
        (ZEN5, WHEEL, {MKL_VARIABLE: "6"}, "kept", "6", "dies of SIGILL; 5 and 7 work"),
        (ICE_LAKE, None, {MKL_VARIABLE: "7"}, "kept", "7", "in the environment before"),
    ],
)
def test_which_path(text, wheel, environ, state, value, why):
    chosen = tuning._choose_path(read_processor(text, "x86_64"), wheel, environ)
    assert (chosen.name, chosen.state, chosen.value) == (MKL_VARIABLE, state, value)
    assert why in chosen.why


def test_other_architectures_have_no_path():
    chosen = tuning._choose_path(read_processor(ZEN5, "aarch64"), WHEEL, {})
    assert (chosen.state, chosen.value) == ("untouched", None)


GLIBC = ("glibc", "2.36")


@pytest.mark.parametrize(
    "libc, foreign, environ, state, why",
    [
        (GLIBC, False, {}, "planned", "reuse"),
        (GLIBC, False, {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F"}, "planned", "reuse"),
        (GLIBC, False, {"GLIBC_TUNABLES": "glibc.cpu.x=1:glibc.malloc.mmap_max=9"}, "kept", "sets GLIBC_TUNABLES"),
        (GLIBC, False, {"MALLOC_TOP_PAD_": "1", "MALLOC_ARENA_MAX": "2"}, "kept", "MALLOC_ARENA_MAX, MALLOC_TOP_PAD_"),
        (GLIBC, True, {}, "untouched", "another allocator"),
        (("", ""), False, {}, "untouched", "a setting of glibc"),
        (("musl", "1.2"), False, {}, "untouched", "a setting of glibc"),
    ],
)
def test_whether_the_heap_is_kept(libc, foreign, environ, state, why):
    chosen = tuning._choose_heap(libc, foreign, environ)
    assert (chosen.name, chosen.state, chosen.value is not None) == ("mallopt", state, state == "planned")
    assert why in chosen.why


# ---- the trial


@needs_mklml
def test_a_real_child_finds_this_processors_best_path_right():
    assert tuning._try(BEST) == tuning._Verdict(True, "a child process found it right", lasting=True)


@needs_mklml
def test_mkl_in_the_child_sees_the_value():
    verdict = tuning._try("99")
    assert not verdict.right
    assert verdict.why == "a child process failed with exit code 1: Intel MKL ERROR: CPU 99 is not supported."


@needs_mklml
@pytest.mark.skipif(BEST != "7", reason="known of processors with AVX-512")
def test_the_value_that_dies_in_division_is_found_out():
    assert tuning._try("6") == tuning._Verdict(False, "a child process died of SIGILL", lasting=True)


@pytest.mark.parametrize(
    "code, limit, why, lasting",
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", 60, "died of SIGILL", True),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 60, "died of SIGKILL", False),
        ("import time; time.sleep(60)", 0.5, "did not end within 0.5 s", True),
        ("raise ImportError('no\\x1blibrary')", 60, "exit code 1: ImportError: no\\x1blibrary", False),
        ("print('[]')", 60, "failed with exit code 0: []", False),
        ("pass", 60, "failed with exit code 0: nothing", False),
        ("import sys; print('{\"wrong\": []}'); sys.exit(3)", 60, "failed with exit code 3", False),
        ('print(\'noise\'); print(\'{"wrong": ["exp", "tanh"]}\')', 60, "found exp, tanh wrong", True),
    ],
)
def test_every_other_end_of_a_child_is_no(code, limit, why, lasting):
    verdict = tuning._try("5", code, limit)
    assert (verdict.right, verdict.lasting) == (False, lasting)
    assert why in verdict.why


@pytest.mark.parametrize("change", [{"executable": ""}, {"executable": "/no/such/python"}, {"frozen": True}])
def test_without_an_interpreter_nothing_is_tried(monkeypatch, change):
    for name, value in change.items():
        monkeypatch.setattr(sys, name, value, raising=False)
    verdict = tuning._try(BEST or "5", "print('{\"wrong\": []}')")
    assert (verdict.right, verdict.lasting) == (False, False)
    assert verdict.why.startswith("nothing was tried: ")


class Changed:
    """A module, with some of its functions other than they are."""

    def __init__(self, module, **changes):
        self.__dict__.update(changes)
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


def test_the_trial_passes_here(seeded):
    from paddle_nezha._paddle import paddle

    assert tuning._wrong(paddle) == []


@pytest.mark.parametrize(
    "name, wrong, dtype, share",
    [
        ("matmul", "matmul", "float32", 1e-5),
        ("matmul", "matmul", "float64", 1e-12),
        ("divide", "division", "float32", 1e-5),
        ("sqrt", "square root", "float32", 1e-5),
        ("exp", "exp", "float32", 1e-5),
        ("tanh", "tanh", "float32", 1e-5),
        ("softmax", "softmax", "float32", 1e-5),
        ("gelu", "GELU", "float32", 1e-5),
    ],
)
def test_the_trial_catches_a_result_that_is_slightly_off(seeded, name, wrong, dtype, share):
    from paddle_nezha._paddle import F, nn, paddle

    def off(*arguments, **options):
        result = getattr(F if name in ("softmax", "gelu") else paddle, name)(*arguments, **options)
        return result * (1 + share) if result.dtype == getattr(paddle, dtype) else result

    functional = Changed(nn, functional=Changed(F, **{name: off}))
    assert wrong in tuning._wrong(Changed(paddle, nn=functional, **{name: off}))


def test_the_trial_catches_a_step_that_is_slightly_off(seeded):
    from paddle_nezha._paddle import nn, paddle

    norm = Changed(paddle, nn=Changed(nn, ClipGradByGlobalNorm=lambda norm: nn.ClipGradByGlobalNorm(norm * 1.001)))
    assert tuning._wrong(norm) == ["gradient clipping", "optimizer step"]

    def adam(rate, **options):
        return paddle.optimizer.AdamW(rate * 1.001, **options)

    assert tuning._wrong(Changed(paddle, optimizer=Changed(paddle.optimizer, AdamW=adam))) == ["optimizer step"]


# ---- what is remembered


def test_amd_is_tuned_once_and_says_so(amd, caplog):
    with caplog.at_level(logging.INFO, "paddle_nezha"):
        first = tune_cpu()
        assert os.environ[MKL_VARIABLE] == "7"
        assert tune_cpu() is first and plan() is first
    assert amd.tried == ["7"]
    assert (first.processor, first.products.state, first.products.value) == ("AMD EPYC 9B45", "set", "7")
    assert first.memory.state == "kept"
    assert len(caplog.records) == 1 and caplog.records[0].levelname == "INFO"
    assert "MKL_DEBUG_CPU_TYPE 7 set: AVX-512" in caplog.records[0].getMessage()
    with pytest.raises(FrozenInstanceError):
        first.products.value = "6"


def test_what_a_person_reads(amd):
    said = str(tune_cpu())
    assert said == tune_cpu().describe()
    assert said.splitlines()[0] == "processor: AMD EPYC 9B45"
    assert said.splitlines()[1].startswith(
        "matrix products: MKL_DEBUG_CPU_TYPE 7 set: AVX-512 in place of the SSE that MKL takes on AMD; "
        "a child process found it right"
    )
    assert said.splitlines()[2:] == ["memory: mallopt left as it was set: the environment sets MALLOC_ARENA_MAX"]


@pytest.mark.parametrize("is_there", [True, False])
def test_it_says_when_it_may_be_too_late(amd, is_there):
    if is_there:
        amd.patch.setitem(sys.modules, "paddle", sys)
    else:
        amd.patch.delitem(sys.modules, "paddle", raising=False)
    assert ("unless Paddle, which was already imported" in tune_cpu().products.why) == is_there


def test_a_right_verdict_is_remembered(amd):
    tune_cpu()
    amd.again()
    later = tune_cpu()
    assert amd.tried == ["7"]
    assert (later.products.state, os.environ[MKL_VARIABLE]) == ("set", "7")
    assert "a child process found it right before" in later.products.why


def test_a_wrong_verdict_is_remembered_and_can_be_deleted(amd):
    amd.verdict = tuning._Verdict(False, "a child process died of SIGILL")
    first = tune_cpu()
    assert (first.products.state, first.products.value) == ("refused", None)
    assert str(first.products) == "MKL_DEBUG_CPU_TYPE left unset: with 7 a child process died of SIGILL"
    amd.again()
    later = tune_cpu()
    assert amd.tried == ["7"] and MKL_VARIABLE not in os.environ
    (file,) = (Path(os.environ["PADDLE_NEZHA_HOME"]) / "tuning").iterdir()
    assert f"died of SIGILL before (delete {file} to have it tried again)" in later.products.why
    file.unlink()
    amd.again()
    tune_cpu()
    assert amd.tried == ["7", "7"]


def test_a_passing_misfortune_is_not_remembered(amd):
    amd.verdict = tuning._Verdict(False, "nothing was tried", lasting=False)
    for _ in range(2):
        assert tune_cpu().products.state == "refused"
        amd.again()
    assert amd.tried == ["7", "7"]


@pytest.mark.parametrize(
    "text, wheel, value",
    [
        (ZEN5.replace("9B45", "9755"), WHEEL, "7"),
        (ZEN5, tuning._Wheel("2.6.2", True), "7"),
        (ZEN5.replace("avx512f ", ""), WHEEL, "5"),
    ],
)
def test_another_processor_paddle_or_value_is_tried_itself(amd, text, wheel, value):
    tune_cpu()
    amd.again()
    amd.has(text, wheel)
    tune_cpu()
    assert amd.tried == ["7", value]


def test_a_paddle_without_a_release_is_tried_each_time(amd):
    amd.has(ZEN5, tuning._Wheel("", True))
    for _ in range(2):
        assert tune_cpu().products.state == "set"
        amd.again()
    assert amd.tried == ["7", "7"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"right": 1, "why": "so"}', '{"right": true}', "\ufffd\x00"])
def test_a_damaged_memory_is_replaced(amd, content):
    tune_cpu()
    (file,) = (Path(os.environ["PADDLE_NEZHA_HOME"]) / "tuning").iterdir()
    whole = file.read_text(encoding="utf-8")
    file.write_text(content, encoding="utf-8")
    amd.again()
    assert tune_cpu().products.state == "set"
    assert amd.tried == ["7", "7"]
    assert file.read_text(encoding="utf-8") == whole
    assert json.loads(whole)["processor"] == "AMD EPYC 9B45" and json.loads(whole)[MKL_VARIABLE] == "7"


def test_a_cache_that_cannot_be_written_is_no_error(amd, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    amd.patch.setenv("PADDLE_NEZHA_HOME", str(tmp_path / "file"))  # a folder cannot be made in a file, even by root
    done = tune_cpu()
    assert (done.products.state, os.environ[MKL_VARIABLE]) == ("set", "7")
    assert "which cannot be remembered (" in done.products.why


def test_processes_started_together_pay_once(tmp_path):
    code = f"""
import time
from paddle_nezha import tuning
tuning._this_processor = lambda: tuning.read_processor({ZEN5!r}, "x86_64")
tuning._wheel = lambda: tuning._Wheel("3.3.1", True)
def tried(value):
    with open({str(tmp_path / "tried")!r}, "a") as file:
        file.write(value)
    time.sleep(1)
    return tuning._Verdict(True, "right")
tuning._try = tried
print(tuning.tune_cpu().products.state)
"""
    environ = {**os.environ, "PADDLE_NEZHA_HOME": str(tmp_path / "home")}
    environ.pop(MKL_VARIABLE, None)
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [one.communicate(timeout=120)[0] for one in running] == ["set\n"] * 3
    assert (tmp_path / "tried").read_text(encoding="utf-8") == "7"
    assert [file.suffix for file in (tmp_path / "home" / "tuning").iterdir()] == [".json"]


# ---- the switch, and the plan


def test_the_switch_leaves_everything_alone_and_says_so(amd):
    amd.patch.setenv(TUNE_VARIABLE, "0")
    done = tune_cpu()
    assert done == plan()
    assert str(done.products) == "MKL_DEBUG_CPU_TYPE switched off: PADDLE_NEZHA_TUNE=0"
    assert str(done.memory) == "mallopt switched off: PADDLE_NEZHA_TUNE=0"
    assert amd.tried == [] and MKL_VARIABLE not in os.environ
    amd.patch.setenv(TUNE_VARIABLE, "1")
    assert tune_cpu().products.state == "set"


@pytest.mark.parametrize("value", ["yes", "2", "off", "O"])
@pytest.mark.parametrize("call", [tune_cpu, plan])
def test_a_switch_that_is_neither(amd, value, call):
    amd.patch.setenv(TUNE_VARIABLE, value)
    with pytest.raises(ValueError) as raised:
        call()
    assert str(raised.value) == (
        f"PADDLE_NEZHA_TUNE: expected 1 (tune, which is the default) or 0 (leave everything alone), got {value!r}. "
        "Set it to one of them, or unset it."
    )
    assert amd.tried == [] and MKL_VARIABLE not in os.environ


def test_a_value_that_is_there_is_respected(amd):
    amd.patch.setenv(MKL_VARIABLE, "5")
    done = tune_cpu()
    assert (done.products.state, done.products.value, os.environ[MKL_VARIABLE]) == ("kept", "5", "5")
    assert amd.tried == []


def test_the_plan_sets_nothing_and_tries_nothing(amd, tmp_path):
    before = dict(os.environ)
    planned = plan()
    assert (planned.products.state, planned.products.value) == ("planned", "7")
    assert str(planned.products).startswith("MKL_DEBUG_CPU_TYPE 7 would be set: AVX-512")
    assert planned.products.why.endswith("if a child process finds it right")
    assert amd.tried == [] and dict(os.environ) == before and not (tmp_path / "home").exists()
    assert tune_cpu().products.state == "set"


@pytest.mark.parametrize("right, state, value", [(True, "planned", "7"), (False, "refused", None)])
def test_the_plan_knows_the_verdict(amd, right, state, value):
    amd.verdict = tuning._Verdict(right, "this is what it said")
    tune_cpu()
    amd.again()
    assert (plan().products.state, plan().products.value) == (state, value)
    assert "this is what it said before" in plan().products.why


def test_importing_tunes_nothing_and_brings_no_paddle():
    code = """
import os, sys
import paddle_nezha.cli
from paddle_nezha import tuning
assert tuning._done is None
tuning.plan()
print(tuning._done, "paddle" in sys.modules, "MKL_DEBUG_CPU_TYPE" in os.environ)
"""
    assert run(code) == "None False False\n"


def test_it_works_where_paddle_is_not_installed():
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "paddle":
            raise ModuleNotFoundError("No module named 'paddle'", name="paddle")
sys.meta_path.insert(0, Blocked())
from paddle_nezha import tuning
print(tuning.tune_cpu().products)
"""
    assert run(code) == "MKL_DEBUG_CPU_TYPE left alone: Paddle is not installed\n"


# ---- what really changes

FAULTS = """
import resource
from paddle_nezha._paddle import paddle

def faults(megabytes):
    tensor = paddle.ones([megabytes << 18])
    for _ in range(3):
        tensor + tensor
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        tensor + tensor
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""


@needs_glibc
@needs_mklml
def test_a_process_is_really_tuned(tmp_path):
    """With this machine's own processor under AMD's name: the trial, the variable and the heap are real."""
    code = f"""
import dataclasses, json, os
{FAULTS}
from paddle_nezha import tuning
own = dataclasses.replace(tuning._this_processor(), vendor="AuthenticAMD")
tuning._this_processor = lambda: own
before = faults(64)
done = tuning.tune_cpu()
# The least of three: the system may take idle pages away in between, and give them back by faults.
after = min(faults(64) for _ in range(3))
print(json.dumps([before, after, os.environ["MKL_DEBUG_CPU_TYPE"], dataclasses.asdict(done)]))
"""
    before, after, value, done = json.loads(run(code, PADDLE_NEZHA_HOME=str(tmp_path)).splitlines()[-1])
    assert value == done["products"]["value"] == BEST
    assert (done["products"]["state"], done["memory"]["state"]) == ("set", "set")
    assert done["memory"]["value"] == "M_TRIM_THRESHOLD=2147483647 M_TOP_PAD=67108864 M_MMAP_MAX=0"
    # Ten results of 64 MB: 16,385 pages each, or 32 where the system gives pages of 2 MB. Afterwards one may be new.
    assert before >= 320 and after * 5 < before
    assert len(list((tmp_path / "tuning").iterdir())) == 1


@needs_glibc
def test_the_environments_wish_is_respected_in_fact(tmp_path):
    code = f"{FAULTS}\nfrom paddle_nezha.tuning import tune_cpu\nprint(tune_cpu().memory.state, faults(64))"
    state, count = run(code, MALLOC_ARENA_MAX="2", PADDLE_NEZHA_HOME=str(tmp_path)).split()[-2:]
    assert state == "kept" and int(count) >= 320


@needs_mklml
def test_after_paddles_import_is_early_enough(tmp_path):
    """Shown by a value that MKL refuses."""
    code = """
import os
from paddle_nezha._paddle import paddle
from paddle_nezha import tuning
tuning._choose_path = lambda *_: tuning.Setting(tuning.MKL_VARIABLE, "planned", "99", "for this test")
tuning._try = lambda value: tuning._Verdict(True, "not asked")
numbers = paddle.ones([8, 8])
{before}
assert tuning.tune_cpu().products.state == "set" and os.environ["MKL_DEBUG_CPU_TYPE"] == "99"
paddle.matmul(numbers, numbers)
print("computed")
"""

    def after(before):
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code.replace("{before}", before)],
            cwd=ROOT,
            env={**os.environ, MKL_VARIABLE: "", "PADDLE_NEZHA_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )

    early, late = after(""), after("del os.environ[tuning.MKL_VARIABLE]; paddle.matmul(numbers, numbers)")
    assert early.returncode == 1 and "CPU 99 is not supported" in early.stdout + early.stderr
    assert (late.returncode, late.stdout) == (0, "computed\n"), late.stderr


@needs_glibc
def test_a_refusal_of_mallopt_is_told(fresh):
    fresh.setattr(tuning, "_MALLOPT", (("M_MXFAST", 1, 10**6),))  # glibc's largest is 160
    planned = tuning._choose_heap(GLIBC, False, {})
    refused = tuning._keep_heap(planned)
    assert str(refused) == "mallopt left unset: mallopt refused M_MXFAST=1000000"


@needs_glibc
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_another_allocator_is_noticed(tmp_path):
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(
        "#include <stddef.h>\nvoid *__libc_malloc(size_t);\nvoid *malloc(size_t n) { return __libc_malloc(n); }\n",
        encoding="utf-8",
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    code = "from paddle_nezha.tuning import plan; print(plan().memory.state)"
    assert (run(code), run(code, LD_PRELOAD=str(library))) == ("planned\n", "untouched\n")
