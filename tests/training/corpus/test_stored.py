"""Corpora opened again: what they give, and what is said of those that are not whole."""

import json
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.corpus import Corpus, CorpusError, build_corpus
from paddle_nezha.training.corpus.stored import verify


@pytest.fixture
def corpus(tmp_path, text, tokenizer):
    build_corpus([text], tmp_path / "corpus", tokenizer, segmenter="none", shard_characters=10_000, held_out=0.1)
    return tmp_path / "corpus"


def test_what_a_corpus_says_of_itself(corpus, tokenizer):
    train, held_out = Corpus.open(corpus), Corpus.open(str(corpus), split="held_out")
    saved = NeZhaTokenizer.from_pretrained(train.tokenizer_folder)
    assert saved.get_vocab() == NeZhaTokenizer.from_pretrained(tokenizer).get_vocab()
    assert train.vocab_size == len(saved) and train.folder == corpus and held_out.split == "held_out"
    ids = [train.pad_id, train.unk_id, train.cls_id, train.sep_id, train.mask_id]
    assert ids == [saved.pad_token_id, saved.unk_token_id, saved.cls_token_id, saved.sep_token_id, saved.mask_token_id]
    assert train.n_documents + held_out.n_documents == 400
    assert train.n_tokens == sum(len(shard.tokens) for shard in train.shards)
    assert train.digest != held_out.digest and len(train.digest) == 64


def test_arrays_are_memory_maps_that_cannot_be_written(corpus):
    shard = Corpus.open(corpus).shards[0]
    assert [getattr(shard, name).dtype for name in ("tokens", "word_starts", "sentences", "documents")] == [
        np.uint16, np.uint8, np.int64, np.int64,
    ]  # fmt: skip
    assert isinstance(shard.tokens, np.memmap) and shard.tokens is shard.tokens
    with pytest.raises(ValueError, match="read-only"):
        shard.tokens[0] = 1
    assert (shard.word_starts[shard.sentences[:-1]] == 1).all()
    assert (np.diff(shard.sentences) > 0).all() and (np.diff(shard.documents) > 0).all()


def total(corpus):
    return sum(int(shard.tokens.sum(dtype=np.int64)) for shard in corpus.shards)


def test_pickles_are_small_and_open_in_other_processes(corpus):
    opened = Corpus.open(corpus)
    here = total(opened)
    assert len(pickle.dumps(opened)) < 10_000
    again = pickle.loads(pickle.dumps(opened))
    assert total(again) == here and again == opened
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(total, (opened,)) == here


def test_no_corpus(tmp_path, corpus):
    with pytest.raises(
        CorpusError, match="expected a corpus in .*nowhere, found no manifest.json there: make one with"
    ):
        Corpus.open(tmp_path / "nowhere")
    with pytest.raises(CorpusError, match="split to be one of train, held_out, got 'test'"):
        Corpus.open(corpus, "test")
    (corpus / "manifest.json").unlink()
    with pytest.raises(CorpusError, match="is unfinished: run the `paddle-nezha corpus build` that began it again"):
        Corpus.open(corpus)


def test_damaged_corpora(corpus):
    manifest = corpus / "manifest.json"
    whole = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**whole, "format": 99}))
    with pytest.raises(CorpusError, match="manifest.json in format 1, found 99: build the corpus again"):
        Corpus.open(corpus)
    manifest.write_text('{"format": 1, "spl')
    with pytest.raises(CorpusError, match="manifest.json cannot be read .*: remove it and build the corpus again"):
        Corpus.open(corpus)
    manifest.write_text(json.dumps(whole))
    with open(corpus / "train-00001.tokens.npy", "ab") as file:
        file.write(b"x")
    (corpus / "train-00000.documents.npy").unlink()
    shutil.rmtree(corpus / "tokenizer")
    with pytest.raises(
        CorpusError,
        match=r"damaged: train-00000.documents.npy is missing; train-00001.tokens.npy is [\d,]+ bytes long, "
        r"expected [\d,]+; "
        "tokenizer/vocab.txt is missing. Restore it",
    ):
        Corpus.open(corpus)


def test_verify_reads_every_byte(corpus, tokenizer):
    assert list(verify(corpus)) == []
    path = corpus / "train-00000.tokens.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    (corpus / "train-00001.word_starts.npy").unlink()
    with open(corpus / "tokenizer" / "vocab.txt", "a") as file:
        file.write("z\n")
    found = dict(verify(corpus))
    assert list(found) == ["train-00001.word_starts.npy", "train-00000.tokens.npy", "tokenizer"]
    assert found["train-00000.tokens.npy"].startswith("not of sha256")


@pytest.mark.parametrize(
    "name, place, value, told",
    [
        ("tokens", 1000, 59_999, "token 59999 of a vocabulary of"),
        ("sentences", 5, 2**40, "expected places that rise from 0 to"),
        ("sentences", -1, 2**40, "expected places that rise from 0 to"),
        ("documents", 1, 0, "expected places that rise from 0 to"),
    ],
)
def test_damage_that_leaves_the_size_is_told_of_when_a_shard_is_read(corpus, name, place, value, told):
    path = corpus / f"train-00001.{name}.npy"
    array = np.load(path)
    array[place] = value
    np.save(path, array)
    shard = Corpus.open(corpus).shards[1]
    with pytest.raises(
        CorpusError,
        match=rf"{path.name} is damaged \({told}.*: `paddle-nezha corpus show --verify {corpus}` names every file",
    ):
        getattr(shard, name)


@pytest.mark.parametrize("name", ["tokens", "word_starts", "sentences", "documents"])
@pytest.mark.parametrize("old, new", [(b"NUMPY", b"NUMPX"), (b"'shape': (", b"'shape': ["), (b"{", b"(")])
def test_a_damaged_header_is_told_of_when_a_shard_is_read(corpus, name, old, new):
    path = corpus / f"train-00000.{name}.npy"
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    shard = Corpus.open(corpus).shards[0]
    with pytest.raises(CorpusError, match=f"{path.name} is damaged") as told:
        getattr(shard, name)
    assert "pickle" not in str(told.value)


@pytest.mark.parametrize(
    "name, other", [("tokens", "<f2"), ("word_starts", "?"), ("sentences", "<f8"), ("documents", "<f8")]
)
def test_numbers_of_another_kind_are_told_of_when_a_shard_is_read(corpus, name, other):
    path = corpus / f"train-00000.{name}.npy"
    np.save(path, np.load(path).view(other))
    shard = Corpus.open(corpus).shards[0]
    with pytest.raises(CorpusError, match=rf"{path.name} is damaged \({np.dtype(other)} .* expected \d+ integers\)"):
        getattr(shard, name)


def test_the_digest_is_of_the_content(tmp_path, corpus, text, tokenizer):
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    assert Corpus.open(moved).digest == Corpus.open(corpus).digest
    build_corpus([text], tmp_path / "other", tokenizer, segmenter="none", shard_characters=9_000, held_out=0.1)
    assert Corpus.open(tmp_path / "other").digest != Corpus.open(corpus).digest
