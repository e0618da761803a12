"""The job that proves published checkpoints, on one that this machine publishes."""

import json
import subprocess

import published
import pytest

from paddle_nezha.checkpoint.verify import verify
from weights import verify as job
from weights.__main__ import main
from weights.demo import FOLDER


@pytest.fixture(autouse=True)
def server(monkeypatch, tmp_path):
    published.isolate(monkeypatch, tmp_path / "home")
    server = published.loopback().Loopback()
    published.publish(monkeypatch, server)
    yield server
    server.stop()


@pytest.fixture
def judge(monkeypatch):
    """The judge's process, in place of which something is said; its command lines are kept."""
    commands = []

    def say(code, out="EQUAL  708 stages judged\n", err=""):
        def run(command, **options):
            commands.append(command)
            return subprocess.CompletedProcess(command, code, out, err)

        monkeypatch.setattr(job.subprocess, "run", run)
        return commands

    return say


def test_the_record_holds_every_digest(judge, tmp_path, capsys):
    commands = judge(0)
    assert main(["verify", "demo", "--record", str(tmp_path / "new" / "record.json")]) == 0
    assert "demo is right." in capsys.readouterr().out
    content = json.loads((tmp_path / "new" / "record.json").read_text(encoding="utf-8"))["checkpoints"]["demo"]
    proven = verify(FOLDER)
    assert (content["right"], content["digest"], content["parameters"]) == (True, proven.digest, 209_804)
    assert {name: item["sha256"] for name, item in content["tensors"].items()} == {
        name: item.sha256 for name, item in proven.tensors.items()
    }
    assert {check["name"] for check in content["checks"]} >= {"values", "structure", "parameters", "file", "parity"}
    (command,) = commands
    assert command[1:5] == ["-m", "parity", "run", "--weights"] and command[5] == str(tmp_path / "home" / "demo")
    assert command[6:] == ["--text", str(FOLDER / "sentences.txt")]


def test_all_names_unless_told_and_reports_of_the_judge(judge, tmp_path):
    commands = judge(0)
    arguments = ["verify", "--record", str(tmp_path / "record.json"), "--report", str(tmp_path / "reports")]
    assert main(arguments) == 0
    assert commands[0][-2:] == ["--report", str(tmp_path / "reports" / "demo")]


@pytest.mark.parametrize(("said", "code", "passed"), [(1, 1, False), (2, 2, None)])
def test_what_the_judge_finds_is_the_job_s_answer(judge, tmp_path, said, code, passed):
    judge(said, "PARTS  3 of 708 stages\n", "parity could not run: no text\n")
    assert main(["verify", "--record", str(tmp_path / "record.json")]) == code
    (parity,) = (
        check
        for check in json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["checkpoints"]["demo"]["checks"]
        if check["name"] == "parity"
    )
    assert parity["passed"] is passed
    assert ("PARTS  3" if passed is False else "parity could not run: no text") in parity["told"]


def test_a_wrong_checkpoint_is_not_judged(judge, tmp_path, server, capsys):
    commands = judge(0)
    served = published.loopback().Served
    server.files["/model_state.pdparams"] = served((FOLDER / "model_state.pdparams").read_bytes()[:-3] + b"abc")
    assert main(["verify", "--record", str(tmp_path / "record.json")]) == 2
    assert "could not: " in capsys.readouterr().out and commands == []
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["checkpoints"]["demo"]["right"] is None


def test_offline_without_a_copy_cannot(judge, tmp_path, server):
    judge(0)
    assert main(["verify", "--offline", "--record", str(tmp_path / "record.json")]) == 2
    assert server.asked == []
    content = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert content["checkpoints"]["demo"]["error"].startswith("offline, and demo is not here.")


def test_an_unknown_name_cannot(judge, tmp_path):
    judge(0)
    assert main(["verify", "nothing", "--record", str(tmp_path / "record.json")]) == 2


@pytest.mark.slow  # 22 s: the judge itself
def test_the_judge_is_asked_for_real(tmp_path):
    assert main(["verify", "--record", str(tmp_path / "record.json")]) == 0
    content = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["checkpoints"]["demo"]
    (parity,) = (check for check in content["checks"] if check["name"] == "parity")
    assert parity["passed"] is True and parity["told"].startswith("EQUAL")
