"""The command line: what it prints, and what it answers to the shell."""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import published
import pytest

from paddle_nezha import cli
from paddle_nezha.checkpoint import pdparams, safetensors
from paddle_nezha.cli import main, parser
from paddle_nezha.hub import published as published_entry
from paddle_nezha.hub import registry, sha256_of
from weights.demo import FOLDER

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = FOLDER / "model_state.pdparams"
QUERY = "nezha.encoder.layer.0.attention.query.weight"
COMMANDS = ("fetch", "list", "verify", "convert", "diff", "export", "info")
FILES = {"config.json", "vocab.txt", "model_state.pdparams"}


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    published.isolate(monkeypatch, tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def server():
    server = published.loopback().Loopback()
    yield server
    server.stop()


@pytest.fixture
def demo(monkeypatch, server):
    return published.publish(monkeypatch, server)


@pytest.fixture
def call(capsys):
    """Runs a command: (exit code, stdout, stderr)."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def changed_file(path, change):
    """The shelf's weights with a change."""
    arrays = {name: array.copy() for name, array in pdparams.read(WEIGHTS).items()}
    change(arrays)
    pdparams.write(path, arrays)
    return path


def nan(arrays):
    arrays[QUERY][0, 0] = np.nan


def one_number(arrays):
    arrays[QUERY][3, 5] += 0.5


# ---- help


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_has_an_example(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"examples:\n  paddle-nezha {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_example_is_a_command(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = capsys.readouterr().out.partition("examples:")[2].splitlines()
    for line in filter(None, map(str.strip, lines)):
        arguments = line.partition(">")[0].split()
        assert arguments[0] == "paddle-nezha" and parser().parse_args(arguments[1:]).command == command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "required: COMMAND"), (["convert", "a"], "required: DST"), (["convert", "a", "b", "--set", "x"], "KEY=VAL")],
)
def test_a_wrong_call_answers_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and message in capsys.readouterr().err


# ---- fetch and list


def test_fetch_gives_the_folder(call, demo, home):
    code, out, err = call("fetch", "demo")
    assert (code, out) == (0, f"{home / 'demo'}\n")
    assert {path.name for path in (home / "demo").iterdir()} >= FILES
    assert "no checksum was published" in err
    assert call("fetch", "demo", "--offline")[0] == 0  # it is here


def test_fetch_to_a_folder_from_a_mirror(call, demo, server, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.ENTRIES, "demo", replace(demo, host=registry.Host("http://127.0.0.1:9")))
    code, out, _ = call(
        "fetch", "demo", "--to", tmp_path / "there", "--mirror", server.address, "--cache-dir", tmp_path / "c", "--json"
    )
    content = json.loads(out)
    assert code == 0 and content["folder"] == str(tmp_path / "there") and FILES <= set(content["files"])


def test_fetch_refuses_what_is_not_the_checkpoint(call, monkeypatch, server, tmp_path, home):
    """A file of the right form and length, whose numbers are none: it never gets the name."""
    bad = changed_file(tmp_path / "bad.pdparams", nan).read_bytes()
    published.publish(monkeypatch, server, bad)
    code, out, err = call("fetch", "demo")
    assert (code, out) == (1, "") and f"not finite (NaN or infinity): {QUERY[6:]}" in err
    assert "does not hold the weights of demo" in err
    assert not list((home / "demo").glob("model_state*"))


def test_fetch_offline_says_which_file_to_put_where(call, demo, home):
    code, out, err = call("fetch", "demo", "--offline")
    assert (code, out) == (2, "")
    assert err.startswith("paddle-nezha: offline, and demo is not here. To place it by hand, put\n")
    assert str(home / "demo" / "model_state.pdparams") in err and "Traceback" not in err


@pytest.mark.parametrize("name", ["nezha-cn-12L768H", "nezha-base-chines"])
def test_a_name_that_names_nothing(call, name):
    code, _, err = call("fetch", name)
    assert code == 2 and ("names no file: PaddleNLP" in err or "Did you mean 'nezha-base-chinese'?" in err)


def test_list_says_where_and_whether_it_is_verified(call, demo, home):
    assert "not here: http://127.0.0.1" in call("list")[1]
    call("fetch", "demo")
    _, out, _ = call("list")
    assert out.splitlines()[1].split()[:2] == ["demo", "209,804"] and f"pinned    {home / 'demo'}" in out
    (entry,) = json.loads(call("list", "--json")[1])
    assert (entry["verified"], entry["folder"]) == ("pinned", str(home / "demo"))


def test_list_knows_what_was_published(call):
    code, out, _ = call("list", "--json")
    assert code == 0 and {entry["name"] for entry in json.loads(out)} == set(registry.ENTRIES)


# ---- verify


def test_verify_a_folder(call):
    code, out, _ = call("verify", FOLDER)
    assert code == 0 and out.endswith("nezha-seeded-demo is right.\n")
    assert f"sha256 {sha256_of(WEIGHTS)}; no record beside it" in out
    assert not (FOLDER / "model_state.pdparams.sha256").exists()


def test_verify_a_published_name(call, demo):
    code, out, _ = call("verify", "demo")
    assert code == 0 and "ok     parameters: 209,804 parameters" in out
    assert f"ok     file: sha256 {sha256_of(WEIGHTS)}, as first used" in out
    assert "--     behaviour: no numbers of it were ever published" in out


def test_verify_a_file_that_changed_since_it_was_first_used(call, demo, home):
    call("fetch", "demo")
    changed_file(home / "demo" / "model_state.pdparams", one_number)
    code, out, _ = call("verify", "demo")
    assert code == 1 and "has changed since it was first used" in out
    code, out, _ = call("verify", home / "demo")
    assert code == 1 and "has changed: its record says sha256" in out


def test_verify_says_all_that_is_wrong(call, tmp_path):
    (tmp_path / "config.json").write_bytes((FOLDER / "config.json").read_bytes())
    changed_file(
        tmp_path / "model_state.pdparams", lambda arrays: (nan(arrays), arrays.pop("cls.predictions.dense.bias"))
    )
    code, out, _ = call("verify", tmp_path, "--json")
    content = json.loads(out)
    assert code == 1 and content["right"] is False
    wrong = {check["name"]: check["told"] for check in content["checks"] if check["passed"] is False}
    assert set(wrong) == {"values", "structure"} and "cls.predictions.dense.bias" in wrong["structure"]


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (lambda lines: lines, 0, "ok     vocabulary: 778 tokens for 778 embeddings\n"),
        (lambda lines: lines[:300] + lines[301:], 0, "--     vocabulary: 777 tokens for 778 embeddings; what is left"),
        (lambda lines: [*lines, "novum"], 1, "WRONG  vocabulary: 779 tokens for 778 embeddings\n"),
        (lambda lines: lines[50:], 1, "WRONG  vocabulary: "),
    ],
)
def test_verify_holds_the_vocabulary_to_the_embeddings(change, code, told, call, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(FOLDER, folder)
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "vocab.txt").write_text("\n".join(change(lines)) + "\n", encoding="utf-8")
    found, out, _ = call("verify", folder)
    assert (found, told in out) == (code, True), out


def test_verify_a_file_that_is_none(call, tmp_path):
    (tmp_path / "x.pdparams").write_text("<html>not found</html>", encoding="utf-8")
    code, out, _ = call("verify", tmp_path / "x.pdparams")
    assert code == 1 and "WRONG  readable: " in out and "a web page or XML" in out
    code, _, err = call("verify", tmp_path / "nowhere")
    assert code == 2 and "There is no folder" in err and err.count("\n") == 1


# ---- published behaviour


@pytest.fixture
def behaviours(monkeypatch, seeded):
    """Publishes for "demo" what the shelf's checkpoint gives, with four decimals, changed by `shift`."""
    from paddle_nezha import NeZhaForMaskedLM, NeZhaModel, behaviour
    from paddle_nezha._paddle import paddle

    hidden, logits = behaviour.PUBLISHED["nezha-base-chinese"]

    def values(known, kind, pick, shift):
        with paddle.no_grad():
            given = kind.from_pretrained(FOLDER)(
                paddle.to_tensor([known.ids]), attention_mask=paddle.to_tensor([known.mask])
            )
        found = pick(given).numpy()[0, 1:4, 1:4] + shift
        return behaviour.Behaviour(known.what, known.heads, known.ids, known.mask, found.round(4).tolist())

    def publish(shift):
        monkeypatch.setitem(
            behaviour.PUBLISHED,
            "demo",
            (
                values(hidden, NeZhaModel, lambda given: given[0], shift),
                values(logits, NeZhaForMaskedLM, lambda given: given, 0.0),
            ),
        )

    return publish


def test_published_behaviour_is_computed(call, demo, behaviours):
    behaviours(0.0)
    code, out, _ = call("verify", "demo")
    assert code == 0 and "ok     published last hidden state: as published, within" in out
    assert "ok     published masked-LM logits: as published, within" in out


def test_other_behaviour_is_found(call, demo, behaviours):
    behaviours(2e-4)
    code, out, _ = call("verify", "demo")
    assert code == 1 and "WRONG  published last hidden state: the last hidden state is another: expected [[" in out
    assert "ok     published masked-LM logits" in out


def test_both_files_of_the_base_release_have_published_numbers():
    from paddle_nezha.behaviour import PUBLISHED

    assert set(PUBLISHED) == {"nezha-base-chinese", "sijunhe/nezha-cn-base"} <= set(registry.ENTRIES)
    for known in PUBLISHED["nezha-base-chinese"]:
        assert len(known.ids) == len(known.mask) == 6 and [len(row) for row in known.values] == [3, 3, 3]


def test_a_part_that_is_not_there_has_no_behaviour():
    from paddle_nezha.behaviour import check_behaviour

    checks = check_behaviour("nezha-base-chinese", FOLDER, "next_sentence")
    assert [(check.passed, check.told) for check in checks] == [
        (None, "not computed: the file holds a next_sentence")
    ] * 2


# ---- convert and diff


def test_convert_and_diff(call, tmp_path):
    code, out, err = call("convert", FOLDER, tmp_path / "hf", "--to", "hf")
    assert (code, err) == (0, "") and "checked  opened again, and every tensor is the source's, byte for byte" in out
    code, out, _ = call("diff", FOLDER, tmp_path / "hf")
    assert (code, out) == (0, "77 tensors equal byte for byte, 0 different (A has paddlenlp names, B hf)\n")
    changed = changed_file(tmp_path / "x.pdparams", one_number)
    code, out, _ = call("diff", changed, tmp_path / "hf")
    assert code == 1 and out.startswith(f"{QUERY[6:]}: 1 of 4096 numbers differ, by at most 0.5 at [3, 5]")
    code, out, _ = call("diff", changed, tmp_path / "hf", "--json")
    assert code == 1 and json.loads(out)["differences"][0]["kind"] == "values"


def test_a_published_name_is_converted_and_compared(call, demo, tmp_path):
    code, out, _ = call("convert", "demo", tmp_path / "torch", "--to", "torch", "--names", "bert4torch", "--json")
    assert code == 0 and json.loads(out)["names"] == "bert4torch"
    assert call("diff", "demo", tmp_path / "torch")[0] == 0


def test_convert_with_settings_of_one_s_own(call, tmp_path):
    code, out, _ = call(
        "convert",
        FOLDER,
        tmp_path / "x",
        "--head",
        "model",
        "--set",
        "hidden_act=gelu_new",
        "--set",
        "layer_norm_eps=1e-5",
    )
    content = json.loads((tmp_path / "x" / "config.json").read_text(encoding="utf-8"))
    assert code == 0 and (content["hidden_act"], content["layer_norm_eps"]) == ("gelu_new", 1e-5)
    assert "embeddings.word_embeddings.weight" in safetensors.read(tmp_path / "x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "nowhere", "x"], "There is no folder 'nowhere'."),
        (["convert", str(FOLDER), str(FOLDER)], "is the source's folder"),
        (["convert", str(WEIGHTS), "x", "--set", "colour=red"], "has no setting 'colour'"),
        (["convert", str(FOLDER), "x", "--head", "token_classification", "--dialect", "tensorflow"], "does not fit"),
        (["diff", str(FOLDER), str(FOLDER / "vocab.txt")], "vocab.txt is no checkpoint"),
    ],
)
def test_what_cannot_be_done_answers_2_without_a_traceback(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "") and err.startswith("paddle-nezha: ") and message in err and "Traceback" not in err
    assert not (tmp_path / "x").exists()


def test_an_error_is_json_where_json_was_asked_for(call, tmp_path):
    code, out, err = call("convert", "nowhere", tmp_path / "x", "--json")
    assert code == 2 and json.loads(out) == {"error": err.removeprefix("paddle-nezha: ").removesuffix("\n")}


def test_json_has_no_nan(call, tmp_path):
    changed_file(tmp_path / "x.pdparams", nan)
    code, out, _ = call("diff", FOLDER, tmp_path / "x.pdparams", "--json")
    assert code == 1 and json.loads(out, parse_constant=pytest.fail)["differences"]


def test_a_name_from_a_file_cannot_write_to_the_terminal(call, tmp_path):
    def rename(arrays):
        arrays["\x1b[2J\nall is well"] = arrays.pop("cls.predictions.dense.bias")

    changed_file(tmp_path / "x.pdparams", rename)
    for command in (["diff", FOLDER, tmp_path / "x.pdparams"], ["verify", tmp_path / "x.pdparams"]):
        out = "".join(call(*command)[1:])
        assert "\x1b" not in out and "\nall is well" not in out


def test_a_path_is_printed_on_a_terminal_that_lacks_its_letters(tmp_path):
    folder = tmp_path / "\u6a21\u578b"
    folder.mkdir()
    (folder / "x.pdparams").write_bytes(WEIGHTS.read_bytes())
    run = subprocess.run(
        [sys.executable, "-m", "paddle_nezha", "verify", folder / "x.pdparams"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
    )
    assert run.returncode == 0 and b"Traceback" not in run.stderr


def test_what_a_killed_conversion_left_is_removed_and_what_a_running_one_makes_is_not(call, tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead, alive = tmp_path / f".x.{ended.pid}.abc.part", tmp_path / f".x.{os.getppid()}.abc.part"
    dead.mkdir()
    alive.mkdir()
    assert call("convert", FOLDER, tmp_path / "x")[0] == 0
    assert not dead.exists() and alive.exists()


def test_the_record_of_a_wrong_file_is_removed(call, demo, home):
    assert published_entry("demo").weights.sha256 is None
    call("fetch", "demo")
    weights = home / "demo" / "model_state.pdparams"
    changed_file(weights, nan)
    record = weights.with_name(weights.name + ".sha256")
    record.write_text(f"{sha256_of(weights)}  {weights.name}\n", encoding="utf-8")  # as if it had come like this
    code, out, _ = call("verify", "demo")
    assert code == 1 and "record: removed" in out and not record.exists()


# ---- info, and where Paddle is missing


def test_info(call, home, monkeypatch, operator_library):
    monkeypatch.setenv("PADDLE_NEZHA_OPERATOR", operator_library)
    code, out, _ = call("info", "--json")
    facts = json.loads(out)
    assert code == 0 and facts["cache"] == str(home) and facts["offline"] is False
    assert facts["attention"].startswith("the operator on processors in eager mode;")
    assert re.match(r"(avx512|avx2|portable), .*\.so$", facts["operator"]) and facts["numpy"] == np.__version__
    assert "cache " in call("info")[1]


@pytest.mark.parametrize("form, says", [
    ("", "the operator on processors in eager mode; plain Paddle operations in traced graphs, for masks of pairs"),
    ("operator", "the operator on processors in eager mode and traced graphs, as PADDLE_NEZHA_ATTENTION asks "),
    ("native", "plain Paddle operations (blocked or dense, by the call), as PADDLE_NEZHA_ATTENTION asks (native)"),
    ("blocked", "plain Paddle operations, blocked (dense in traced graphs, for learned tables and for "),
    ("dense", "plain Paddle operations, dense, as PADDLE_NEZHA_ATTENTION asks (dense)"),
    ("flash", "an error at every call of a model: PADDLE_NEZHA_ATTENTION must be one of operator, blocked, dense, "),
])  # fmt: skip
def test_info_says_what_the_environment_makes_of_attention(form, says, call, monkeypatch, operator_library):
    monkeypatch.setenv("PADDLE_NEZHA_OPERATOR", operator_library)
    monkeypatch.setenv("PADDLE_NEZHA_ATTENTION", form)
    code, out, _ = call("info", "--json")
    assert code == 0 and json.loads(out)["attention"].startswith(says)


@pytest.mark.parametrize("form, says", [
    ("", "plain Paddle operations (blocked or dense, by the call), since the operator is not available: {why}"),
    (
        "operator",
        "an error at every call that the operator could compute, as PADDLE_NEZHA_ATTENTION asks (operator): {why}",
    ),
    ("dense", "plain Paddle operations, dense, as PADDLE_NEZHA_ATTENTION asks (dense)"),
])  # fmt: skip
def test_info_without_the_operator(form, says, call, monkeypatch):
    from paddle_nezha import operator

    monkeypatch.setattr(operator, "_loaded", None)
    monkeypatch.setattr(operator, "_failure", operator.OperatorError("its folder cannot be written"))
    monkeypatch.setenv("PADDLE_NEZHA_ATTENTION", form)
    facts = json.loads(call("info", "--json")[1])
    assert facts["attention"] == says.format(why="its folder cannot be written")
    assert facts["operator"] == "not available: its folder cannot be written"


def test_info_of_an_instruction_set_that_there_is_not(call, monkeypatch, operator_library):
    monkeypatch.setenv("PADDLE_NEZHA_OPERATOR", operator_library)
    monkeypatch.setenv("PADDLE_NEZHA_ISA", "sse9")
    facts = json.loads(call("info", "--json")[1])
    assert facts["operator"].startswith("not available: PADDLE_NEZHA_ISA must name an instruction set that runs here")
    assert facts["attention"].startswith("an error at every call of a model: PADDLE_NEZHA_ISA")


def test_info_where_the_device_is_no_processor(call, monkeypatch, operator_library):
    from paddle_nezha._paddle import paddle

    monkeypatch.setenv("PADDLE_NEZHA_OPERATOR", operator_library)
    monkeypatch.setattr(paddle.device, "get_device", lambda: "gpu:0")
    facts = json.loads(call("info", "--json")[1])
    assert facts["attention"].startswith("plain Paddle operations (blocked or dense, by the call), since the device is")


def test_it_works_without_paddle(tmp_path, home):
    """Only the published behaviour needs it."""
    blocked = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("paddle", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "paddle" else real(name, *rest)
from paddle_nezha.cli import main
folder, there = sys.argv[1:]
calls = (["list"], ["verify", folder], ["convert", folder, there, "--to", "torch"], ["diff", folder, there], ["info"])
print([main(call) for call in calls])
"""
    done = subprocess.run(
        [sys.executable, "-c", blocked, str(FOLDER), str(tmp_path / "x")],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.endswith("[0, 0, 0, 0, 0]\n"), done.stderr
    assert "paddle        not installed: configs, tokenizers and checkpoint files work" in done.stdout


def test_it_is_a_module_and_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "paddle_nezha", "verify", str(FOLDER / "vocab.txt")],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and "vocab.txt is WRONG." in done.stdout and done.stderr == ""
    assert 'paddle-nezha = "paddle_nezha.__main__:main"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "paddle_nezha", "list"],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "paddle-nezha: the disk is full: make room, and give the same command again\n"


def test_ctrl_c_while_modules_are_imported(monkeypatch, capsys):
    from paddle_nezha.__main__ import main as script

    class Interrupted:
        def find_spec(self, name, path=None, target=None):
            if name == "paddle_nezha.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "paddle_nezha.cli")
    monkeypatch.delattr("paddle_nezha.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert script() == 130
    assert capsys.readouterr().err == "paddle-nezha: stopped\n"


def test_what_tuning_did_is_left_to_info(capsys):
    with cli._log_lines():
        logging.getLogger("paddle_nezha.tuning").info("tuned")
        logging.getLogger("paddle_nezha").info("said")
    assert capsys.readouterr().err == "said\n"
