"""Sentence vectors: what they are, in whatever company, and files of them that survive a kill."""

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import paddle_nezha
from paddle_nezha._paddle import paddle
from paddle_nezha.heads import NeZhaForMaskedLM, NeZhaForSequenceClassification
from paddle_nezha.model import NeZhaModel
from paddle_nezha.pipelines.encode import Encoder
from paddle_nezha.pipelines.lines import Source
from paddle_nezha.pipelines.models import identity
from paddle_nezha.tokenizer import NeZhaTokenizer
from weights.demo import FOLDER

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = (FOLDER / "sentences.txt").read_text(encoding="utf-8").splitlines()
# Float32, sums of at most 160 terms in 4 layers, taken in another order: measured 1.2e-6 on vectors of up to 3.
ROUNDING = 1e-5


@pytest.fixture(scope="module")
def parts():
    return NeZhaModel.from_pretrained(FOLDER), NeZhaTokenizer.from_pretrained(FOLDER)


@pytest.fixture
def encoder(parts):
    return lambda **options: Encoder(*parts, **options)


@pytest.fixture
def texts(tmp_path):
    """A file of many texts of mixed lengths, and what is in it."""
    draw = random.Random(3)
    rows = ["".join(draw.choices("".join(SENTENCES), k=draw.randrange(0, 40))) for _ in range(600)]
    (tmp_path / "texts.txt").write_text("\n".join(rows), encoding="utf-8")
    return tmp_path / "texts.txt", rows


def alone(parts, text, pooling):
    """By the definition, of one text without padding."""
    model, tokenizer = parts
    with paddle.no_grad():
        hidden, pooled = model(paddle.to_tensor([tokenizer(text)["input_ids"]]), return_dict=False)
    hidden = hidden.numpy()[0]
    return {"mean": hidden.mean(0), "cls": hidden[0], "pooled": pooled.numpy()[0]}[pooling]


@pytest.mark.parametrize("budget", [1, 64, 4096])
@pytest.mark.parametrize("pooling", ["mean", "cls", "pooled"])
def test_a_vector_is_what_the_text_gives_alone(parts, encoder, pooling, budget):
    given = ["", *SENTENCES[:9], "早" * 30]
    vectors = encoder(pooling=pooling, tokens_per_batch=budget)(given)
    truth = np.stack([alone(parts, text, pooling) for text in given])
    assert vectors.dtype == np.float32 and vectors.shape == (11, 64)
    assert np.abs(vectors - truth).max() <= ROUNDING
    assert np.abs(truth[1:] - truth[:-1]).max(1).min() > 100 * ROUNDING  # none is another's


def test_one_text_gives_one_vector(encoder):
    assert (encoder()("今天早上") == encoder()(["今天早上"])[0]).all()
    assert encoder()([]).shape == (0, 64)


def test_texts_are_cut_to_the_length_and_counted(encoder):
    encode = encoder(max_length=6)
    short, long = encode(["今天早上", "今天早上下雨"])
    assert encode.cut == 1 and np.abs(short - long).max() <= ROUNDING
    assert np.abs(encoder()("今天早上下雨") - long).max() > 100 * ROUNDING


def test_any_length_opens(encoder):
    encode = encoder(max_length=1000)
    assert np.isfinite(encode("雨" * 900)).all() and encode.cut == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "max"}, "pooling must be one of mean, cls, pooled"),
        ({"max_length": 2}, "max_length must be at least 3"),
        ({"tokens_per_batch": 0}, "tokens_per_batch must be at least 1"),
    ],
)
def test_impossible_options_are_refused(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        encoder(**options)


def test_absolute_positions_set_the_limit(build, parts):
    model = build(NeZhaModel, vocab_size=778, position_encoding="absolute", max_position_embeddings=20)
    assert Encoder(model, parts[1]).max_length == 20
    with pytest.raises(ValueError, match="max_length must be at most 20"):
        Encoder(model, parts[1], max_length=21)


def test_a_tokenizer_of_another_model_is_refused(build, parts):
    with pytest.raises(ValueError, match="778 tokens and the model 99: they do not belong together"):
        Encoder(build(NeZhaModel), parts[1])


# ---- opening


def test_the_pipeline_opens_a_folder_of_any_head(build, parts, tmp_path):
    build(NeZhaForSequenceClassification, vocab_size=778).save_pretrained(tmp_path)
    parts[1].save_pretrained(tmp_path)
    assert paddle_nezha.pipeline("encode", tmp_path, pooling="pooled")("早").shape == (32,)
    assert (paddle_nezha.pipeline("encode", model=FOLDER)("早") == Encoder(*parts)("早")).all()


def test_a_pooler_that_would_be_random_is_refused(build, parts, tmp_path):
    model = build(NeZhaForMaskedLM, vocab_size=778)
    arrays = {name: value.numpy() for name, value in model.state_dict().items() if "pooler" not in name}
    from paddle_nezha.checkpoint import safetensors

    arrays.pop("cls.predictions.decoder_weight")
    safetensors.write(tmp_path / "model.safetensors", arrays)
    model.config.save_pretrained(tmp_path)
    parts[1].save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds no pooler, which would be random: take pooling mean or cls"):
        paddle_nezha.pipeline("encode", tmp_path, pooling="pooled")
    assert paddle_nezha.pipeline("encode", tmp_path)("早").shape == (32,)


def test_another_task_is_refused():
    with pytest.raises(ValueError, match="expected a task out of fill-mask, encode, .*, but got 'fillmask'"):
        paddle_nezha.pipeline("fillmask")


NOT_TEXTS = [(None, "got None"), (3, "got 3"), (b"abc", "got b'abc'"), ({"text": "a"}, "got {'text': 'a'}")]


@pytest.mark.parametrize(("given", "got"), NOT_TEXTS)
@pytest.mark.parametrize("task", ["encode", "fill-mask"])
def test_what_is_no_text_is_refused(task, given, got):
    opened = paddle_nezha.pipeline(task, FOLDER)
    with pytest.raises(ValueError, match=f"expected a text or a list of texts, {re.escape(got)}"):
        opened(given)
    with pytest.raises(ValueError, match=f"text 2: expected a text, {re.escape(got)}"):
        opened(["[MASK]", given])


@pytest.mark.parametrize("task", ["encode", "fill-mask"])
def test_a_run_gives_the_model_that_it_left(parts, tmp_path, task):
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}" / "checkpoints").mkdir(parents=True)
        (tmp_path / f"seed-{seed}" / "run.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds a run, seed-0, that has left no model yet: the command that began it"):
        paddle_nezha.pipeline(task, tmp_path)
    run = tmp_path / "seed-1"
    with pytest.raises(ValueError, match=r"seed-1 is a run that has left no model yet: the command that began it"):
        paddle_nezha.pipeline(task, run)
    NeZhaForMaskedLM.from_pretrained(FOLDER).save_pretrained(run / "model")
    parts[1].save_pretrained(run / "model")
    with pytest.raises(ValueError, match="holds several models: name one of seed-1 in it"):
        paddle_nezha.pipeline(task, tmp_path)
    for folder in (run, run / "model"):
        assert paddle_nezha.pipeline(task, folder)("[MASK]") is not None


def test_a_full_folder_for_temporary_files_is_named(parts, monkeypatch):
    def full(self, folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(NeZhaTokenizer, "save_pretrained", full)
    with pytest.raises(OSError, match=f"No space left on device: '{re.escape(tempfile.gettempdir())}'"):
        identity(*parts)


# ---- files


@pytest.mark.parametrize("budget", [64, 4096])
def test_a_file_gives_the_bits_that_its_list_gives(encoder, texts, tmp_path, budget):
    path, rows = texts
    done = encoder(tokens_per_batch=budget).run(Source(path), tmp_path / "out.npy")
    vectors = np.load(tmp_path / "out.npy", mmap_mode="r")
    assert done.account.lines == len(rows) and vectors.dtype == np.float32
    assert (vectors == encoder(tokens_per_batch=budget)(rows)).all()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["out.npy", "texts.txt"]


def test_jsonl_holds_the_same_numbers(encoder, texts, tmp_path):
    path, rows = texts
    encoder().run(Source(path), tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [item["line"] for item in found] == list(range(1, len(rows) + 1))
    assert (np.array([item["vector"] for item in found], "float32") == encoder()(rows)).all()


def test_half_precision_is_the_rounded_vector(encoder, texts, tmp_path):
    path, rows = texts
    encoder().run(Source(path), tmp_path / "out.npy", dtype="float16")
    assert (np.load(tmp_path / "out.npy") == encoder()(rows).astype("float16")).all()


def test_an_empty_file_gives_no_rows(encoder, tmp_path):
    (tmp_path / "none.txt").write_bytes(b"")
    encoder().run(Source(tmp_path / "none.txt"), tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (0, 64)


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("out.txt", {}, "must end in .npy or .jsonl"),
        ("out.npy", {"dtype": "int8"}, "dtype must be one of float32, float16"),
        ("no/out.npy", {}, "There is no folder"),
    ],
)
def test_an_output_that_cannot_be_is_refused(encoder, texts, tmp_path, output, options, message):
    with pytest.raises((ValueError, OSError), match=message):
        encoder().run(Source(texts[0]), tmp_path / output, **options)
    assert [item.name for item in tmp_path.iterdir()] == ["texts.txt"]


def test_a_part_of_another_model_input_or_key_is_not_gone_on_with(build, encoder, parts, tmp_path):
    path, out = tmp_path / "texts.jsonl", tmp_path / "out.npy"
    rows = [{"text": sentence, "title": sentence[:3]} for sentence in SENTENCES * 4]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def stop(_):
        raise KeyboardInterrupt

    def once(given):
        encode._window = stop
        return window(given)

    encode = encoder(tokens_per_batch=64)
    encode._window, window = once, encode._window
    with pytest.raises(KeyboardInterrupt):
        encode.run(Source(path), out)
    (tmp_path / "other.txt").write_text("早", encoding="utf-8")
    others = {
        "model, sha256": (Encoder(build(NeZhaModel, vocab_size=778), parts[1], tokens_per_batch=64), Source(path)),
        "pooling": (encoder(pooling="cls", tokens_per_batch=64), Source(path)),
        "max length": (encoder(max_length=9, tokens_per_batch=64), Source(path)),
        "tokens per batch": (encoder(tokens_per_batch=65), Source(path)),
        "input, sha256": (encoder(tokens_per_batch=64), Source(tmp_path / "other.txt")),
        "key": (encoder(tokens_per_batch=64), Source(path, "title")),
    }
    for what, (other, source) in others.items():
        with pytest.raises(FileExistsError, match=f"begun with another {what} "):
            other.run(source, out)
    with pytest.raises(FileExistsError, match="another dtype .float32, now float16."):
        encoder(tokens_per_batch=64).run(Source(path), out, dtype="float16")
    assert encoder(tokens_per_batch=64).run(Source(path), out).resumed > 0
    assert (np.load(out) == encoder(tokens_per_batch=64)([row["text"] for row in rows])).all()


# ---- killed

CHILD = """
import sys
from paddle_nezha import pipeline
from paddle_nezha.pipelines.lines import Source
encode = pipeline("encode", sys.argv[1], tokens_per_batch=64)
print("ready", flush=True)
encode.run(Source(sys.argv[2]), sys.argv[3])
"""


def start(path, out):
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CHILD, str(FOLDER), str(path), str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout.readline() == b"ready\n"
    return child


def counted(out):
    try:
        return json.loads(Path(f"{out}.part.json").read_text())["lines"]
    except FileNotFoundError:
        return 0


def kill_and_go_on(path, out, waits):
    """Kills a run `wait` seconds after it went on, for each wait; then lets one end. Gives how often one was killed."""
    killed, before = 0, 0
    for wait in waits:
        child = start(path, out)
        while child.poll() is None and counted(out) == before:
            time.sleep(0.002)
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        child.stdout.close()
        assert counted(out) >= before or out.exists()
        before = counted(out)
        if out.exists():
            break
    if not out.exists():
        child = start(path, out)
        assert child.wait() == 0
        child.stdout.close()
    return killed


@pytest.mark.parametrize(
    ("lines", "kills"), [(800, 1), pytest.param(6000, 10, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_a_killed_run_goes_on_and_gives_the_same_bytes(encoder, tmp_path, lines, kills):
    draw = random.Random(lines)
    rows = ["".join(draw.choices("".join(SENTENCES), k=draw.randrange(0, 40))) for _ in range(lines)]
    path, out = tmp_path / "texts.txt", tmp_path / "out.npy"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    killed = kill_and_go_on(path, out, [draw.random() * 0.3 for _ in range(kills)])
    assert killed >= min(kills, 5)
    encoder(tokens_per_batch=64).run(Source(path), tmp_path / "whole.npy")
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["out.npy", "texts.txt", "whole.npy"]
