"""`paddle-nezha corpus` as a person calls it."""

import argparse
import json

import pytest

from paddle_nezha.commands import corpus as command


@pytest.fixture
def call(capsys):
    """Runs a command: (exit code, stdout)."""

    def run(*arguments):
        parser = argparse.ArgumentParser()
        command.add(parser.add_subparsers())
        options = parser.parse_args([str(argument) for argument in ("corpus", *arguments)])
        return options.run(options), capsys.readouterr().out

    return run


def test_build_and_show(call, tmp_path, text, tokenizer):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('no json\n{"body": "今天 abc。去abc"}\n', encoding="utf-8")
    out = tmp_path / "corpus"
    arguments = ["build", bad, text, "--tokenizer", tokenizer, "--out", out, "--held-out", "5%", "--workers", 1]
    code, told = call(*arguments, "--segmenter", "none", "--text-field", "body")
    assert code == 0
    assert told.startswith(f"read     2 files, {bad.stat().st_size + text.stat().st_size:,} bytes\ntrain    ")
    assert f"note     1 JSONL lines that are no JSON object, left out: {bad}:1\n" in told
    assert "2 shards made, 0 were there; digest " in told
    code, told = call("show", out, "--verify")
    assert code == 0
    assert "words    none\n" in told and "checked  every file is as built\n" in told
    assert f"source   {bad}: {bad.stat().st_size} bytes, 1 documents\n" in told
    assert "sentence 今|天|a ##b ##c|。\nsentence 去|a ##b ##c\n" in told
    code, told = call("show", out, "--json")
    assert json.loads(told)["splits"]["train"]["documents"] > 350
    (out / "train-00000.tokens.npy").write_bytes(b"")
    code, told = call("show", out, "--verify")
    assert code == 1 and "WRONG    train-00000.tokens.npy: 0 bytes long, expected" in told
    code, told = call("show", out, "--verify", "--json")
    assert code == 1 and list(json.loads(told)["wrong"]) == ["train-00000.tokens.npy"]


def test_build_as_json(call, tmp_path, text, tokenizer):
    code, told = call(
        "build", text, "--tokenizer", tokenizer, "--out", tmp_path / "corpus", "--segmenter", "none", "--json",
        "--workers", 1,
    )  # fmt: skip
    report = json.loads(told)
    assert code == 0 and report["built"] == 2 and report["splits"]["held_out"]["documents"] > 0


@pytest.mark.parametrize("given, share", [("1%", 0.01), ("0.5%", 0.005), ("0.2", 0.2), ("0", 0.0)])
def test_shares(given, share):
    assert command._share(given) == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize("given", ["100%", "1", "-1%", "x", "", "%", "nan"])
def test_what_is_no_share(given):
    with pytest.raises(argparse.ArgumentTypeError, match="a share of at least 0 and below 1, such as 1% or 0.01"):
        command._share(given)
