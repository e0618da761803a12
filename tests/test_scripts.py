"""The scripts of examples/, each in a process of its own, on small files made here."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "weights" / "nezha-seeded-demo"
SCRIPTS = ("classify", "tag", "answer", "choose")
# Beyond what the most frequent answer would reach: of two classes, three tags, three places, two or three choices.
LEARNT = {"classify": 0.8, "tag": 0.8, "answer": 0.5, "choose": 0.8}
WEATHER = ("下了一场小雨", "风一停就好了", "天气很好")
FOOD = ("热茶", "牛肉面", "点心")
PLACES = ("北京", "新疆", "海淀")


def classify(draw):
    label = draw.randrange(2)
    return f"{label}\t{('今天', '明天')[label]}{draw.choice(PLACES)}{draw.choice(WEATHER)}"


def tag(draw):
    place = draw.choice(PLACES)
    text = f"{place}{draw.choice(WEATHER)}"
    return "".join(f"{text[i]} {('B-LOC', 'I-LOC')[i] if i < 2 else 'O'}\n" for i in range(len(text)))


def answer(draw):
    place = draw.choice(PLACES)
    context = f"{draw.choice(('今天', '明天')) * draw.randrange(1, 4)}在{place}{draw.choice(WEATHER)}。"
    answers = [{"text": place, "answer_start": context.index(place)}]
    return {"context": context, "qas": [{"id": f"{draw.random()}", "question": "在哪里？", "answers": answers}]}


def choose(draw):
    place = draw.choice(PLACES)
    choices = [place, *draw.sample(FOOD, draw.randrange(1, 3))]
    draw.shuffle(choices)
    question = {"question": "在哪里？", "choice": choices, "answer": place}
    return [[f"今天在{place}{draw.choice(WEATHER)}。"], [question], f"{draw.random()}"]


def write(script, file, count, seed):
    """`count` examples in a layout that is in use: TSV, CoNLL, SQuAD, C3."""
    draw = random.Random(seed)
    rows = [{"classify": classify, "tag": tag, "answer": answer, "choose": choose}[script](draw) for _ in range(count)]
    text = {
        "classify": lambda: "label\ttext\n" + "".join(f"{row}\n" for row in rows),
        "tag": lambda: "\n".join(rows),
        "answer": lambda: json.dumps({"version": "1", "data": [{"title": "", "paragraphs": rows}]}),
        "choose": lambda: json.dumps(rows),
    }[script]()
    file.write_text(text, encoding="utf-8")
    return file


def run(script, folder, model, steps, *options):
    """The score that the script prints, and the folder it saved the model in."""
    suffix = {"classify": "tsv", "tag": "conll"}.get(script, "json")
    files = {
        "train": write(script, folder / f"train.{suffix}", 60, 1),
        "dev": write(script, folder / f"dev.{suffix}", 30, 2),
    }
    saved = folder / f"saved-{steps}"
    arguments = {"model": model, **files, "steps": steps, "rate": 2e-3, "save": saved}
    flags = [str(part) for name, value in arguments.items() for part in (f"--{name}", value)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{script}.py"), *flags, *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.fullmatch(r"dev (.*), saved in (.*)\n", done.stdout.splitlines(True)[-1])
    assert Path(found[2]) == saved
    return found[1], saved


def trained_and_reopened(script, folder, *options):
    score, saved = run(script, folder, DEMO, 20, *options)
    assert (saved / "model.safetensors").exists() and (saved / "vocab.txt").exists()
    assert run(script, folder, saved, 0, *options)[0] == score  # by a new process, from what was saved
    return float(score.split()[-1])


@pytest.mark.parametrize("script", SCRIPTS)
def test_twenty_steps_then_a_new_process_scores_the_same(script, tmp_path):
    assert trained_and_reopened(script, tmp_path) > LEARNT[script]


def test_classify_with_paddles_own_fit(tmp_path):
    assert trained_and_reopened("classify", tmp_path, "--way", "fit") > LEARNT["classify"]


@pytest.mark.oracle
def test_classify_with_paddlenlps_trainer(tmp_path):
    assert trained_and_reopened("classify", tmp_path, "--way", "trainer") > LEARNT["classify"]


def test_the_scripts_are_short_and_need_nothing_of_the_checkout():
    for script in SCRIPTS:
        text = (ROOT / "examples" / f"{script}.py").read_text(encoding="utf-8")
        assert len(text.splitlines()) < 100
        assert not re.search(r"^(from|import) (parity|torch_ref|tests|weights)", text, re.M)
