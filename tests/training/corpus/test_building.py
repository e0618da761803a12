"""Builds: what they hold, whoever made them, however often they were stopped."""

import errno
import os
import random
import resource
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from corpus_texts import content, written

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.corpus import Corpus, CorpusError, build_corpus, texts
from paddle_nezha.training.corpus.words import Segmenter, WordTokenizer

SMALL = {"segmenter": "none", "shard_characters": 2000, "held_out": 0.1, "progress": False}


def documents_of(corpus):
    """Every document: a list of (token ids, word starts) of its sentences."""
    found = []
    for shard in corpus.shards:
        assert shard.sentences[-1] == len(shard.tokens) == len(shard.word_starts) == shard.n_tokens
        assert shard.documents[-1] == len(shard.sentences) - 1 == shard.n_sentences
        assert len(shard.documents) - 1 == shard.n_documents
        for first, end in zip(shard.documents, shard.documents[1:]):
            bounds = shard.sentences[first : end + 1]
            found.append(
                [(shard.tokens[a:b].tolist(), shard.word_starts[a:b].tolist()) for a, b in zip(bounds, bounds[1:])]
            )
    return found


def rows(words, sentences):
    tokens, starts, lengths = words(sentences)
    ends = np.cumsum(lengths)
    return [(tokens[b - n : b].tolist(), starts[b - n : b].tolist()) for b, n in zip(ends, lengths)]


def expected(path, tokenizer):
    words = WordTokenizer(NeZhaTokenizer.from_pretrained(tokenizer), Segmenter("none"))
    texts = path.read_text(encoding="utf-8").split("\n\n")
    return [rows(words, document.strip("\n").split("\n")) for document in texts]


def test_every_document_is_there_in_order_and_in_one_split(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    report = build_corpus([text], out, tokenizer, **SMALL)
    splits = {split: Corpus.open(out, split) for split in ("train", "held_out")}
    every = expected(text, tokenizer)
    train, held_out = (documents_of(splits[split]) for split in splits)
    order = {str(document): number for number, document in enumerate(every)}
    places = [[order[str(document)] for document in part] for part in (train, held_out)]
    assert places[0] == sorted(places[0]) and places[1] == sorted(places[1])
    assert sorted(places[0] + places[1]) == list(range(400))
    assert 20 <= len(held_out) <= 60  # 40 expected, standard deviation 6
    for split, corpus in splits.items():
        counts = report.splits[split]
        assert (counts["documents"], counts["sentences"], counts["tokens"]) == (
            corpus.n_documents,
            corpus.n_sentences,
            corpus.n_tokens,
        )
        assert counts["words"] == sum(int(shard.word_starts.sum()) for shard in corpus.shards)
    assert report.splits["train"]["one_sentence_documents"] == sum(len(document) == 1 for document in train)
    assert len(splits["train"].shards) > 12 and report.kept == 0
    assert report.splits["train"]["characters"] + report.splits["held_out"]["characters"] == len(
        text.read_text(encoding="utf-8").replace("\n", "")
    )


def test_shards_hold_what_was_asked_for(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    build_corpus([text], out, tokenizer, **SMALL)
    manifest = Corpus.open(out).manifest
    sizes = [shard["characters"] for shard in manifest["splits"]["train"]["shards"]]
    assert max(sizes) <= 2000 and np.mean(sizes) > 1700


def test_equal_documents_fall_on_one_side(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"{written(seed, 1)}\n" * 3 for seed in range(100)), encoding="utf-8")
    build_corpus([path], tmp_path / "corpus", tokenizer, **{**SMALL, "held_out": 0.5})
    train, held_out = (
        {str(document) for document in documents_of(Corpus.open(tmp_path / "corpus", split))}
        for split in ("train", "held_out")
    )
    assert train and held_out and not train & held_out and len(train | held_out) == 100


@pytest.mark.parametrize("workers", [2, 3])
def test_the_bytes_do_not_depend_on_the_workers(tmp_path, text, tokenizer, workers):
    build_corpus([text], tmp_path / "one", tokenizer, **SMALL)
    report = build_corpus([text], tmp_path / "more", tokenizer, workers=workers, **SMALL)
    assert content(tmp_path / "more") == content(tmp_path / "one")
    assert report.kept == 0 and report.digest == Corpus.open(tmp_path / "one").digest


def test_a_second_run_does_nothing_again(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    first = build_corpus([text], out, tokenizer, **SMALL)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file() and path.name != ".lock"}
    again = build_corpus([text], out, tokenizer, **SMALL)
    assert (again.built, again.kept) == (0, first.built)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (again.splits, again.digest, again.problems) == (first.splits, first.digest, first.problems)


def wait_for_shards(out, count, process):
    while len(list(out.glob("*-*.json"))) < count and process.poll() is None:
        time.sleep(0.005)


def kill_and_resume(tmp_path, text, tokenizer, started, kills, seed):
    options = {"sources": [text], "tokenizer": tokenizer, **SMALL}
    options.pop("progress")
    build_corpus([text], tmp_path / "whole", tokenizer, **SMALL)
    out, draw, killed = tmp_path / "corpus", random.Random(seed), 0
    for number in range(kills):
        process = started(**options, out=out, workers=1 + number % 2)
        wait_for_shards(out, 1 + number * 14 // kills, process)
        time.sleep(draw.uniform(0, 0.05))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        if (
            process.returncode == -signal.SIGKILL
            and not (out / "manifest.json").exists()
            and (out / "build.json").exists()
        ):
            with pytest.raises(CorpusError, match="is unfinished: run the .* again"):
                Corpus.open(out)
    process = started(**options, out=out, workers=2)
    told, errors = process.communicate()
    built, kept = map(int, told.split())
    assert errors == "" and kept > 0
    assert content(out) == content(tmp_path / "whole")
    return killed


def test_killed_and_resumed_it_is_the_same(tmp_path, text, tokenizer, started):
    assert kill_and_resume(tmp_path, text, tokenizer, started, kills=2, seed=1) == 2


@pytest.mark.slow
def test_killed_twenty_times(tmp_path, text, tokenizer, started):
    assert kill_and_resume(tmp_path, text, tokenizer, started, kills=20, seed=2) >= 15


def children(pid):
    """Processes that were started by one, by their ids (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except (OSError, ValueError):
                continue
    return found


def is_running(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")


@needs_proc
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_a_build(tmp_path, text, tokenizer, started, stop):
    if stop != signal.SIGKILL and signal.getsignal(stop) == signal.SIG_IGN:
        pytest.skip("whoever started the tests has this signal ignored, and children inherit that")
    out, long = tmp_path / "corpus", tmp_path / "long.txt"
    long.write_text(text.read_text("utf-8") * 40, "utf-8")  # for seconds of work, of which the signal meets the first
    process = started(sources=[long], out=out, tokenizer=tokenizer, workers=2, segmenter="none", shard_characters=400)
    wait_for_shards(out, 5, process)
    workers = children(process.pid)
    assert len(workers) == 2
    if stop == signal.SIGINT:
        os.killpg(process.pid, stop)  # as a terminal does
    else:
        process.send_signal(stop)
    _, errors = process.communicate()
    assert process.returncode != 0
    assert ("Traceback" in errors) == (stop == signal.SIGINT)  # the parent's KeyboardInterrupt alone
    assert errors.count("Traceback") <= 1
    for _ in range(200):
        if not any(map(is_running, workers)):
            break
        time.sleep(0.05)
    assert not any(map(is_running, workers))
    if stop != signal.SIGKILL:
        assert list(out.glob(".*.tmp")) == []


@needs_proc
def test_a_worker_that_dies_is_told_of(tmp_path, text, tokenizer, started):
    out, long = tmp_path / "corpus", tmp_path / "long.txt"
    long.write_text(text.read_text("utf-8") * 40, "utf-8")  # for seconds of work, of which the signal meets the first
    process = started(sources=[long], out=out, tokenizer=tokenizer, workers=2, segmenter="none", shard_characters=400)
    wait_for_shards(out, 5, process)
    workers = children(process.pid)
    os.kill(workers[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith(
        "a worker process died (exit code -9; -9 is often a lack of memory). What is finished is kept"
    )
    assert not any(map(is_running, workers))


def test_two_builds_at_once(tmp_path, text, tokenizer, started):
    out = tmp_path / "corpus"
    process = started(sources=[text], out=out, tokenizer=tokenizer, segmenter="none", shard_characters=500)
    wait_for_shards(out, 2, process)
    with pytest.raises(CorpusError, match="another build is at work in .*: wait until it has ended"):
        build_corpus([text], out, tokenizer, segmenter="none", shard_characters=500)
    process.kill()
    process.communicate()
    build_corpus([text], out, tokenizer, segmenter="none", shard_characters=500)  # a lock does not outlive its holder


def test_another_build_is_refused_with_what_differs(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    build_corpus([text], out, tokenizer, **SMALL)
    before = content(out)
    with pytest.raises(
        CorpusError, match="another build: held_out 0.1 there, 0.2 now; shard_characters 2000 there, 30"
    ):
        build_corpus([text], out, tokenizer, **{**SMALL, "held_out": 0.2, "shard_characters": 3000})
    more = tmp_path / "more.txt"
    more.write_text("今天\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="1 sources there, 2 now. Name another --out, or replace .* --force"):
        build_corpus([text, more], out, tokenizer, **SMALL)
    with open(tokenizer / "vocab.txt", "a") as file:
        file.write("z\n")
    with pytest.raises(CorpusError, match="another build: tokenizer '[0-9a-f]{64}' there"):
        build_corpus([text], out, tokenizer, **SMALL)
    assert content(out) == before
    build_corpus([more], out, tokenizer, force=True, **SMALL)
    build_corpus([more], tmp_path / "fresh", tokenizer, **SMALL)
    assert content(out) == content(tmp_path / "fresh")


def test_changed_text_of_the_same_size_is_built_again(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    first = build_corpus([text], out, tokenizer, **SMALL)
    whole = text.read_text(encoding="utf-8")
    text.write_text(whole[:-200].rstrip("\n") + whole[-200:][::-1].replace("\n", "今").ljust(0), encoding="utf-8")
    size = len(whole.encode())
    now = text.read_bytes()
    text.write_bytes(now[:size].ljust(size, b"a"))
    again = build_corpus([text], out, tokenizer, **SMALL)
    assert again.digest != first.digest and again.kept >= first.built - 3
    build_corpus([text], tmp_path / "fresh", tokenizer, **SMALL)
    assert content(out) == content(tmp_path / "fresh")


def test_a_damaged_shard_is_made_again(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    build_corpus([text], out, tokenizer, **SMALL)
    before = content(out)
    (out / "train-00003.tokens.npy").unlink()
    (out / "train-00005.json").write_text("{")
    (out / "train-00007.word_starts.npy").write_bytes(b"short")
    (out / ".train-00001.json.0123.tmp").write_bytes(b"left behind")
    assert build_corpus([text], out, tokenizer, **SMALL).built == 3
    assert content(out) == before


def test_what_vanishes_in_the_tokenizer_is_counted(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("今天\n\u200b\n好\n\n\u200b\n\u0007\n\n去\n\n\u200b\n", encoding="utf-8")
    report = build_corpus([path], tmp_path / "corpus", tokenizer, held_out=0, segmenter="none")
    counts = report.splits["train"]
    assert (counts["documents"], counts["sentences"], counts["empty_documents"], counts["empty_sentences"]) == (
        2,
        3,
        2,
        4,
    )
    assert counts["one_sentence_documents"] == 1
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.shards[0].documents.tolist() == [0, 2, 3] and corpus.shards[0].sentences.tolist() == [0, 2, 3, 4]
    with pytest.raises(CorpusError, match="no document in its split 'held_out'"):
        Corpus.open(tmp_path / "corpus", "held_out")


def test_nothing_usable(tmp_path, tokenizer):
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "bad.jsonl").write_text("no json\n")
    (tmp_path / "gone.txt").write_text("\u200b\n")
    for named in ([], [tmp_path / "blank.txt", tmp_path / "bad.jsonl"], [tmp_path / "gone.txt"]):
        with pytest.raises(CorpusError, match="found no document.*: name .txt files with one sentence a line") as told:
            build_corpus(named, tmp_path / "corpus", tokenizer, segmenter="none")
    with pytest.raises(CorpusError, match=r"not_json 1 \(.*bad.jsonl:1\)"):
        build_corpus([tmp_path / "bad.jsonl"], tmp_path / "corpus", tokenizer, segmenter="none")
    assert told is not None


def test_where_a_corpus_cannot_be(tmp_path, text, tokenizer):
    with pytest.raises(CorpusError, match="is a file: name another --out"):
        build_corpus([text], text, tokenizer, **SMALL)
    with pytest.raises(CorpusError, match="holds vocab.txt: name another --out"):
        build_corpus([text], tokenizer, tokenizer, force=True, **SMALL)
    with pytest.raises(CorpusError, match=r"held_out in \[0, 1\).*got 1.5"):
        build_corpus([text], tmp_path / "corpus", tokenizer, held_out=1.5)
    with pytest.raises(CorpusError, match="expected workers of at least 1, got 0"):
        build_corpus([text], tmp_path / "corpus", tokenizer, workers=0)
    assert not (tmp_path / "corpus").exists()


def test_a_corpus_inside_its_sources_is_not_read(tmp_path, text, tokenizer):
    folder = tmp_path / "texts"
    folder.mkdir()
    text.rename(folder / "a.txt")
    first = build_corpus([folder], folder / "corpus", tokenizer, **SMALL)
    assert build_corpus([folder], folder / "corpus", tokenizer, **SMALL).kept == first.built
    assert (first.sources, first.problems) == (1, {})


def test_same_content_under_two_names(tmp_path, text, tokenizer):
    other = tmp_path / "other.txt"
    other.write_bytes(text.read_bytes())
    report = build_corpus([text, other], tmp_path / "corpus", tokenizer, **SMALL)
    assert report.problems == {"same_content": {"count": 1, "examples": [f"{other}: as {text}"]}}


@pytest.mark.parametrize(
    "code, said", [(errno.ENOSPC, "disk of .* is full: make room and run"), (errno.EIO, "no luck")]
)
def test_a_disk_that_is_full(tmp_path, text, tokenizer, monkeypatch, code, said):
    def refuse(*_, **__):
        raise OSError(code, "no luck")

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array_header_1_0", refuse)
        with pytest.raises((CorpusError, OSError), match=said):
            build_corpus([text], tmp_path / "corpus", tokenizer, **SMALL)
    assert list((tmp_path / "corpus").glob("train-*")) == list((tmp_path / "corpus").glob(".*.tmp")) == []
    assert build_corpus([text], tmp_path / "corpus", tokenizer, **SMALL).built > 12


def test_a_write_that_fails_says_why(tmp_path, text, tokenizer):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, limits[1]))
    try:
        with pytest.raises(OSError) as told:
            build_corpus([text], tmp_path / "corpus", tokenizer, segmenter="none", progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert told.value.errno == errno.EFBIG and told.value.filename.endswith("-00000.tokens.npy")


def test_a_source_that_is_not_there_is_told_of_before_anything_is_built(tmp_path, text, tokenizer):
    with pytest.raises(CorpusError, match=r"can be read, got .*typo\.txt: No such file"):
        build_corpus([text, tmp_path / "typo.txt"], tmp_path / "corpus", tokenizer, **SMALL)
    assert content(tmp_path / "corpus") == {}


def in_gb18030(text):
    path = text.with_name("foreign.txt")
    path.write_bytes(text.read_text(encoding="utf-8").encode("gb18030"))
    return path


def test_another_encoding_is_told_of_before_anything_is_built(tmp_path, text, tokenizer):
    with pytest.raises(CorpusError, match=r"UTF-8 in .*foreign\.txt \(\d+ of its first \d+ lines"):
        build_corpus([text, in_gb18030(text)], tmp_path / "corpus", tokenizer, **SMALL)
    assert content(tmp_path / "corpus") == {}


def test_another_encoding_beyond_the_beginning_leaves_the_folder_free(tmp_path, text, tokenizer, monkeypatch):
    monkeypatch.setattr(texts, "_SAMPLE_LINES", 5)
    out = tmp_path / "corpus"
    with pytest.raises(CorpusError, match=r"UTF-8 in .*foreign\.txt \(\d,\d+ of its \d,\d+ lines"):
        build_corpus([text, in_gb18030(text)], out, tokenizer, **SMALL)
    assert content(out) == {}
    build_corpus([text], out, tokenizer, **SMALL)
    build_corpus([text], tmp_path / "fresh", tokenizer, **SMALL)
    assert content(out) == content(tmp_path / "fresh")


def test_another_encoding_leaves_a_finished_corpus(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    build_corpus([text], out, tokenizer, **SMALL)
    before = content(out)
    text.write_bytes(in_gb18030(text).read_bytes().ljust(text.stat().st_size, b"\n"))
    with pytest.raises(CorpusError, match="iconv -f GB18030"):
        build_corpus([text], out, tokenizer, **SMALL)
    assert content(out) == before


def test_work_on_sources_that_may_come_back_is_kept(tmp_path, text, tokenizer, monkeypatch):
    out = tmp_path / "corpus"
    first = build_corpus([text], out, tokenizer, **SMALL)
    (out / "manifest.json").unlink()

    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(texts.io, "FileIO", refuse)
        with pytest.raises(CorpusError, match="found no document.*Input/output error"):
            build_corpus([text], out, tokenizer, **SMALL)
    assert build_corpus([text], out, tokenizer, **SMALL).kept == first.built


def test_something_must_be_left_to_train_on(tmp_path, tokenizer):
    path, out = tmp_path / "a.txt", tmp_path / "corpus"
    path.write_text("今天\n\n好\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"all documents were held out \(2, with --held-out 99\.9900%\).*: lower"):
        build_corpus([path], out, tokenizer, **{**SMALL, "held_out": 0.9999})
    assert content(out) == {}
    report = build_corpus([path], out, tokenizer, **{**SMALL, "held_out": 0})
    assert report.splits["train"]["documents"] == 2


def test_what_a_worker_raises_arrives(tmp_path, text, tokenizer):
    out = tmp_path / "corpus"
    build_corpus([text], out, tokenizer, **SMALL)
    (out / "train-00002.json").unlink()
    (out / "tokenizer" / "vocab.txt").unlink()
    with pytest.raises(OSError, match="expected vocab.txt in"):
        build_corpus([text], out, tokenizer, workers=2, **SMALL)
