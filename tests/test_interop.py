"""PaddleNLP's Trainer and Auto classes over our models, in processes of their own (`paddlenlp_trainer.py`)."""

import json
import sys
from pathlib import Path

import pytest
from pythons import in_a_process

from paddle_nezha.interop import register

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "weights" / "nezha-seeded-demo"
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
every_head = pytest.mark.parametrize("head", HEADS)
# Of a checkpoint: model, config, tokenizer, optimizer, schedule, random generators, the Trainer's state and arguments.
COMPLETE = {
    "config.json",
    "model_state.pdparams",
    "optimizer.pdopt",
    "rng_state.pth",
    "scheduler.pdparams",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "trainer_state.json",
    "training_args.bin",
    "vocab.txt",
}


def trainer(command, folder):
    in_a_process(Path(__file__).with_name("paddlenlp_trainer.py"), command, folder)


def read(file):
    return json.loads(file.read_text())


def test_without_paddlenlp_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddlenlp", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install --no-deps paddlenlp==3\.0\.0b4"):
        register()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which each head was trained for 10 steps by one process, and reopened by another."""
    folder = tmp_path_factory.mktemp("trained")
    trainer("train", folder)
    trainer("reopen", folder)
    return folder


@pytest.mark.oracle
@every_head
def test_the_trainer_trains(trained, head):
    losses = read(trained / f"{head}.json")
    assert losses["after"] < losses["before"]


@pytest.mark.oracle
@every_head
@pytest.mark.parametrize("step", [5, 10])
def test_a_checkpoint_is_complete(trained, head, step):
    assert {file.name for file in (trained / head / f"checkpoint-{step}").iterdir()} >= COMPLETE


@pytest.mark.oracle
@every_head
def test_a_saved_model_says_what_it_is(trained, head):
    config = read(trained / head / "final" / "config.json")
    assert config["architectures"] == [f"NeZhaFor{head}"] and config["model_type"] == "nezha"
    assert not set(config) - set(read(DEMO / "config.json"))  # nothing of PaddleNLP's crept in


@pytest.mark.oracle
@every_head
@pytest.mark.parametrize("by", ["ours", "auto", "load"])
def test_a_new_process_predicts_the_same(trained, head, by):
    assert read(trained / "reopened.json")[head][by] is True


@pytest.mark.oracle
@every_head
def test_the_auto_classes_open_it_as_both(trained, head):
    found = read(trained / "reopened.json")[head]
    assert found["auto is"] == ["NeZhaPretrainedModel", "PretrainedModel"]
    assert found["config"] == [f"NeZhaFor{head}"] and len(found["tokenizer"]) == 4


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resumed")
    trainer("whole", folder)
    trainer("resume", folder)
    return folder


@pytest.mark.oracle
@pytest.mark.parametrize("form", ["plain", "unified"])
def test_a_resumed_run_ends_where_the_whole_one_did(resumed, form):
    """With dropout, from the checkpoint of step 5, in a new process: bit for bit."""
    assert read(resumed / f"{form}.json") == {"steps": 10, "apart": 0.0}


@pytest.mark.oracle
def test_unified_checkpoints_open(resumed):
    import paddle_nezha

    folder = resumed / "unified" / "SequenceClassification" / "checkpoint-10"
    assert (folder / "model.safetensors.index.json").exists()
    assert isinstance(paddle_nezha.load(folder), paddle_nezha.NeZhaForSequenceClassification)


AUTO = """
import os, pickle, zlib
from paddle_nezha.interop import register
import paddlenlp.transformers as theirs  # before `register` as well as after it
register(), register()
import paddle, paddle_nezha as ours
from paddlenlp.trainer import trainer

demo, old = {demo!r}, {old!r}
assert [c.__name__ for c in trainer.DEFAULT_CALLBACKS].count("TakeNeZha") == 1  # the second call changed nothing
config = theirs.AutoConfig.from_pretrained(demo, num_labels=5)
assert isinstance(config, ours.NeZhaConfig) and config.num_labels == 5
assert isinstance(theirs.AutoConfig.from_pretrained("nezha-base-chinese"), ours.NeZhaConfig)
heads = ("Pretraining", "MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")
for head in (*heads, "MultipleChoice"):
    for model in (
        getattr(theirs, "AutoModelFor" + head).from_pretrained(demo),
        theirs.AutoModel.from_pretrained(demo, task="For" + head),
    ):
        assert isinstance(model, getattr(ours, "NeZhaFor" + head)), model
        assert isinstance(model, theirs.PretrainedModel), model
model = theirs.AutoModelForSequenceClassification.from_pretrained(demo, config=config)
assert model.num_labels == 5 and model.base_model is model.nezha
assert pickle.loads(pickle.dumps(type(model))) is type(model)
tokenizer = theirs.AutoTokenizer.from_pretrained(demo)
assert isinstance(tokenizer, ours.NeZhaTokenizer)
assert isinstance(theirs.AutoTokenizer.from_pretrained(old), ours.NeZhaTokenizer)
try:
    theirs.AutoModelForCausalLM.from_pretrained(demo)
except AttributeError as error:
    assert "only supports the following classes: NeZhaModel" in str(error), error
else:
    raise AssertionError("a decoder was found")
try:
    model.save_pretrained({folder!r}, variant="tp00", save_function=paddle.save)
except ValueError as error:
    assert "data parallelism" in str(error), error
else:
    raise AssertionError("a part was saved as the whole")
model.save_pretrained({folder!r}, is_main_process=False)
assert not os.path.exists({folder!r})
# PaddleNLP's own classes are where they were.
assert not issubclass(theirs.NeZhaModel, ours.NeZhaPretrainedModel)
assert not isinstance(ours.NeZhaModel.from_pretrained(demo), theirs.PretrainedModel)
"""


@pytest.mark.oracle
def test_the_auto_classes(tmp_path):
    old = tmp_path / "old"  # as older releases of PaddleNLP wrote it: no tokenizer_class
    old.mkdir()
    for name in ("config.json", "vocab.txt"):
        (old / name).write_bytes((DEMO / name).read_bytes())
    (old / "tokenizer_config.json").write_text('{"do_lower_case": true, "init_class": "NeZhaTokenizer"}')
    in_a_process("-c", AUTO.format(demo=DEMO.as_posix(), old=old.as_posix(), folder=str(tmp_path / "part")))
