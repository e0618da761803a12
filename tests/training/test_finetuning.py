"""Fine-tuning: every task learns, stops and goes on, and refuses bad files before anything is trained."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from paddle_nezha import NeZhaConfig, NeZhaForPretraining, NeZhaTokenizer, load
from paddle_nezha._paddle import paddle
from paddle_nezha.cli import main
from paddle_nezha.training import checkpoints, runs
from paddle_nezha.training.data.readers import read, texts_of
from paddle_nezha.training.engine import Engine
from paddle_nezha.training.finetuning import trainer
from paddle_nezha.training.finetuning.objective import TaskObjective
from paddle_nezha.training.finetuning.settings import METRICS, PRESETS, FinetuneSettings
from paddle_nezha.training.finetuning.tasks import KINDS, Facts, class_names
from paddle_nezha.training.finetuning.trainer import finetune, read_result
from paddle_nezha.training.metrics import read_metrics
from paddle_nezha.training.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "weights" / "nezha-seeded-demo"
COMMAND = [sys.executable, "-m", "paddle_nezha", "finetune"]
GOOD, BAD = "好", "坏"
FILL = "今天我们去公园看书他很早上课天气大"


def texts(rng, count):
    """Texts of which every one holds one of two characters, which says its class."""
    for _ in range(count):
        label = int(rng.integers(2))
        text = list(rng.choice(list(FILL), rng.integers(3, 12)))
        text.insert(int(rng.integers(len(text))), "早" if label else "公")
        text = [character for character in text if character not in ("公" if label else "早")]
        yield "".join(text), ("pos" if label else "neg")


def write_sentences(file, rng, count):
    file.write_text("label\ttext_a\n" + "".join(f"{label}\t{text}\n" for text, label in texts(rng, count)), "utf-8")


def write_pairs(file, rng, count):
    rows = []
    for text, label in texts(rng, count):
        rows.append(f"{text}\t{text if label == 'pos' else '课课课'}\t{label}\n")
    file.write_text("text_a\ttext_b\tlabel\n" + "".join(rows), "utf-8")


def write_tokens(file, rng, count):
    blocks = []
    for text, _ in texts(rng, count):
        tags = ["B-LOC" if character in "公早" else "O" for character in text]
        blocks.append("".join(f"{character} {tag}\n" for character, tag in zip(text, tags)))
    file.write_text("\n".join(blocks), "utf-8")


def write_spans(file, rng, count):
    paragraphs = []
    for number, (text, _) in enumerate(texts(rng, count)):
        place = next(i for i, character in enumerate(text) if character in "公早")
        answer = {"text": text[place], "answer_start": place}
        paragraphs.append({"context": text, "qas": [{"id": str(number), "question": "看书", "answers": [answer]}]})
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False), "utf-8")


def write_choices(file, rng, count):
    entries = []
    for number, (text, _) in enumerate(texts(rng, count)):
        choices = ["早", "公"] if rng.integers(2) else ["公", "早"]
        answer = next(choice for choice in choices if choice in text)
        entries.append([[text], [{"question": "看书", "choice": choices, "answer": answer}], str(number)])
    file.write_text(json.dumps(entries, ensure_ascii=False), "utf-8")


WRITERS = {
    "sentence": write_sentences,
    "pair": write_pairs,
    "token": write_tokens,
    "span": write_spans,
    "choice": write_choices,
}


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """A small new model with the shelf's vocabulary."""
    folder = tmp_path_factory.mktemp("start")
    tokenizer = NeZhaTokenizer.from_pretrained(DEMO)
    paddle.seed(3)
    config = NeZhaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
    )
    NeZhaForPretraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def plain(start, tmp_path):
    """The same without dropout."""
    plain = tmp_path / "plain"
    model = NeZhaForPretraining.from_pretrained(start, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model.config.classifier_dropout = 0.0
    model.save_pretrained(plain)
    NeZhaTokenizer.from_pretrained(start).save_pretrained(plain)
    return plain


@pytest.fixture
def settings(start, tmp_path):
    """A factory of settings with generated files: ``settings("sentence", epochs=2)``."""

    def make(task="sentence", rows=40, **changes):
        for number, split in enumerate(("train", "dev", "test")):
            file = tmp_path / f"{task}.{split}"
            if not file.exists():
                WRITERS[task](file, np.random.default_rng(number), rows if split == "train" else rows // 2)
        given = {
            "task": task,
            "model": str(start),
            "train": str(tmp_path / f"{task}.train"),
            "dev": str(tmp_path / f"{task}.dev"),
            "output": str(tmp_path / "run"),
            "max_length": 48,
            "batch_size": 8,
            "epochs": 2,
            "learning_rate": 2e-3,
            "curves": False,
            **changes,
        }
        return FinetuneSettings(**given)

    return make


def losses(run):
    """Everything a run measured, but for times."""
    timed = ("seconds", "tokens_per_second")
    return [{key: value for key, value in line.items() if key not in timed} for line in read_metrics(Path(run))]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def flags(settings, **changes):
    """The command line of settings."""
    values = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    values.update(changes)
    task = values.pop("task")
    told = [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None]
    return [task, *told]


# ---- every task


@pytest.mark.parametrize("task", KINDS)
def test_every_task_learns_and_its_model_answers_in_a_new_process(task, settings, tmp_path):
    """Far above chance after some hundred steps; the reopened model gives the same predictions."""
    result = finetune(
        settings(task, rows=160, epochs=12, test=str(tmp_path / f"{task}.test"), learning_rate=5e-3, patience=4)
    )
    assert result.dev[METRICS[task][0]] > 0.75 and result.test[METRICS[task][0]] > 0.75
    run = tmp_path / "run"
    rows = [json.loads(line) for line in (run / "test.predictions.jsonl").read_text("utf-8").splitlines()]
    assert [row["index"] for row in rows] == list(range(80)) and all("prediction" in row for row in rows)
    assert Facts.read(run / "model").task == task
    assert not (run / "checkpoints").exists() and not list(run.glob("best-*"))
    code = f"""
import json, sys
from pathlib import Path
from paddle_nezha import NeZhaTokenizer, load
from paddle_nezha.training.data.readers import read, texts_of
from paddle_nezha.training.finetuning.predicting import answers
from paddle_nezha.training.finetuning.tasks import KINDS, Facts
from paddle_nezha.training.processes import Processes
facts = Facts.read({str(run / "model")!r})
task = KINDS[facts.task](facts, NeZhaTokenizer.from_pretrained({str(run / "model")!r}))
model = task.head.from_pretrained({str(run / "model")!r})
records = list(read(facts.task, {str(tmp_path / f"{task}.test")!r}, labels=facts.names))
made, _ = task.features(records)
rows = task.rows(records, made, answers(task, task.objective(model), made, 512, Processes(0, 1, False)))
print(json.dumps([row["prediction"] for row in rows]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [row["prediction"] for row in rows]


def test_the_head_of_the_saved_model_knows_its_classes(settings, tmp_path):
    finetune(settings(epochs=1))
    model = load(tmp_path / "run" / "model")
    assert model.config.id2label == {0: "neg", 1: "pos"} and model.config.label2id == {"neg": 0, "pos": 1}


# ---- stopped, and taken up again


@pytest.fixture
def interrupted(monkeypatch):
    """Trains, and stops as Ctrl-C does before the step that would follow so many lines of metrics.jsonl."""

    def run(chosen, lines):
        made = Engine.step

        def dies(self, *arguments):
            if len(losses(chosen.output)) == lines:
                raise KeyboardInterrupt
            return made(self, *arguments)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Engine, "step", dies)
            finetune(chosen)

    return run


def test_a_run_goes_on_bit_for_bit(settings, tmp_path, interrupted, caplog):
    finetune(settings(epochs=3, output=str(tmp_path / "whole")))
    interrupted(settings(epochs=3, checkpoint_every=2), lines=8)  # five steps, an evaluation, two steps
    with caplog.at_level("INFO", "paddle_nezha"):
        again = finetune(settings(epochs=3, checkpoint_every=2))
    assert f"{tmp_path / 'run'} goes on from step 6 of 15." in caplog.messages
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert again.dev == finetune(settings(epochs=3, output=str(tmp_path / "whole"))).dev
    for name in ("dev.predictions.jsonl", "result.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def _kill_at_random(settings, tmp_path, kills, seed):
    whole = settings(epochs=6, checkpoint_every=3, output=str(tmp_path / "whole"))
    finetune(whole)
    command = [*COMMAND, *flags(whole, output=str(tmp_path / "killed"))]
    draw, killed = random.Random(seed), 0
    for _ in range(kills):
        before = len(losses(tmp_path / "killed"))
        process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        while process.poll() is None and len(losses(tmp_path / "killed")) <= min(before, 2):
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
        checkpoints.newest(tmp_path / "killed" / "checkpoints")  # readable at any moment
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    return killed


def test_sigkill_at_a_random_moment(settings, tmp_path):
    assert _kill_at_random(settings, tmp_path, 1, 5) == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sigkill_at_10_random_moments(settings, tmp_path):
    assert _kill_at_random(settings, tmp_path, 10, 6) >= 5  # the last ones may come too late


def test_sigterm_saves_and_leaves(settings, tmp_path):
    chosen = settings(epochs=40)
    process = subprocess.Popen(
        [*COMMAND, *flags(chosen)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and len(losses(tmp_path / "run")) < 8:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 143, err
    assert "the same command goes on from there" in out
    assert checkpoints.newest(tmp_path / "run" / "checkpoints").step >= 5


def test_a_finished_run_is_left_as_it_is(settings, tmp_path, caplog):
    first = finetune(settings())
    assert not any("goes on" in message or "is finished" in message for message in caplog.messages)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "metrics.jsonl"}
    with caplog.at_level("INFO", "paddle_nezha"):
        assert finetune(settings()) == first
    assert f"{tmp_path / 'run'} is finished: nothing is trained anew." in caplog.messages
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_finished_run_whose_model_is_gone_or_damaged(settings, tmp_path):
    finetune(settings(epochs=1))
    model = tmp_path / "run" / "model"
    weights, facts, vocabulary = ((model / name) for name in ("model.safetensors", "task.json", "vocab.txt"))
    other = json.dumps({**json.loads(facts.read_text("utf-8")), "names": ["a", "b"]}).encode()
    for file, content, message in (
        (weights, weights.read_bytes()[:1000], "truncated"),
        (weights, None, "model.safetensors"),
        (vocabulary, None, "expected vocab.txt"),
        (facts, None, "has no task.json"),
        (facts, other, "its task.json is of another run"),
    ):
        whole = file.read_bytes()
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        with pytest.raises(ValueError, match=f"(?s)finished run, but its model.*{message}.*or remove .*result.json"):
            finetune(settings(epochs=1))
        file.write_bytes(whole)
    assert finetune(settings(epochs=1)).model == model
    shutil.rmtree(model)
    with pytest.raises(ValueError, match=r"finished run, but its model cannot be used"):
        finetune(settings(epochs=1))
    (tmp_path / "run" / "result.json").unlink()
    assert finetune(settings(epochs=1)).model == model and weights.is_file()  # the remedy


def test_a_run_that_lost_its_best_epoch_is_stopped_when_it_goes_on(settings, tmp_path, interrupted):
    interrupted(settings(), lines=8)  # an epoch of five steps, its evaluation, two steps
    shutil.rmtree(tmp_path / "run" / "best-epoch-001")
    with pytest.raises(ValueError, match=r"best-epoch-001, the model of the best epoch .*remove .*checkpoints"):
        finetune(settings())
    assert len(losses(tmp_path / "run")) == 8  # nothing was trained
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert finetune(settings()).epochs == 2  # the remedy


def test_a_run_that_stopped_before_its_result_goes_on(settings, tmp_path, monkeypatch):
    """Its best epoch is the model by then."""
    monkeypatch.setattr("paddle_nezha.training.finetuning.trainer._write_result", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        finetune(settings(epochs=1))
    monkeypatch.undo()
    assert not (tmp_path / "run" / "best-epoch-001").exists()
    assert finetune(settings(epochs=1)).model == tmp_path / "run" / "model"


# ---- from what another fine-tuning left


@pytest.fixture
def finetuned(start, tmp_path):
    """A factory of runs' folders with a model of a task: ``finetuned("token", ["B-X", "O"])``."""

    def make(task, names):
        facts = Facts(task, names, 48, 8, 8)
        tokenizer = NeZhaTokenizer.from_pretrained(start)
        folder = tmp_path / f"{task}-{len(list(tmp_path.iterdir()))}"
        kind = KINDS[task](facts, tokenizer)
        kind.head.from_pretrained(start, **kind.head_settings()).save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        facts.write(folder / "model")
        return folder

    return make


def begun(chosen):
    """A run that has built its model, before its first step."""
    with contextlib.ExitStack() as held:
        return trainer._Run(chosen, Processes.join(), held)


NAMES = {"sentence": ["neg", "pos"], "pair": ["neg", "pos"], "token": ["B-LOC", "O"], "span": None, "choice": None}


@pytest.mark.parametrize("task", KINDS)
def test_another_head_is_left_and_its_encoder_taken_over(task, finetuned, settings, tmp_path, caplog):
    sources = [(other, names, other == task) for other, names in NAMES.items()]
    sources += [("sentence", ["a", "b", "c"], False), ("sentence", ["a", "b"], False), ("token", list("BIO"), False)]
    for number, (other, names, keeps_head) in enumerate(sources):
        source = finetuned(other, names)
        caplog.clear()
        with caplog.at_level("INFO", "paddle_nezha"):
            run = begun(settings(task, model=str(source), output=str(tmp_path / f"{number}")))
        was = checkpoints.model_arrays(source / "model")
        now = {name: parameter.numpy() for name, parameter in run.model.state_dict().items()}
        heads = [name for name in was if name.startswith("classifier.")]
        assert len(heads) == 2 and all(np.array_equal(was[name], now[name]) for name in set(was) - set(heads))
        assert np.array_equal(was["classifier.weight"], now["classifier.weight"]) == keeps_head, other
        assert sum("its encoder is taken over, with a new head" in said for said in caplog.messages) == (not keeps_head)
        assert run.model.config.num_labels == len(NAMES[task] or (0, 1)) and "a" not in run.model.config.label2id
        run.model.save_pretrained(tmp_path / f"{number}" / "saved")


def test_a_head_without_task_json_is_judged_by_its_config(finetuned, settings, tmp_path):
    for number, (names, keeps_head) in enumerate(
        [(["neg", "pos"], True), (["LABEL_0", "LABEL_1"], True), (["a", "b"], False), (["a", "b", "c"], False)]
    ):
        source = finetuned("sentence", names)
        (source / "model" / "task.json").unlink()
        run = begun(settings(model=str(source / "model"), output=str(tmp_path / f"{number}")))
        was = checkpoints.model_arrays(source / "model")["classifier.weight"]
        assert np.array_equal(was, run.model.classifier.weight.numpy()) == keeps_head


def test_a_run_without_a_model_is_no_start(finetuned, settings, tmp_path):
    seeds = tmp_path / "seeds"
    for seed in (0, 1):
        (seeds / f"seed-{seed}").mkdir(parents=True)
        (seeds / f"seed-{seed}" / "run.json").write_text("{}", "utf-8")
    with pytest.raises(ValueError, match=r"seeds holds a run, seed-0, that has left no model yet"):
        finetune(settings(model=str(seeds)))
    with pytest.raises(ValueError, match=r"seed-1 is a run that has left no model yet"):
        finetune(settings(model=str(seeds / "seed-1")))
    shutil.copytree(finetuned("sentence", ["neg", "pos"]), seeds / "seed-0", dirs_exist_ok=True)
    with pytest.raises(ValueError, match=r"seeds holds several models: name one of seed-0 in it"):
        finetune(settings(model=str(seeds)))


def test_a_run_begins_from_the_model_of_another(finetuned, settings, tmp_path):
    source = finetuned("pair", ["0", "1", "2"])
    assert finetune(settings(epochs=1, model=str(source))).epochs == 1
    assert (
        main(["finetune", *flags(settings(epochs=1, model=str(tmp_path / "run"), output=str(tmp_path / "next")))]) == 0
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"task\.json is no JSON"),
        ("[]", r"task\.json must hold an object, but holds a list"),
        ('{"task": "span", "names": null}', r"task\.json lacks max_length, stride, max_answer_length"),
        (
            '{"max_length": 8, "stride": 8, "max_answer_length": 8, "name": 1}',
            "lacks task, names and has the unknown name",
        ),
    ],
)
def test_task_json_is_whole(content, message, tmp_path):
    (tmp_path / "task.json").write_text(content, "utf-8")
    with pytest.raises(ValueError, match=message + r".*\. Copy it back"):
        Facts.read(tmp_path)


# ---- how a batch is cut


def test_losses_do_not_depend_on_the_micro_batches(settings, tmp_path, plain):
    """Up to float32 sums in another order."""
    for weights in ("none", "balanced"):
        runs = []
        for size in (8, 3):
            output = tmp_path / f"{weights}-{size}"
            finetune(
                settings(model=str(plain), output=str(output), micro_batch_size=size, class_weights=weights, epochs=1)
            )
            runs.append([line["loss"] for line in losses(output) if line["kind"] == "step"])
        np.testing.assert_allclose(runs[0], runs[1], rtol=1e-5)


def test_two_processes_equal_one(settings, tmp_path, plain):
    """One seed after the other, as the processes join anew for each."""
    alone = settings(model=str(plain), output=str(tmp_path / "alone"), epochs=1)
    assert main(["finetune", *flags(alone), "--seeds", "2"]) == 0
    script = tmp_path / "command.py"
    script.write_text("import sys\nfrom paddle_nezha.__main__ import main\nsys.exit(main())\n")
    launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2"]
    # In a file: the launcher takes --train for one of its own options.
    values = {name: getattr(alone, name) for name in alone.__dataclass_fields__}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**values, "output": str(tmp_path / "both")}), "utf-8")
    done = subprocess.run(
        [*launcher, "--log_dir", str(tmp_path / "log"), str(script), "finetune", "sentence",
         "--config", str(tmp_path / "run.yaml"), "--seeds", "2"],
        env=environment(), capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    log = tmp_path / "log" / "workerlog.0"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
    for seed in ("seed-0", "seed-1"):
        one, two = losses(tmp_path / "alone" / seed), losses(tmp_path / "both" / seed)
        assert [line["step"] for line in one] == [line["step"] for line in two]
        steps = [[line["loss"] for line in lines if "loss" in line] for lines in (one, two)]
        np.testing.assert_allclose(*steps, rtol=1e-5)
    assert (tmp_path / "alone" / "result.json").read_text() == (tmp_path / "both" / "result.json").read_text()


# ---- options


def test_fgm_is_the_worst_step_of_its_length(settings, start, seeded):
    """The added loss is above the plain one, and near the first-order estimate eps * |gradient| for a small step."""
    task = KINDS["sentence"](Facts("sentence", ["neg", "pos"], 48, 8, 8), NeZhaTokenizer.from_pretrained(start))
    model = task.head.from_pretrained(
        start, train=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout=0.0,
        **task.head_settings(),
    )  # fmt: skip
    ids = np.random.default_rng(1).integers(105, 200, (4, 9))
    batch = {
        "input_ids": paddle.to_tensor(ids),
        "token_type_ids": paddle.zeros([4, 9], "int64"),
        "attention_mask": paddle.ones([4, 9], "int64"),
        "labels": paddle.to_tensor([0, 1, 1, 0]),
    }
    plain = TaskObjective(model)
    plain.train()
    loss = plain([4.0], **batch)[0]
    words = model.get_input_embeddings()(batch["input_ids"]).detach()
    words.stop_gradient = False
    given = {key: value for key, value in batch.items() if key != "input_ids"}
    through = model(None, given["token_type_ids"], given["attention_mask"], words)
    from paddle_nezha.heads import cross_entropy

    slope = paddle.grad(cross_entropy(through, batch["labels"]), [words])[0].numpy()
    length = 1e-3
    adversarial = TaskObjective(model, adversarial=length)
    adversarial.train()
    both = adversarial([4.0], **batch)[0]
    gained = both.item() - 2 * loss.item()
    expected = length * np.sqrt((slope**2).sum((1, 2))).sum()
    assert gained == pytest.approx(expected, rel=0.02)  # the second order of a step of 1e-3
    adversarial.eval()
    assert adversarial([4.0], **batch)[0].item() == pytest.approx(loss.item(), rel=1e-6)


def test_fgm_trains(settings):
    assert finetune(settings(adversarial=0.5, epochs=1)).epochs == 1


def test_layer_decay_slows_lower_layers(settings, tmp_path, start, monkeypatch):
    """AdamW's first step is the rate itself wherever there is a gradient."""
    monkeypatch.setattr("paddle_nezha.training.finetuning.trainer.Schedule.rate", lambda *_: 1e-3)
    seen = {}
    made = Engine.step

    def step(self, *arguments):
        if not seen:
            before = {name: value.numpy().copy() for name, value in self.parameters.items()}
            outcome = made(self, *arguments)
            for name, value in self.parameters.items():
                if name.endswith("bias"):
                    seen[name] = np.abs(value.numpy() - before[name]).max()
            return outcome
        return made(self, *arguments)

    monkeypatch.setattr(Engine, "step", step)
    finetune(settings(layer_decay=0.5, epochs=1))
    assert seen["classifier.bias"] == pytest.approx(1e-3, rel=1e-3)
    assert seen["nezha.encoder.layer.1.ffn.bias"] == pytest.approx(5e-4, rel=1e-3)
    assert seen["nezha.encoder.layer.0.ffn.bias"] == pytest.approx(2.5e-4, rel=1e-3)
    assert seen["nezha.embeddings.layer_norm.bias"] == pytest.approx(1.25e-4, rel=1e-3)


def test_patience_ends_a_run(settings):
    result = finetune(settings(epochs=9, patience=2, learning_rate=1e-9))
    assert result.epochs == 3 and result.best_epoch == 1


def test_several_seeds(settings, tmp_path, capsys):
    chosen = settings(epochs=1, test=str(tmp_path / "sentence.test"))
    assert main(["finetune", *flags(chosen), "--seeds", "3"]) == 0
    out = capsys.readouterr().out
    assert "3 seeds" in out and "95 % from" in out
    content = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [one["seed"] for one in content["seeds"]] == [0, 1, 2]
    assert len({json.dumps(line) for seed in range(3) for line in losses(tmp_path / "run" / f"seed-{seed}")[:1]}) == 3
    for one in content["seeds"]:
        assert (tmp_path / "run" / one["predictions"]).is_file()
    assert main(["compare", str(tmp_path / "run"), str(tmp_path / "run")]) == 0


def test_several_seeds_want_a_folder_of_their_own(settings, tmp_path, capsys):
    single, many = tmp_path / "run" / "result.json", tmp_path / "many" / "result.json"
    finetune(settings(epochs=1))
    before = single.read_bytes()
    assert main(["finetune", *flags(settings(epochs=1, learning_rate=1e-3)), "--seeds", "2"]) == 2
    assert "holds a single run" in capsys.readouterr().err and single.read_bytes() == before
    assert main(["finetune", *flags(settings(epochs=1, output=str(tmp_path / "many"))), "--seeds", "1"]) == 0
    before = many.read_bytes()
    other = settings(epochs=1, learning_rate=1e-3, seed=1, output=str(tmp_path / "many"))
    assert main(["finetune", *flags(other), "--seeds", "2"]) == 2
    assert "seed-0: learning_rate was 0.002 and is 0.001" in capsys.readouterr().err and many.read_bytes() == before
    for name in ("model", "result.json", "metrics.jsonl"):  # as a run leaves it that stopped before its first step
        path = tmp_path / "many" / "seed-0" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert main(["finetune", *flags(other), "--seeds", "1"]) == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine", "utf-8")
    assert main(["finetune", *flags(settings(output=str(tmp_path / "other"))), "--seeds", "2"]) == 2
    assert "no seed of a run" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("count", ["0", "-1", "two", "1.5"])
def test_at_least_one_seed_is_trained(count, settings, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["finetune", *flags(settings()), f"--seeds={count}"])
    assert stopped.value.code == 2
    assert f"--seeds: expected a whole number of 1 or more, got '{count}'" in capsys.readouterr().err


RIGHT = {"seed": 0, "dev": {"accuracy": 1.0}, "best_epoch": 1, "epochs": 2, "predictions": "dev.predictions.jsonl"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"task": "sentence", "me', "JSONDecodeError"),
        ("[]", "TypeError"),
        ({"seeds": [RIGHT, RIGHT]}, "too many values"),
        ({"seeds": [{**RIGHT, "seed": 7}]}, "'accuracy', 0, False.*'accuracy', 7, False"),
        ({"seeds": [{**RIGHT, "test": {"accuracy": 1.0}}]}, "0, False.*0, True"),
        ({"seeds": [{**RIGHT, "dev": [1.0]}]}, "AttributeError"),
        ({"seeds": [RIGHT], "metric": "mcc"}, "'mcc'"),
    ],
)
def test_a_result_is_of_this_run_and_whole(content, message, settings, tmp_path):
    file = tmp_path / "result.json"
    whole = {"task": "sentence", "metric": "accuracy", "seeds": [RIGHT]}
    file.write_text(json.dumps(whole), "utf-8")
    assert read_result(tmp_path, settings()).dev == {"accuracy": 1.0}
    file.write_text(content if isinstance(content, str) else json.dumps({**whole, **content}), "utf-8")
    with pytest.raises(ValueError, match=rf"(?s)result\.json is .*{message}.*or remove it: the same command then"):
        read_result(tmp_path, settings())


# ---- what is refused, before anything is trained


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label\ttext_a\n", r"train"),
        ("", r"train"),
        ("label\ttext_a\npos\tone\npos\ttwo\n", r"sentence.train:2: .*add examples of other classes"),
        ("label\ttext_a\npos\tone\nneg\n", r"line 3|:3"),
    ],
)
def test_bad_training_files(content, message, settings, tmp_path, capsys):
    chosen = settings()
    (tmp_path / "sentence.train").write_text(content, "utf-8")
    assert main(["finetune", *flags(chosen)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "token",
            "李 PER\n好 O\n\n王 PER\n好 O\n",
            r"token\.train:1: expected tags .*token 1 .* has 'PER'.*LETTER-TYPE",
        ),
        ("token", "他 O\n\n好 O\n李 B_PER\n", r"token\.train:3: expected tags .*token 2 .* has 'B_PER'"),
        ("token", '{"tokens": ["李", "好"], "tags": ["n", "v"]}', r"token\.train:1: .* has 'n'"),
        ("token", '{"tokens": ["李", "好"], "tags": ["O", ""]}', r"token\.train:1: expected a tag for each token"),
        (
            "sentence",
            "label\ttext\n" + "".join(f"{number / 7}\t好{number}\n" for number in range(8)),
            r"sentence\.train:3: expected classes as labels, got 8 different numbers in 8 examples.*--columns '",
        ),
    ],
)
def test_labels_that_no_class_is_made_of(name, content, message, settings, tmp_path, capsys):
    (tmp_path / f"{name}.train").write_text(content, "utf-8")
    assert main(["finetune", *flags(settings(name)), *(["--layout", "conll"] if "\n\n" in content else [])]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_ratings_are_classes(settings, tmp_path):
    """Numbers that are not whole, and few: no measures."""
    file = tmp_path / "sentence.train"
    file.write_text("label\ttext\n" + "".join(f"{number % 4 / 2}\t好{number}\n" for number in range(9)), "utf-8")
    assert class_names("sentence", list(read("sentence", file))) == ["0.0", "0.5", "1.0", "1.5"]


def test_what_the_files_were_taken_for_is_told(settings, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("paddle_nezha.training.finetuning.trainer._Run._build", lambda run: sys.exit("enough"))
    train = tmp_path / "pair.train"
    train.write_text(
        "id\tpremise\thypo\tlabel\n" + "".join(f"{i}\t好{i // 2}\t坏\t{i % 2}\n" for i in range(5)), "utf-8"
    )
    (tmp_path / "pair.dev").write_text(train.read_text("utf-8") + '5\t \t坏\t-\n6\t"天"\t \t1\n', "utf-8")
    (tmp_path / "pair.test").write_text(
        "premise\thypo\tlabel\n" + "".join(f"好{i // 2}\t坏\t{i % 2}\n" for i in range(5)), "utf-8"
    )
    with caplog.at_level("INFO", "paddle_nezha"), pytest.raises(SystemExit, match="enough"):
        finetune(settings("pair", test=str(tmp_path / "pair.test")))
    said = "\n".join(caplog.messages)
    taken = "layout tsv, names in line 1; text from premise, pair from hypo, label from label; not used: id\n"
    assert f"train: {train}: {taken}  labels: 0 3, 1 2\n  texts that an earlier line has too, with another" in said
    dev = tmp_path / "pair.dev"
    assert f"dev: {dev}: {taken}  labels: 0 3, 1 3\n" in said
    assert f'pairs labelled "-" (no majority), dropped: 1 ({dev}:7)' in said and "cells in quotes" in said
    assert f"empty texts, kept: 1 ({dev}:8)" in said
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["test has no text that train has not: its scores say nothing of other texts."]


@pytest.mark.parametrize(
    ("task", "same"),
    [("sentence", "accuracy"), ("token", "f1"), ("span", "f1"), ("choice", "accuracy")],
)
def test_texts_that_train_has_too_are_told_and_judged_apart(task, same, settings, tmp_path, caplog, capsys):
    WRITERS[task](tmp_path / f"{task}.test", np.random.default_rng(0), 50)  # the 40 examples of train, and more
    chosen = settings(task, epochs=6, learning_rate=1e-2, test=str(tmp_path / f"{task}.test"))
    learnt = list(read(task, chosen.train))
    known = {tuple(texts_of(record)) for record in learnt}
    judged = list(read(task, chosen.test))
    new = [number for number, record in enumerate(judged) if tuple(texts_of(record)) not in known]
    assert 0 < len(new) <= 10
    with caplog.at_level("INFO", "paddle_nezha"):
        result = finetune(chosen)
    told = next(message for message in caplog.messages if message.startswith("test: ") and "layout" in message)
    counts = re.findall(r"texts that train has too, with (?:the same|another) label: (\d+)", told)
    assert sum(map(int, counts)) == len(judged) - len(new)
    rows = [json.loads(line) for line in (tmp_path / "run" / "test.predictions.jsonl").read_text("utf-8").splitlines()]
    facts = Facts.read(result.model)
    apart = KINDS[task](facts, NeZhaTokenizer.from_pretrained(result.model)).score([rows[number] for number in new])
    assert result.test[f"unseen_{same}"] == apart[same] > 0
    assert f"test: unseen_{same} is over the {len(new)} of {len(judged)} examples that are not in train." in caplog.text
    assert [number for number, row in enumerate(rows) if not row.get("in_train")] == new
    assert read_result(tmp_path / "run", chosen).test == result.test
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "texts not in train" in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_texts_that_are_all_new_or_all_known_are_judged_once(settings, tmp_path):
    chosen = settings(epochs=1)
    train, dev = Path(chosen.train), Path(chosen.dev)
    dev.write_text("label\ttext_a\npos\t" + "早" * 30 + "\nneg\t" + "公" * 30 + "\n", "utf-8")
    result = finetune(settings(epochs=1, dev=str(dev), test=str(train)))
    assert not [name for name in {**result.dev, **result.test} if name.startswith("unseen_")]


def test_what_goes_into_a_file_is_whole_lines_and_few_bars(settings, capsys):
    assert main(["finetune", *flags(settings(epochs=2))]) == 0
    lines = capsys.readouterr().err.replace("\r", "\n").split("\n")
    for epoch in (1, 2):
        assert sum(line.startswith(f"epoch {epoch} of 2: dev accuracy") for line in lines) == 1
    bar = runs.progress_bar(50, 0, Processes(0, 1, False))
    for _ in range(50):
        time.sleep(0.02)
        bar.update()
    bar.close()
    assert 1 <= capsys.readouterr().err.count("step/s") <= 3  # ten a second on a terminal


def test_answers_of_which_none_stands_in_its_text_teach_nothing(settings, tmp_path, capsys):
    chosen = settings("span")
    train = Path(chosen.train)
    content = json.loads(train.read_text("utf-8"))
    for paragraph in content["data"][0]["paragraphs"]:
        paragraph["qas"][0]["answers"][0]["text"] = "不在文中"
    train.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    assert main(["finetune", *flags(chosen)]) == 2
    err = capsys.readouterr().err
    assert f"{train}: not one answer stands in the text that it is asked of" in err
    assert not (tmp_path / "run").exists()


def test_where_a_run_cannot_go_is_said_before_files_are_read(settings, tmp_path, capsys):
    (tmp_path / "file").write_text("mine", "utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine", "utf-8")
    (tmp_path / "many" / "seed-3").mkdir(parents=True)
    (tmp_path / "many" / "seed-3" / "run.json").write_text("{}", "utf-8")
    for name, message in (
        ("file", "is a file, and a run's output is a folder"),
        ("file/run", "is a file, and a run's output is a folder"),
        ("full", "holds files, but no run.json"),
        ("many", r"holds runs of several seeds (seed-3): give --seeds to go on with them"),
    ):
        assert main(["finetune", *flags(settings(output=str(tmp_path / name)))]) == 2
        err = capsys.readouterr().err
        assert message in err and "layout" not in err
    for name in ("file", "file/run"):
        assert main(["finetune", *flags(settings(output=str(tmp_path / name))), "--seeds", "2"]) == 2
        assert "is a file, and a run's output is a folder" in capsys.readouterr().err


def test_a_run_that_left_no_checkpoint_says_that_it_begins_anew(settings, tmp_path, interrupted, caplog):
    interrupted(settings(), lines=2)
    with caplog.at_level("INFO", "paddle_nezha"):
        finetune(settings())
    assert f"{tmp_path / 'run'} was stopped before its first checkpoint: it begins anew." in caplog.messages


def test_every_step_counts_in_the_report(settings, tmp_path, capsys):
    finetune(settings(epochs=1, log_every=4))  # five steps
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "finished: 5 steps" in capsys.readouterr().out


def test_an_unknown_label_in_dev(settings, tmp_path, capsys):
    chosen = settings()
    with (tmp_path / "sentence.dev").open("a", encoding="utf-8") as file:
        file.write("neutral\t今天\n")
    assert main(["finetune", *flags(chosen)]) == 2
    err = capsys.readouterr().err
    assert "neutral" in err and "sentence.dev" in err and "22" in err
    assert not (tmp_path / "run").exists()


def test_settings_that_cannot_be(settings):
    for changes, message in (
        ({"metric": "bleu"}, "metric must be accuracy or macro_f1 or mcc"),
        ({"epochs": 0}, "epochs must be above 0"),
        ({"learning_rate": float("inf")}, "learning_rate must be above 0 and finite, but is inf"),
        ({"weight_decay": float("inf")}, "weight_decay must be 0 or more and finite, but is inf"),
        ({"warmup_ratio": 2.0}, "warmup_ratio must be from 0 to 1"),
        ({"class_weights": "some"}, "class_weights must be none or balanced"),
        ({"max_length": 2}, "max_length must be at least 8"),
        ({"task": "span", "class_weights": "balanced"}, "a span task has no classes to balance"),
        ({"task": "choice", "class_weights": "balanced"}, "a choice task has no classes to balance"),
    ):
        with pytest.raises(ValueError, match=message):
            settings(**changes)


def test_help_lists_the_layouts_and_a_broken_file_is_told_what_fine_tuning_has(settings, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["finetune", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "tsv, tsv-quoted, csv, jsonl, json, conll, cluener, two-file, squad, cmrc, c3" in told
    assert "a folder with source.txt and target.txt" in told
    (tmp_path / "broken.yaml").write_text("- 1", "utf-8")
    assert main(["finetune", "sentence", "--config", str(tmp_path / "broken.yaml")]) == 2
    shown = re.search("lines such as `(.*): .*`", capsys.readouterr().err)
    assert shown.group(1) in FinetuneSettings.__dataclass_fields__


def test_presets_are_huaweis():
    assert PRESETS["lcqmc"] == {"task": "pair", "max_length": 128, "batch_size": 32, "learning_rate": 3e-5, "epochs": 5}
    assert (PRESETS["ner"]["max_length"], PRESETS["ner"]["batch_size"], PRESETS["ner"]["epochs"]) == (256, 16, 10)
    assert (PRESETS["cmrc"]["max_length"], PRESETS["cmrc"]["stride"], PRESETS["cmrc"]["batch_size"]) == (512, 128, 4)
    assert PRESETS["chnsenti"]["epochs"] == 10 and PRESETS["chnsenti"]["batch_size"] == 16


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_model_that_cannot_be_used_leaves_no_folder(name, start, settings, tmp_path):
    shutil.copytree(start, tmp_path / "bad")
    (tmp_path / "bad" / name).write_bytes((start / name).read_bytes()[:100])
    assert main(["finetune", *flags(settings(model=str(tmp_path / "bad")))]) != 0
    assert not (tmp_path / "run").exists()


def test_a_preset_for_another_task(settings, capsys):
    assert main(["finetune", *flags(settings()), "--preset", "ner"]) == 2
    assert "is for the task token, not sentence" in capsys.readouterr().err
