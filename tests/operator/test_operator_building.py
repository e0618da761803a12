"""How the library comes to be: compiled once, tried, remembered where it fails, and never half there.

Compiling takes half a minute of two cores, so most compilers here are small scripts that hand out the library the other
tests have compiled.
"""

import _ctypes
import hashlib
import json
import logging
import os
import re
import shlex
import signal
import threading
import time
from pathlib import Path

import children
import pytest
from filelock import FileLock

from paddle_nezha import operator
from paddle_nezha._paddle import paddle
from paddle_nezha.hub import pin, read_pin
from paddle_nezha.hub.places import HOME_VARIABLE
from paddle_nezha.operator import OperatorError, building

FOLDER = "空 格 and spaces"


@pytest.fixture(scope="module")
def real_library():
    return operator.load()


@pytest.fixture
def compiler(tmp_path, monkeypatch, real_library):
    """A factory of compilers: ``compiler(linking="exit 1")`` writes one and makes it this process's.

    Each call of one is a line of its log, told by ``compiler.runs("-shared")``.
    """
    monkeypatch.delenv(building.SWITCH, raising=False)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / FOLDER))
    monkeypatch.setattr(building, "PREBUILT", tmp_path / "no wheel brought one")
    script, log = tmp_path / "fake g++", tmp_path / "log"

    handing_out = f'cp {shlex.quote(str(real_library))} "$out"'

    def make(compiling=': > "$out"', linking=handing_out, version="1.0"):
        script.write_text(
            f"""#!/bin/sh
[ "$1" = --version ] && echo "fake g++ {version}" && exit 0
echo "$@" >> {shlex.quote(str(log))}
out= shared=
while [ $# -gt 0 ]; do
  case "$1" in -o) out="$2"; shift ;; -shared) shared=1 ;; esac
  shift
done
if [ "$shared" ]; then {linking}
else {compiling}
fi
"""
        )
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        return script

    make.runs = lambda word: [line for line in log.read_text().splitlines() if word in line] if log.exists() else []
    return make


@pytest.fixture
def untried(monkeypatch):
    """Without the trial, which is a process of some seconds, where it is not the point."""
    monkeypatch.setattr(building, "_try", lambda path: None)


def left_over(folder):
    """Everything a build leaves in its folder beside locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


# ---- a build that goes well


def test_compiled_once_into_a_folder_of_any_name_and_tried(compiler, caplog, real_library):
    compiler()
    with caplog.at_level(logging.WARNING, "paddle_nezha"):
        path = building.library()
    assert path == building.built_path() and FOLDER in str(path)
    assert path.read_bytes() == real_library.read_bytes() and left_over(path.parent) == [
        path.name,
        f"{path.name}.sha256",
    ]
    assert read_pin(path) == hashlib.sha256(path.read_bytes()).hexdigest()  # one that `sha256sum -c` checks too
    assert [record.message for record in caplog.records] == [
        "Compiling the attention operator, once for this Paddle (about half a minute) ..."
    ]
    assert building.library() == path and building.existing() == path and len(compiler.runs("-shared")) == 1


def test_what_the_compiler_is_told(compiler, untried):
    compiler()
    building.library()
    compiled = compiler.runs(" -c ")
    assert len(compiled) == len(list(building.SOURCES.glob("*.cc"))) and all("-O3" in line for line in compiled)
    standard = "-std=gnu++14" if paddle.__version__.startswith("2.") else "-std=gnu++17"
    assert all(standard in line for line in compiled)
    # Such a library makes the process flush subnormals to zero, NumPy's too, even if only linked so.
    assert not compiler.runs("fast-math") and not compiler.runs("-Ofast")


def test_the_name_follows_from_paddle_processor_source_and_flags(tmp_path, monkeypatch):
    names = {building.key()}
    assert f"paddle{paddle.__version__}-" in building.key()
    (tmp_path / "one.cc").write_text("int x;")
    for source, flags in ((tmp_path, building._FLAGS), (building.SOURCES, ("-O2",))):
        with monkeypatch.context() as patch:
            patch.setattr(building, "SOURCES", source)
            patch.setattr(building, "_FLAGS", flags)
            building.key.cache_clear()
            names.add(building.key())
    building.key.cache_clear()
    assert len(names) == 3 and building.key() in names


def test_a_library_that_came_with_the_package_is_taken(compiler, tmp_path, monkeypatch):
    compiler()
    monkeypatch.setattr(building, "PREBUILT", tmp_path)
    (tmp_path / f"{building.key()}.so").write_bytes(b"")
    assert building.library() == tmp_path / f"{building.key()}.so" and not compiler.runs("")


# ---- builds that fail


def test_a_failure_is_remembered_for_that_compiler_and_names_the_file_to_delete(compiler, untried):
    compiler(compiling="echo 'attention.h: no such luck' >&2; exit 3")
    with pytest.raises(OperatorError, match=r"fake g\+\+ ended with 3:\nattention.h: no such luck"):
        building.library()
    record = building.built_path().with_suffix(".failed")
    assert left_over(record.parent) == [record.name]
    runs = len(compiler.runs(""))
    with pytest.raises(OperatorError) as again:
        building.library()
    assert f"it failed before with this compiler; delete {record} to try again" in str(again.value)
    assert "\n" not in str(again.value) and str(again.value).endswith("Then: attention.h: no such luck")
    assert len(compiler.runs("")) == runs
    with pytest.raises(OperatorError, match="it failed before with this compiler"):
        building.outlook()
    record.unlink()
    with pytest.raises(OperatorError, match="no such luck"):
        building.library()
    assert len(compiler.runs("")) > runs
    compiler(version="1.1")  # another compiler gets its chance, and a success ends the story
    path = building.library()
    assert path.is_file() and left_over(record.parent) == [path.name, f"{path.name}.sha256"]


REFUSING = "echo 'attention.h: error: no such luck' >&2; exit 1"


@pytest.mark.parametrize("what", ["a day", "a clock set back", "headers"])
def test_a_failure_is_forgotten_with_time_and_with_what_it_was_met_in(what, compiler, untried, monkeypatch, tmp_path):
    headers = tmp_path / "include"
    monkeypatch.setattr(building, "_headers", lambda: str(headers))
    compiler(compiling=REFUSING)
    for _ in range(2):
        with pytest.raises(OperatorError, match="no such luck"):
            building.library()
    record, runs = building.built_path().with_suffix(".failed"), len(compiler.runs(""))
    if what == "headers":
        headers.mkdir()  # as the package of Python's headers does
    else:
        changed = time.time() + {"a day": -1, "a clock set back": 1}[what] * (building._REMEMBERED + 60)
        os.utime(record, (changed, changed))
    assert "not compiled yet" in building.outlook()
    with pytest.raises(OperatorError, match="ended with 1:"):
        building.library()
    assert len(compiler.runs("")) > runs


@pytest.mark.parametrize("failing", [
    "echo 'cc1plus: fatal error: error writing to /x.s: No space left on device' >&2; exit 1",
    "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
    "echo 'virtual memory exhausted: Cannot allocate memory' >&2; exit 1",
    "kill -9 $$",
    "exit 143",  # a shell's word for SIGTERM
])  # fmt: skip
@pytest.mark.parametrize("step", ["compiling", "linking"])
def test_what_is_no_verdict_on_the_source_is_not_remembered(step, failing, compiler, untried):
    compiler(**{step: failing})
    with pytest.raises(OperatorError, match="ended with"):
        building.library()
    assert left_over(building.built_path().parent) == [] and "not compiled yet" in building.outlook()
    compiler()  # of the same version: the next process has it
    assert building.library().is_file()


def test_a_compiler_without_a_place_for_its_files(compiler, untried, monkeypatch):
    compiler()
    monkeypatch.setattr(building.tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(OperatorError, match=r"a compiler's files have no place .*TMPDIR names one"):
        building.library()
    assert left_over(building.built_path().parent) == []


@pytest.mark.parametrize("linking, said", [
    ("exit 7", "ended with 7"),
    ("exit 0", "No such file"),  # it says it went well, and wrote nothing
], ids=["ends badly", "writes nothing"])  # fmt: skip
def test_a_linker_that_fails_leaves_nothing(linking, said, compiler):
    compiler(linking='rm -f "$out"; ' + linking)
    with pytest.raises((OperatorError, OSError)):
        building.library()
    assert not building.built_path().exists() and not [
        n for n in left_over(building.built_path().parent) if ".tmp" in n
    ]


def test_a_library_that_does_not_load_fails_its_trial(compiler):
    compiler(linking='echo "no library" > "$out"')
    with pytest.raises(OperatorError, match=r"the compiled library failed its trial \(1\):\n"):
        building.library()
    assert left_over(building.built_path().parent) == [building.built_path().with_suffix(".failed").name]


def test_the_trial_sees_wrong_numbers():
    """Run against definitions that are wrong themselves: the library's right numbers must then be refused."""
    script = """
import dataclasses, json, sys
from paddle_nezha.operator import trial
trial.load_operators(sys.argv[1])
trial.load_operators = lambda library: None
for name in ("_attention", "_gelu", "_norm"):
    make = getattr(trial, name)
    right = make()
    wrong = [dataclasses.replace(right, output=right.output + 1e-3)]
    for key, slope in right.slopes.items():
        wrong.append(dataclasses.replace(right, slopes={**right.slopes, key: slope + 1e-3}))
    for one in wrong:
        setattr(trial, name, lambda: one)
        try:
            trial.main()
            print("nothing")
        except SystemExit as error:
            print(error)
    setattr(trial, name, make)
trial.main()
"""
    out, _ = children.run(script, operator.load(), changes={building.SWITCH: "0"})
    expected = []
    for name, inputs in (("attention", "QKV Bias"), ("gelu", "X Bias"), ("norm", "X Residual Bias Weight Shift")):
        for what in ("output", *(f"gradient of {one}" for one in inputs.split())):
            expected.append(f"the {what} of nezha_{name} is off by 1.0e-03, more than 1e-12")
    assert [line.partition(": ")[2] for line in out.splitlines() if ": the " in line or line == "nothing"] == expected


@pytest.mark.parametrize("path, named, said", [
    ("", "", r"there is no C\+\+ compiler \(g\+\+ or clang\+\+; CXX can name one\)"),
    (None, "no-such-compiler", "CXX=no-such-compiler names no program: .* or unset it"),
    (None, "g++ -m64", r"CXX=g\+\+ -m64 names no program: let it name a C\+\+ compiler without options"),
])  # fmt: skip
def test_without_a_compiler(path, named, said, compiler, monkeypatch):
    compiler()
    monkeypatch.setenv("CXX", named)
    if path is not None:
        monkeypatch.setenv("PATH", path)
    for ask in (building.library, building.outlook):
        with pytest.raises(OperatorError, match=said):
            ask()


def test_a_compiler_that_cannot_be_run(compiler, untried):
    script = compiler()
    script.write_text("#!/no/such/interpreter\n")
    with pytest.raises(OperatorError, match=r"fake g\+\+ could not be run"):
        building.library()


def test_a_folder_that_cannot_be_written(compiler, tmp_path, monkeypatch):
    compiler()
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", "/proc/no folder for anybody"):
        monkeypatch.setenv(HOME_VARIABLE, str(home))
        said = rf"its folder {home}/operator cannot be written \(.*PADDLE_NEZHA_HOME names another"
        for ask in (building.library, building.outlook):
            with pytest.raises(OperatorError, match=said):
                ask()
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "new" / "folder"))
    assert "not compiled yet" in building.outlook() and not (tmp_path / "new").exists()


def test_paddle_without_its_extension_module(compiler, monkeypatch):
    compiler()

    def broken(name):
        raise ImportError("no setuptools")

    monkeypatch.setattr(building.importlib, "import_module", broken)
    with pytest.raises(OperatorError, match=r"cpp_extension cannot be used .*no setuptools.*pip install setuptools"):
        building.library()
    assert left_over(building.built_path().parent) == []  # setuptools may come at any time


# ---- the switch


@pytest.mark.parametrize("value", ["0", "off", "No", " FALSE "])
def test_switched_off(value, compiler, monkeypatch):
    compiler()
    monkeypatch.setenv(building.SWITCH, value)
    with pytest.raises(OperatorError, match=f"it is switched off by PADDLE_NEZHA_OPERATOR={value.strip()}"):
        building.library()
    assert not compiler.runs("")


def test_a_library_named_by_the_environment(compiler, tmp_path, monkeypatch):
    compiler()
    (tmp_path / "own.so").write_text("")
    monkeypatch.setenv(building.SWITCH, str(tmp_path / "own.so"))
    assert building.library() == tmp_path / "own.so" and not compiler.runs("")
    monkeypatch.setenv(building.SWITCH, str(tmp_path / "gone.so"))
    with pytest.raises(OperatorError, match=r"must be 0, 1 or a library's path, but .*gone.so is no file"):
        building.library()
    monkeypatch.setenv(building.SWITCH, "1")
    assert building.existing() is None


def test_other_systems(compiler, monkeypatch):
    compiler()
    monkeypatch.setattr(building.sys, "platform", "darwin")
    with pytest.raises(OperatorError, match="made for processors under Linux, not for darwin"):
        building.library()


# ---- models

_MODEL = """
import json
import numpy as np
from paddle_nezha import operator
from paddle_nezha._paddle import paddle
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.model import NeZhaModel
paddle.seed(1)
model = NeZhaModel(NeZhaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                               intermediate_size=37))
model.eval()
ids = paddle.to_tensor(np.arange(1, 15).reshape(2, 7))
sums = [float(model(ids)[0].abs().sum()) for _ in range(2)]
print(json.dumps([sums, operator.unavailable(), operator.describe()]))
"""


def model_in(changes):
    out, err = children.run(_MODEL, changes=changes)
    sums, reason, description = json.loads(out.strip().splitlines()[-1])
    assert sums[0] == sums[1] > 0
    # Paddle 2.6 logs a line of its own about custom operators.
    return reason, description, [line for line in err.splitlines() if line and "`is_initialized`" not in line]


def test_a_broken_compiler_leaves_models_running_natively_with_one_notice(tmp_path):
    changes = {building.SWITCH: None, HOME_VARIABLE: tmp_path, "CXX": "/bin/false"}
    reason, description, notice = model_in(changes)
    assert "/bin/false ended with 1" in reason and description.startswith("not available: ")
    assert len(notice) == 2 and "Compiling the attention operator" in notice[0]
    assert "Attention runs on Paddle's own operations, which are slower: /bin/false ended with 1" in notice[1]
    # The next process does not even try, and says in one line why, and how to have it tried again.
    reason, _, notice = model_in(changes)
    assert "it failed before with this compiler" in reason
    assert len(notice) == 1 and notice[0].endswith(f"Paddle's own operations, which are slower: {reason}")
    assert f"delete {tmp_path / 'operator' / building.key()}.failed to try again" in notice[0]


@pytest.mark.parametrize("changes, reason, notices", [
    ({"PADDLE_NEZHA_OPERATOR": "0"}, "it is switched off by PADDLE_NEZHA_OPERATOR=0", 0),
    ({"PADDLE_NEZHA_OPERATOR": None, "CXX": "no-such-compiler"}, "CXX=no-such-compiler names no program", 1),
    ({"PADDLE_NEZHA_OPERATOR": None, HOME_VARIABLE: __file__}, "PADDLE_NEZHA_HOME names another", 1),
])  # fmt: skip
def test_without_the_operator_models_run_natively(changes, reason, notices, tmp_path):
    """What is switched off on purpose is no news; the rest is one line a process, and the same in a report."""
    said, description, notice = model_in({HOME_VARIABLE: tmp_path, **changes})
    assert all(line.endswith(f"Attention runs on Paddle's own operations, which are slower: {said}") for line in notice)
    assert reason in said and description == f"not available: {said}" and len(notice) == notices


@pytest.mark.parametrize("damage", ["not a library", "cut short", "empty", "another library"])
def test_a_damaged_library_is_not_loaded_but_compiled_anew(damage, tmp_path, real_library):
    # One that is cut short would end the process: its own digest lies beside it.
    path = tmp_path / "operator" / f"{building.key()}.so"
    path.parent.mkdir()
    whole = real_library.read_bytes()
    pin(path, hashlib.sha256(whole).hexdigest())
    other = Path(_ctypes.__file__).read_bytes()
    damaged = {"not a library": b"<html>404</html>", "cut short": whole[: len(whole) // 2], "another library": other}
    path.write_bytes(damaged.get(damage, b""))
    reason, description, notice = model_in({building.SWITCH: None, HOME_VARIABLE: tmp_path, "CXX": "/bin/false"})
    assert "Compiling the attention operator" in notice[0] and "ended with 1" in reason
    path.write_bytes(whole)
    path.with_suffix(".failed").unlink()
    reason, description, notice = model_in({building.SWITCH: None, HOME_VARIABLE: tmp_path, "CXX": "/bin/false"})
    assert reason is None and str(path) in description and not notice


_NAMED = """
import json
from paddle_nezha import forms, operator
from paddle_nezha._paddle import paddle
from paddle_nezha.attention import attention_form, using_form
said = []
x = paddle.zeros([1, 2, 8])
for ask in (lambda: attention_form(x, 8, None, False), lambda: forms.by_operators(x), lambda: forms.by_operators(x)):
    try:
        said.append(f"no error: {ask()}")
    except operator.OperatorError as error:
        said.append(str(error))
with using_form("native"):
    said.append(attention_form(x, 8, None, False))
print(json.dumps([said, operator.describe(), forms.describe()]))
"""


@pytest.mark.parametrize("named, why", [
    ("nothing", "must be 0, 1 or a library's path, but {} is no file"),
    ("not a library", r"names a library, but {} could not be loaded into Paddle .*: .*(too short|invalid ELF header)"),
    ("another library", "names a library, but {} could not be .*: it is a library, but not that of the operator"),
])  # fmt: skip
def test_a_library_named_by_the_environment_that_is_not_to_be_had_is_an_error(named, why, tmp_path):
    path = tmp_path / "named.so"
    if named != "nothing":
        path.write_bytes(b"<html>404</html>" if named == "not a library" else Path(_ctypes.__file__).read_bytes())
    out, err = children.run(_NAMED, changes={building.SWITCH: path})
    said, description, form = json.loads(out.strip().splitlines()[-1])
    assert len(set(said[:3])) == 1 and re.fullmatch(f"{building.SWITCH} {why.format(path)}", said[0]), said
    assert said[3] == "native"  # which does not need it
    assert description == f"not available: {said[0]}" and form == f"an error at every call of a model: {said[0]}"
    assert "Paddle's own operations" not in err


# ---- several processes

_LIBRARY = """
import sys
from paddle_nezha.operator import building
print(building.library())
"""


def test_two_processes_at_once_compile_once(compiler):
    compiler(compiling='sleep 0.3; : > "$out"')
    processes = [children.start(_LIBRARY) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert (
        answers[0][0].strip().splitlines()[-1] == answers[1][0].strip().splitlines()[-1] == str(building.built_path())
    )
    assert len(compiler.runs("-shared")) == 1


def test_who_waits_for_another_process_says_so(compiler, untried, caplog, monkeypatch):
    monkeypatch.setattr(building, "_PATIENT", 0.05)
    compiler()
    target = building.built_path()
    target.parent.mkdir(parents=True)
    waiting = "Waiting for another process that compiles the attention operator ..."
    with FileLock(f"{target}.lock"):
        one = threading.Thread(target=building.library)
        one.start()
        deadline = time.time() + 30
        while waiting not in caplog.messages and time.time() < deadline:
            time.sleep(0.01)
    one.join(60)
    assert caplog.messages[0] == waiting and caplog.messages.count(waiting) == 1 and target.is_file()


def test_nobody_waits_for_ever(compiler, untried, monkeypatch):
    compiler()
    monkeypatch.setattr(building, "_PATIENT", 0.01)
    monkeypatch.setattr(building, "_MINUTES", 0.001)
    building.built_path().parent.mkdir(parents=True)
    with (
        FileLock(f"{building.built_path()}.lock"),
        pytest.raises(OperatorError, match="another process has been compiling"),
    ):
        building.library()


def test_killed_while_compiling_leaves_nothing_half_done(compiler, untried):
    compiler(linking='echo half > "$out"; sleep 60')
    process = children.start(_LIBRARY)
    deadline = time.time() + 60
    while not compiler.runs("-shared") and time.time() < deadline:
        time.sleep(0.05)
    assert process.poll() is None and compiler.runs("-shared")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert building.existing() is None and not building.built_path().with_suffix(".failed").exists()
    compiler()
    assert building.library().is_file()  # at once: the lock went with the process


_WORKER = """
import sys
import numpy as np
from paddle_nezha._paddle import paddle
from paddle_nezha.operator import building

class Words(paddle.io.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        try:
            building.library()
        except building.OperatorError as error:
            with open(sys.argv[1], "a") as said:
                print(error, file=said)
        return np.array([index])

print(sum(int(batch[0].sum()) for batch in paddle.io.DataLoader(Words(), batch_size=1, num_workers=1)))
"""


def test_a_data_worker_never_compiles(compiler, tmp_path):
    compiler()
    children.run(_WORKER, tmp_path / "said")
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["a data worker does not compile: call the model once in the main process first"] * 2
    assert not compiler.runs("")


# ---- the real compiler


@pytest.mark.slow
def test_the_real_compiler_in_a_folder_of_any_name(tmp_path, monkeypatch):
    home = tmp_path / FOLDER
    reason, description, notice = model_in({building.SWITCH: None, HOME_VARIABLE: home})
    assert reason is None and str(home) in description and len(notice) == 1
    assert [path.suffix for path in sorted((home / "operator").iterdir())] == [".so", ".lock", ".sha256"]
