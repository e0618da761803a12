"""`paddle-nezha corpus` as a person calls it."""

import argparse
import json
from hashlib import sha256

import pytest

from paddle_nezha.commands import corpus as command
from paddle_nezha.training.corpus import CorpusError


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


@pytest.mark.parametrize("held_out, told", [(0, "no document, nothing"), (1, "one document, next sentence"), (2, None)])
def test_what_cannot_be_evaluated_is_told_of(call, tmp_path, tokenizer, held_out, told):
    # By the hash of their texts: shares below which the first, and the first two, of these documents are held out.
    texts = ["今天", "好", "去", "天气", "公园", "方向"]
    shares = sorted(int.from_bytes(sha256(text.encode()).digest()[:8], "big") / 2**64 for text in texts)
    path, out = tmp_path / "a.txt", tmp_path / "corpus"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    share = (shares[held_out - 1] + shares[held_out]) / 2 if held_out else 0
    arguments = ["--tokenizer", tokenizer, "--out", out, "--held-out", share, "--workers", 1, "--segmenter", "none"]
    for _, printed in (call("build", path, *arguments), call("show", out)):
        notes = [line for line in printed.splitlines() if line.startswith("note ")]
        assert len(notes) == (told is not None)
        assert not notes or (
            notes[0] == f"note     held_out has {told} cannot be evaluated on it: raise --held-out, or add text"
            or notes[0] == f"note     held_out has {told} can be evaluated on it: raise --held-out, or add text"
        )


def test_tokenizers_that_are_none(call, tmp_path, text, tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def build(given):
        return call("build", text, "--tokenizer", given, "--out", "corpus")

    with pytest.raises(CorpusError) as told:
        build("tokeniser")
    assert f"there is no {tmp_path / 'tokeniser'}, and 'tokeniser' is no published checkpoint" in str(told.value)
    with pytest.raises(CorpusError, match=r"vocab.txt is a file: --tokenizer tokenizer$"):
        build("tokenizer/vocab.txt")
    with pytest.raises(CorpusError, match=r"text.txt is a file: copy it as vocab.txt to a folder$"):
        build("text.txt")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("given, share", [("1%", 0.01), ("0.5%", 0.005), ("0.2", 0.2), ("0", 0.0)])
def test_shares(given, share):
    assert command._share(given) == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize("given", ["100%", "1", "-1%", "x", "", "%", "nan"])
def test_what_is_no_share(given):
    with pytest.raises(argparse.ArgumentTypeError, match="a share of at least 0 and below 1, such as 1% or 0.01"):
        command._share(given)
