"""The shelf's checkpoint is what its recipe makes, and opens everywhere."""

import filecmp

import numpy as np
import pytest

import paddle_nezha
from parity.subject import paddle_load
from weights import demo
from weights.__main__ import MADE, main


def test_the_recipe_gives_the_very_files_on_the_shelf(tmp_path, capsys):
    demo.make(tmp_path)
    assert filecmp.cmpfiles(demo.FOLDER, tmp_path, MADE, shallow=False) == (list(MADE), [], [])
    assert main(["check"]) == 0 and "is what its recipe makes" in capsys.readouterr().out


def test_a_changed_file_is_found(tmp_path, monkeypatch, capsys):
    demo.make(tmp_path)
    (tmp_path / "vocab.txt").write_text("x\n", encoding="utf-8")
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    assert main(["check"]) == 1
    assert "part in: vocab.txt" in capsys.readouterr().err


def test_paddle_itself_reads_the_file_as_our_reader_does():
    file = demo.FOLDER / "model_state.pdparams"
    theirs, ours = paddle_load(file), paddle_nezha.checkpoint.pdparams.read(file)
    assert list(theirs) == list(ours)
    for name, array in ours.items():
        np.testing.assert_array_equal(theirs[name], array)


def test_the_vocabulary_knows_every_character_of_its_sentences():
    tokenizer = paddle_nezha.NeZhaTokenizer.from_pretrained(demo.FOLDER)
    text = (demo.FOLDER / demo.SENTENCES).read_text(encoding="utf-8")
    assert tokenizer.unk_token_id not in tokenizer(text.replace("\n", " "))["input_ids"]
    assert [tokenizer.convert_tokens_to_ids(word) for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == [
        0,
        100,
        101,
        102,
        103,
    ]


def test_some_sentences_reach_beyond_the_clip_of_the_table():
    tokenizer = paddle_nezha.NeZhaTokenizer.from_pretrained(demo.FOLDER)
    lines = (demo.FOLDER / demo.SENTENCES).read_text(encoding="utf-8").split("\n")
    lengths = [len(tokenizer(line)["input_ids"]) for line in lines if line]
    assert max(lengths) > 128 and min(lengths) < 8 and len(lengths) == 60


@pytest.mark.parametrize("line", ["今天早上下了一场小雨。", "H2O ＡＢＣ 26℃"])
def test_it_reads_text(line):
    model, tokenizer = paddle_nezha.load(demo.FOLDER), paddle_nezha.NeZhaTokenizer.from_pretrained(demo.FOLDER)
    words, relation = model(**tokenizer(line, return_tensors="pd"))
    assert list(words.shape)[2] == 778 and list(relation.shape) == [1, 2] and np.isfinite(words.numpy()).all()
