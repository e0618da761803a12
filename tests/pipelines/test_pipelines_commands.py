"""`paddle-nezha fill-mask` and `paddle-nezha encode`: what they print, write and answer to the shell."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from paddle_nezha.cli import main
from paddle_nezha.pipelines import models, pipeline
from weights.demo import FOLDER

ROOT = Path(__file__).resolve().parents[2]
MASKED = "今天[MASK]上"


@pytest.fixture(autouse=True)
def untuned(monkeypatch):
    """This process keeps its allocator as the other tests found it."""
    monkeypatch.setenv("PADDLE_NEZHA_TUNE", "0")


@pytest.fixture
def call(capfdbinary):
    """Runs a command with the demo model: (exit code, stdout, stderr)."""

    def run(command, *arguments, model=FOLDER):
        code = main([command, *map(str, arguments), *(["--model", str(model)] if model else [])])
        captured = capfdbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return run


@pytest.fixture
def piped(monkeypatch):
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# ---- fill-mask


def test_a_text_is_answered_in_lines(call):
    code, out, _ = call("fill-mask", MASKED, "--top", "3")
    (candidates,) = pipeline("fill-mask", FOLDER, top_k=3)(MASKED)
    lines = out.splitlines()
    assert code == 0 and lines[0] == MASKED and len(lines) == 4
    for line, candidate in zip(lines[1:], candidates):
        assert line.split() == [f"{candidate.probability:.4f}", candidate.token, candidate.text]


def test_several_masks_are_told_apart_and_json_holds_everything(call):
    _, out, _ = call("fill-mask", "[MASK]天[MASK]", "--top", "1")
    assert [line.strip() for line in out.splitlines()][1::2] == ["mask 1", "mask 2"]
    _, out, _ = call("fill-mask", MASKED, "[MASK]", "--json")
    answer = json.loads(out)
    assert [item["text"] for item in answer] == [MASKED, "[MASK]"]
    assert [len(found) for found in answer[0]["masks"]] == [5]
    assert set(answer[0]["masks"][0][0]) == {"token", "id", "probability", "text"}


def test_a_file_of_texts_to_a_file_and_to_standard_output(call, piped, tmp_path):
    data = f"{MASKED}\n雨[MASK]\n".encode()
    (tmp_path / "texts.txt.gz").write_bytes(gzip.compress(data))
    code, out, _ = call("fill-mask", "--input", tmp_path / "texts.txt.gz", "--output", tmp_path / "out.jsonl")
    assert (code, out) == (0, f"{tmp_path / 'out.jsonl'}: 2 lines\n")
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    for source in (tmp_path / "texts.txt.gz", "-"):
        piped(data)
        assert call("fill-mask", "--input", source)[:2] == (0, written)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["今天"], "expected [MASK] where a token is to be found, got '今天'"),
        ([], "Give either texts, or --input"),
        ([MASKED, "--input", "-"], "Give either texts, or --input"),
        ([MASKED, "--output", "x.jsonl"], "--output goes with --input"),
        ([MASKED, "--top", "0"], "top_k must be in 1 .. 773"),
        ([MASKED, "--max-length", "2"], "max_length must be at least 3"),
        (["--input", "nowhere.txt", "--output", "x.jsonl"], "nowhere.txt"),
    ],
)
def test_what_cannot_be_done_answers_2_and_says_why(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = call("fill-mask", *arguments)
    assert code == 2 and message in err and list(tmp_path.iterdir()) == []


def test_without_a_model_the_shelfs_is_taken_or_the_option_named(call, monkeypatch, tmp_path):
    monkeypatch.setattr(models, "_SHELF", tmp_path / "none")
    code, _, err = call("fill-mask", MASKED, model=None)
    assert code == 2 and "give --model" in err
    monkeypatch.setattr(models, "_SHELF", FOLDER)
    assert call("fill-mask", MASKED, model=None)[:2] == call("fill-mask", MASKED)[:2]


def test_the_shelf_is_that_of_the_checkout():
    assert models._SHELF == ROOT / "weights" / "nezha-tiny-chinese"


# ---- encode


def test_vectors_of_a_file(call, tmp_path):
    data = "\ufeff今天\r\n\r\n早\0上\r\n".encode() + b"\xff"
    (tmp_path / "texts.txt").write_bytes(data)
    code, out, err = call("encode", "--input", tmp_path / "texts.txt", "--output", tmp_path / "out.npy", "--json")
    assert code == 0 and json.loads(out) == {"output": str(tmp_path / "out.npy"), "lines": 4, "resumed_at": 0}
    assert "empty: 1 of 4 lines (2)" in err and "NUL characters, dropped: 1 of 4 lines (3)" in err
    assert "bytes that are not UTF-8, dropped: 1 of 4 lines (4)" in err
    truth = pipeline("encode", FOLDER)(["今天", "", "早上", ""])
    assert (np.load(tmp_path / "out.npy") == truth).all()


def test_each_option_reaches_the_encoder(call, piped, tmp_path):
    piped('{"a": "今天早上下雨"}\n{"a": "早"}\n'.encode())
    arguments = ("--field", "a", "--pooling", "cls", "--max-length", "4", "--tokens-per-batch", "5")
    code, out, err = call("encode", "--input", "-", "--output", "-", *arguments)
    truth = pipeline("encode", FOLDER, pooling="cls", max_length=4, tokens_per_batch=5)(["今天早上下雨", "早"])
    assert code == 0 and "1 texts were cut to 4 tokens" in err
    assert (np.array([json.loads(line)["vector"] for line in out.splitlines()], "float32") == truth).all()
    piped('{"a": "早"}'.encode())
    call("encode", "--input", "-", "--output", tmp_path / "out.npy", "--field", "a", "--dtype", "float16")
    assert np.load(tmp_path / "out.npy").dtype == np.float16
    piped('{"a": "早"}'.encode())
    code, _, err = call("encode", "--input", "-", "--output", tmp_path / "out.npy", "--field", "a")
    assert code == 2 and "is there already" in err
    piped('{"a": "早"}'.encode())
    assert call("encode", "--input", "-", "--output", tmp_path / "out.npy", "--field", "a", "--force")[0] == 0
    assert np.load(tmp_path / "out.npy").dtype == np.float32


def test_the_choices_are_those_of_the_encoder(capsys):
    from paddle_nezha.pipelines.encode import DTYPES, POOLINGS

    with pytest.raises(SystemExit):
        main(["encode", "--help"])
    out = capsys.readouterr().out
    assert all(f"{{{','.join(choices)}}}" in out for choices in (DTYPES, POOLINGS))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_stopped_command_says_what_it_keeps(tmp_path, number):
    (tmp_path / "texts.txt").write_text("今天早上下了一场小雨\n" * 20_000, encoding="utf-8")
    out = tmp_path / "out.npy"
    options = ["--model", FOLDER, "--input", tmp_path / "texts.txt", "--output", out, "--tokens-per-batch", "64"]
    command = [sys.executable, "-W", "ignore", "-m", "paddle_nezha", "encode", *map(str, options)]
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env={**os.environ, "PADDLE_NEZHA_TUNE": "0"})
    note = tmp_path / "out.npy.part.json"
    while child.poll() is None and not (note.exists() and json.loads(note.read_text())["lines"]):
        time.sleep(0.01)
    child.send_signal(number)
    err = child.communicate()[1].decode()
    assert child.returncode in (130, 143) and not out.exists()
    assert f"The first {json.loads(note.read_text())['lines']:,} lines are kept in {out}.part" in err
