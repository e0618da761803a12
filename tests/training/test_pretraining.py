"""The trainer: the same losses however a batch is cut, whatever stops a run, on one process or several."""

import itertools
import json
import math
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from paddle_nezha import NeZhaForMaskedLM, NeZhaForPretraining, NeZhaTokenizer
from paddle_nezha._files import held_alone
from paddle_nezha._paddle import paddle
from paddle_nezha.training import checkpoints, runs
from paddle_nezha.training.corpus import Corpus
from paddle_nezha.training.corpus.building import build_corpus
from paddle_nezha.training.engine import Engine
from paddle_nezha.training.examples import ExampleSettings, ExampleStream
from paddle_nezha.training.metrics import read_metrics
from paddle_nezha.training.pretraining.batches import Maker, Share, step_batches
from paddle_nezha.training.pretraining.evaluation import evaluate
from paddle_nezha.training.pretraining.settings import PretrainingSettings
from paddle_nezha.training.pretraining.trainer import NonFiniteError, pretrain
from paddle_nezha.training.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "weights" / "nezha-seeded-demo"
COMMAND = [sys.executable, "-m", "paddle_nezha", "pretrain"]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def losses(run):
    """Everything a run measured, but for times."""
    timed = ("seconds", "tokens_per_second", "of_peak")
    return [{key: value for key, value in line.items() if key not in timed} for line in read_metrics(Path(run))]


def written(settings, folder, **changes):
    """The settings as a file."""
    file = Path(folder) / "config.yaml"
    values = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    file.write_text(yaml.safe_dump({**values, **changes}), encoding="utf-8")
    return file


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def launcher(count, folder):
    """The command that starts a command in several processes."""
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(count)]
    script = Path(sys.executable).parent / "paddle-nezha"
    if not script.exists():  # a checkout that is on the path and not installed
        script = Path(folder) / "command.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("import sys\nfrom paddle_nezha.__main__ import main\nsys.exit(main())\n")
    return [*command, "--log_dir", str(folder), str(script)]


def launched(file, count, folder, *flags):
    """Runs a pre-training in several processes."""
    done = subprocess.run(
        [*launcher(count, folder), "pretrain", str(file), *flags],
        env=environment(), capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    log = Path(folder) / "workerlog.0"
    assert done.returncode == 0, (log.read_text() if log.exists() else "") + done.stderr
    return log.read_text()


# ---- one process


def test_a_run_leaves_a_model_a_tokenizer_metrics_and_checkpoints(settings, tmp_path):
    result = pretrain(settings(steps=5, checkpoint_every=2, keep_checkpoints=2, eval_every=3, eval_examples=10))
    run = tmp_path / "run"
    assert result.steps == 5 and result.model == run / "model" and result.signal is None
    model = NeZhaForPretraining.from_pretrained(result.model)
    tokenizer = NeZhaTokenizer.from_pretrained(result.model)
    assert model.config.vocab_size == len(tokenizer)
    words, order = model(**tokenizer("今天", "早上", return_tensors="pd"))
    assert words.shape[-1] == len(tokenizer) and np.isfinite(order.numpy()).all()
    lines = read_metrics(run)
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("step", 1), ("step", 2), ("step", 3), ("eval", 3), ("step", 4), ("step", 5), ("eval", 5),
    ]  # fmt: skip
    assert result.evaluation == {key: lines[-1][key] for key in lines[-1] if key not in ("kind", "step")}
    assert result.evaluation["mlm_perplexity"] == pytest.approx(math.exp(result.evaluation["mlm_loss"]))
    # A new model knows nothing: its words are near uniform, and so is which sentence follows.
    assert lines[0]["mlm_loss"] == pytest.approx(math.log(len(tokenizer)), rel=0.02)
    assert lines[0]["nsp_loss"] == pytest.approx(math.log(2), rel=0.05)
    assert lines[0]["loss"] == pytest.approx(lines[0]["mlm_loss"] + lines[0]["nsp_loss"], rel=1e-6)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000004", "step-00000005"]


def test_a_model_is_evaluated_as_its_training_was(settings, corpus, tmp_path):
    """Whatever the batches: float32 sums in another order."""
    chosen = settings(steps=2, eval_every=2, eval_examples=20)
    result = pretrain(chosen)
    model = NeZhaForPretraining.from_pretrained(result.model)
    held_out = Corpus.open(corpus, split="held_out")
    assert evaluate(model, held_out, chosen.examples, examples=20, batch_size=7) == pytest.approx(
        result.evaluation, rel=1e-5
    )
    assert not model.training


def test_it_learns(settings):
    result = pretrain(settings(steps=60, batch_size=16, optimizer="adamw", learning_rate=5e-3, eval_every=60))
    assert result.evaluation["mlm_loss"] < math.log(100)  # 24 words of some 45 characters, of 778 tokens


@pytest.mark.parametrize("next_sentence", [True, False])
def test_losses_do_not_depend_on_the_micro_batches(next_sentence, settings, tmp_path):
    """In float64 and without dropout, up to the order of sums."""
    small = {**settings().config, **NO_DROPOUT}
    runs = []
    for size in (8, 2):
        output = tmp_path / str(size)
        pretrain(
            settings(
                output=str(output), micro_batch_size=size, dtype="float64", config=small, next_sentence=next_sentence
            )
        )
        runs.append([line["loss"] for line in losses(output)])
    assert np.abs(np.subtract(*runs)).max() <= 1e-12 * max(runs[0])
    assert len(set(runs[0])) == len(runs[0])


def test_masked_words_alone_leave_the_pooler_alone(settings, tmp_path):
    pretrain(settings(steps=2, next_sentence=False))
    trained = NeZhaForMaskedLM.from_pretrained(tmp_path / "run" / "model")
    paddle.seed(0)
    fresh = NeZhaForMaskedLM(trained.config)
    same = {
        name
        for name, value in trained.state_dict().items()
        if (value.numpy() == fresh.state_dict()[name].numpy()).all()
    }
    assert {name for name in same if "pooler" not in name} <= {"cls.predictions.decoder_bias"} and same


def test_it_continues_from_a_checkpoint_of_any_kind(settings, tmp_path):
    pretrain(settings(steps=2))
    start = NeZhaForPretraining.from_pretrained(tmp_path / "run" / "model")
    start.save_pretrained(tmp_path / "start", weights="pdparams")
    pretrain(settings(output=str(tmp_path / "on"), model=str(tmp_path / "start"), steps=1, warmup_steps=0))
    first = losses(tmp_path / "on")[0]["mlm_loss"]
    assert first < losses(tmp_path / "run")[0]["mlm_loss"]


def test_a_model_with_another_vocabulary_is_refused(settings, build, tmp_path):
    build(NeZhaForPretraining).save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match=r"has 99 words and the corpus 778: build the corpus .*--tokenizer"):
        pretrain(settings(model=str(tmp_path / "other")))


def test_a_model_with_its_words_in_another_order_is_refused(settings, tmp_path):
    """Of the same number: the ids of the corpus would mean other words."""
    first = pretrain(settings(steps=1)).model
    pretrain(settings(steps=1, model=str(first), output=str(tmp_path / "again")))
    words = (first / "vocab.txt").read_text(encoding="utf-8").split()
    (first / "vocab.txt").write_text("\n".join([*words[:200], *reversed(words[200:])]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocab\.txt lists other words than the corpus .*--tokenizer"):
        pretrain(settings(steps=1, model=str(first), output=str(tmp_path / "other")))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_batches_from_any_number_of_workers(workers, settings, tmp_path):
    pretrain(settings(steps=4))
    pretrain(settings(steps=4, workers=workers, output=str(tmp_path / "more")))
    assert losses(tmp_path / "more") == losses(tmp_path / "run")


def test_a_worker_that_dies_costs_nothing(corpus, caplog):
    def batches(workers, kill):
        maker = Maker(ExampleStream(Corpus.open(corpus), ExampleSettings(max_length=32), 0), Share(8, 0, 1, 8))
        with step_batches(maker, 3, 40, workers) as steps:
            for made in steps:
                yield made
                if made.step == 5 and kill:
                    for child in multiprocessing.active_children():
                        child.kill()

    pairs = list(itertools.zip_longest(batches(2, True), batches(0, False)))
    assert "A process that makes batches died" in caplog.text
    assert [one.step for one, _ in pairs] == list(range(3, 40))
    for one, other in pairs:
        assert one.position == other.position
        for name, array in other.batches[0].items():
            np.testing.assert_array_equal(one.batches[0][name], array)


# ---- stopped, and taken up again


def test_signals_of_a_launcher_are_one_request():
    """It says SIGTERM three times, after a Ctrl-C that the terminal has sent to all; Ctrl-C upon Ctrl-C is another."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
    try:
        with runs.stop_signals(Processes(0, 1, False)) as seen:
            signal.raise_signal(signal.SIGINT)
            for _ in range(3):
                signal.raise_signal(signal.SIGTERM)
            assert seen[0] == "SIGINT"
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_signal_later_ends_the_process(monkeypatch):
    monkeypatch.setattr(runs, "_ECHO", 0.0)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with runs.stop_signals(Processes(0, 1, False)) as seen:
            signal.raise_signal(signal.SIGTERM)
            assert seen == ["SIGTERM"]
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_goes_on_bit_for_bit(settings, tmp_path, monkeypatch):
    """Stopped in the middle by what kills it between two checkpoints."""
    whole = settings(steps=7, checkpoint_every=2, eval_every=3, eval_examples=10, output=str(tmp_path / "whole"))
    pretrain(whole)
    broken = settings(steps=7, checkpoint_every=2, eval_every=3, eval_examples=10)
    made = Engine.step

    def dies(self, *arguments):
        if len(losses(tmp_path / "run")) == 6:  # steps 1-5 and an evaluation
            raise KeyboardInterrupt
        return made(self, *arguments)

    monkeypatch.setattr(Engine, "step", dies)
    with pytest.raises(KeyboardInterrupt):
        pretrain(broken)
    assert len(losses(tmp_path / "run")) == 6
    monkeypatch.setattr(Engine, "step", made)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')  # a line that was not written out
    pretrain(broken)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    one, other = (
        NeZhaForPretraining.from_pretrained(tmp_path / name / "model").state_dict() for name in ("run", "whole")
    )
    assert all((one[name].numpy() == other[name].numpy()).all() for name in one)


def _kill_at_random(settings, tmp_path, kills, seed, **changes):
    """A run killed `kills` times, and an unbroken one."""
    whole = settings(output=str(tmp_path / "whole"), **changes)
    pretrain(whole)
    file = written(whole, tmp_path, output=str(tmp_path / "killed"))
    draw, killed = random.Random(seed), 0
    while killed < kills:
        before = len(losses(tmp_path / "killed"))
        process = subprocess.Popen([*COMMAND, str(file)], env=environment(), stderr=subprocess.PIPE)
        while process.poll() is None and len(losses(tmp_path / "killed")) <= min(before, 3):
            time.sleep(0.01)
        time.sleep(draw.random() * 0.5)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
        if (tmp_path / "killed" / "checkpoints").exists():
            checkpoints.newest(tmp_path / "killed" / "checkpoints")
        if (tmp_path / "killed" / "model" / "model.safetensors").exists():
            break
    done = subprocess.run([*COMMAND, str(file)], env=environment(), capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return killed


def test_sigkill_at_a_random_moment(settings, tmp_path):
    killed = _kill_at_random(settings, tmp_path, 1, 11, steps=40, checkpoint_every=3)
    assert killed == 1
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sigkill_at_20_random_moments(settings, tmp_path):
    killed = _kill_at_random(settings, tmp_path, 20, 12, steps=200, checkpoint_every=5, eval_every=50, workers=1)
    assert killed >= 15  # the last ones may come too late
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def test_sigterm_saves_and_leaves(settings, tmp_path):
    pretrain(settings(steps=30, output=str(tmp_path / "whole")))
    file = written(settings(steps=30), tmp_path)
    process = subprocess.Popen(
        [*COMMAND, str(file)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and len(losses(tmp_path / "run")) < 5:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 143, err
    saved = checkpoints.newest(tmp_path / "run" / "checkpoints")
    assert saved is not None and 5 <= saved.step < 30 and saved.step == len(losses(tmp_path / "run"))
    assert f"stopped  by SIGTERM after step {saved.step}; the same command goes on" in out
    assert pretrain(settings(steps=30)).steps == 30
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_a_finished_run_is_left_as_it_is(settings, tmp_path):
    first = pretrain(settings(eval_every=3))
    before = losses(tmp_path / "run")
    again = pretrain(settings(eval_every=3))
    assert again == first and losses(tmp_path / "run") == before


def test_a_damaged_checkpoint_is_passed_over(settings, tmp_path, caplog):
    pretrain(settings(steps=6, checkpoint_every=2, keep_checkpoints=3))
    whole = losses(tmp_path / "run")
    damaged = tmp_path / "run" / "checkpoints" / "step-00000006" / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    assert checkpoints.newest(tmp_path / "run" / "checkpoints").step == 4
    assert "model.safetensors is not what was written" in caplog.text
    pretrain(settings(steps=6, checkpoint_every=2, keep_checkpoints=3))
    assert losses(tmp_path / "run") == whole
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        (folder / "state.json").write_text("{")
    with pytest.raises(ValueError, match="none of them is whole"):
        checkpoints.newest(tmp_path / "run" / "checkpoints")


def test_another_run_in_the_folder_is_refused(settings, tmp_path):
    pretrain(settings(steps=2))
    with pytest.raises(ValueError, match=r"another run \(learning_rate was 0.001 and is 0.002\)"):
        pretrain(settings(steps=2, learning_rate=2e-3))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(ValueError, match="holds files, but no run.json"):
        pretrain(settings(output=str(tmp_path / "full")))


def test_a_refused_start_blocks_nothing(settings, tmp_path):
    wrong = {**settings().config, "num_attention_heads": 3}
    for broken in (wrong, {**settings().config, "hiden_size": 32}):
        with pytest.raises(ValueError, match=r"num_attention_heads|hiden_size"):
            pretrain(settings(config=broken))
    pretrain(settings(steps=1))
    # What an interrupted start leaves: no step was made with it.
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_text((tmp_path / "run" / "run.json").read_text())
    (other / "metrics.jsonl").write_text("")
    assert pretrain(settings(steps=2, output=str(other))).steps == 2


def test_one_run_at_a_time_in_a_folder(settings, tmp_path):
    pretrain(settings(steps=1, output=str(tmp_path / "run")))
    with held_alone(tmp_path / "run"), pytest.raises(BlockingIOError, match="Another run is at work in"):
        pretrain(settings(steps=1, output=str(tmp_path / "run")))
    pretrain(settings(steps=1, output=str(tmp_path / "run")))


def test_without_held_out_documents_it_trains_and_says_so(settings, tmp_path, caplog):
    (tmp_path / "few.txt").write_text("今天天气很好。\n我们去公园。\n\n他喜欢读书。\n老师工作。\n", encoding="utf-8")
    build_corpus([tmp_path / "few.txt"], tmp_path / "few", DEMO, held_out=0.0)
    result = pretrain(settings(steps=2, corpus=str(tmp_path / "few"), eval_every=1))
    assert result.evaluation is None and "Nothing is evaluated" in caplog.text


def test_damaged_files_of_a_run_are_named(settings, tmp_path):
    pretrain(settings(steps=2))
    log, told = (tmp_path / "run" / name for name in ("metrics.jsonl", "run.json"))
    whole = log.read_text()
    for damage in ("no JSON", "[]", '{"kind": "step"}', '{"kind": "step", "step": "two"}', '{"kind": 1, "step": 2}'):
        log.write_text(whole + damage + "\n")
        with pytest.raises(ValueError, match=r"metrics\.jsonl, line 3: expected .* remove the line"):
            pretrain(settings(steps=2))
    log.write_text(whole)
    for damage in ("", "[]", '{"settings": {}}', '{"settings": [], "facts": {}}', '{"settings": {}, "facts": 1}'):
        told.write_text(damage)
        with pytest.raises(ValueError, match=r"run\.json is not what a run writes there .* another output"):
            pretrain(settings(steps=2))


def test_other_conditions_are_told(settings, tmp_path, caplog, monkeypatch):
    pretrain(settings(steps=4))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    pretrain(settings(steps=4))
    assert "threads was '1' and is '3'" in caplog.text and "no longer bit for bit" in caplog.text


# ---- numbers that are not finite


@pytest.fixture
def poisoned(monkeypatch):
    """The third step's gradients are not finite."""
    made = Engine._update

    def update(self, loss, sums, rate):
        self.steps_seen = getattr(self, "steps_seen", 0) + 1
        if self.steps_seen == 3:
            parameter = next(iter(self.parameters.values()))
            parameter.grad = paddle.full_like(parameter, float("inf"))
        return made(self, loss, sums, rate)

    monkeypatch.setattr(Engine, "_update", update)


def test_a_step_that_is_not_finite_is_skipped_and_counted(settings, tmp_path, poisoned, caplog):
    pretrain(settings(steps=5))
    assert [line["updated"] for line in losses(tmp_path / "run")] == [True, True, False, True, True]
    assert "Step 3 was skipped (1 so far)" in caplog.text
    assert checkpoints.newest(tmp_path / "run" / "checkpoints").facts["skipped"] == 1
    assert all(np.isfinite(line["loss"]) for line in losses(tmp_path / "run"))


def test_or_stops_the_run_with_its_batch(settings, tmp_path, poisoned):
    with pytest.raises(NonFiniteError, match=r"Step 3: .*norm inf.*not-finite-step-3-process-0.npz"):
        pretrain(settings(steps=5, on_nonfinite="stop"))
    with np.load(tmp_path / "run" / "not-finite-step-3-process-0.npz") as batch:
        assert batch["0.input_ids"].shape[0] == 8
    assert checkpoints.newest(tmp_path / "run" / "checkpoints").step == 2


def test_a_run_that_has_diverged_ends(settings, tmp_path):
    with pytest.raises(NonFiniteError, match=r"as in the 9 steps before it.*Lower the learning rate"):
        pretrain(settings(steps=30, learning_rate=1e30))
    assert [line["updated"] for line in losses(tmp_path / "run")] == [True, *[False] * 9]  # the tenth ended it
    with pytest.raises(ValueError, match="learning_rate must be above 0 and finite"):
        settings(learning_rate=float("inf"))


# ---- several processes


def _several(settings, tmp_path, steps, *flags):
    small = {**settings().config, **NO_DROPOUT}
    alone = settings(steps=steps, config=small, output=str(tmp_path / "alone"), eval_every=steps, eval_examples=12)
    pretrain(alone)
    file = written(alone, tmp_path, output=str(tmp_path / "both"), micro_batch_size=2)
    launched(file, 2, tmp_path / "logs", *flags)
    one, two = losses(tmp_path / "alone"), losses(tmp_path / "both")
    assert len(one) == len(two) == steps + 1
    return max(abs(a["mlm_loss"] - b["mlm_loss"]) / a["mlm_loss"] for a, b in zip(one, two))


def fleet_takes_settings():
    """Paddle 2.6's does not, with protobuf 6 and later."""
    from paddle.distributed import fleet

    return hasattr(fleet.DistributedStrategy(), "hybrid_configs")


@pytest.mark.skipif(fleet_takes_settings(), reason="this Paddle's fleet takes its settings")
def test_sharding_without_fleet_is_refused(settings, tmp_path):
    file = written(settings(), tmp_path)
    with pytest.raises(AssertionError, match="sharding needs Paddle's fleet, .* pip install 'protobuf<6'"):
        launched(file, 2, tmp_path / "logs", "--sharding", "true")


def test_ctrl_c_in_the_launchers_terminal(settings, tmp_path):
    """It reaches the launcher and its processes, and the launcher says SIGTERM to them besides."""
    file = written(settings(steps=400, eval_every=None), tmp_path)
    process = subprocess.Popen(
        [*launcher(2, tmp_path / "logs"), "pretrain", str(file)],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and len(losses(tmp_path / "run")) < 3:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=100)
    log = (tmp_path / "logs" / "workerlog.0").read_text()
    saved = checkpoints.newest(tmp_path / "run" / "checkpoints")
    assert saved is not None and saved.step == len(losses(tmp_path / "run")) < 400, log
    assert re.search(f"stopped  by SIG(INT|TERM) after step {saved.step};", log), log  # whichever came first


@pytest.mark.parametrize("sharding", ["false", "true"])
def test_two_processes_equal_one(sharding, settings, tmp_path):
    """float32 sums in another order: rulings 15 measured 1.6e-7 over 50 steps."""
    if sharding == "true" and not fleet_takes_settings():
        pytest.skip("this Paddle's fleet does not take its settings")
    assert _several(settings, tmp_path, 5, "--sharding", sharding) <= 1e-6
    shares = len(list((tmp_path / "both" / "checkpoints").glob("step-*/optimizer-*")))
    assert shares == (2 if sharding == "true" else 1)
    # What two processes wrote, one takes up.
    saved = checkpoints.newest(tmp_path / "both" / "checkpoints")
    names = {key.rpartition("/")[0] for key in saved.optimizer_arrays()}
    assert "nezha.embeddings.word_embeddings.weight" in names and "cls.seq_relationship.bias" in names


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["false", "true"])
def test_two_processes_equal_one_over_50_steps(sharding, settings, tmp_path):
    assert _several(settings, tmp_path, 50, "--sharding", sharding) <= 1e-6


# ---- settings


def test_settings_from_a_file_and_flags(settings, tmp_path, capsys, monkeypatch):
    from paddle_nezha.cli import main

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = written(settings(), tmp_path)
    assert main(["pretrain", str(file), "--steps", "2", "--learning-rate", "2e-3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["learning_rate"] == 2e-3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("batchsize: 3", "there is no setting 'batchsize'; did you mean batch_size?"),
        ("steps: many", "steps must be a whole number, but got 'many'"),
        ("steps: 1.5", "steps must be a whole number, but got 1.5"),
        ("whole_word: perhaps", "whole_word must be true or false, but got 'perhaps'"),
        ("config: [1]", r"config must be a mapping such as \{name: value\}, but got \[1\]"),
        ("optimizer: sgd", "optimizer must be lamb or adamw, but is 'sgd'"),
        ("batch_size: 0", "batch_size must be above 0 and finite, but is 0"),
        ("beta2: 1", "beta2 must be at least 0 and below 1, but is 1"),
        ("warmup_steps: 9", r"warmup_steps \(9\) must not be above steps \(2\)"),
        ("mask_probability: 2", "mask_probability must be a number from 0 to 1"),
        ("model: x\nconfig: {hidden_size: 2}", "Give model, .* or config"),
        ("- 1", "must hold lines such as `batch_size: 32`"),
        ("a: [", "is no YAML file"),
    ],
)
def test_wrong_settings(line, message, tmp_path, capsys):
    from paddle_nezha.cli import main

    file = tmp_path / "config.yaml"
    needed = (
        "" if line.startswith("- ") else "corpus: c\noutput: o\n" + ("" if line.startswith("steps:") else "steps: 2\n")
    )
    file.write_text(needed + line, encoding="utf-8")
    assert main(["pretrain", str(file)]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_missing_settings(tmp_path, capsys):
    from paddle_nezha.cli import main

    assert main(["pretrain", "--corpus", "c"]) == 2
    assert "the command line: output, steps must be given." in capsys.readouterr().err


def test_a_batch_that_cannot_be_cut(settings):
    with pytest.raises(ValueError, match=r"micro_batch_size \(3\) must divide .* 8 examples"):
        pretrain(settings(micro_batch_size=3))
    with pytest.raises(ValueError, match=r"batch_size \(8\) must be a multiple of the 3 processes"):
        settings().micro_batches(3)


def test_absolute_positions_bound_the_length(settings):
    small = {**settings().config, "use_relative_position": False, "max_position_embeddings": 16}
    with pytest.raises(ValueError, match=r"max_length \(32\) is beyond the model's max_position_embeddings \(16\)"):
        pretrain(settings(config=small))


def test_defaults_are_the_papers(corpus):
    plain = PretrainingSettings(corpus=str(corpus), output="x", steps=1000)
    assert (plain.optimizer, plain.max_length, plain.whole_word, plain.next_sentence) == ("lamb", 128, True, True)
    assert plain.warmup == 10 and plain.clip_norm == 1.0 and plain.weight_decay == 0.01
