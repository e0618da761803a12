"""Exported folders: what they hold, that Paddle Inference gives dygraph's numbers with them, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference import error

import paddle_nezha
from paddle_nezha import export as exporting
from paddle_nezha import operator
from paddle_nezha._paddle import paddle
from paddle_nezha.attention import FORM_VARIABLE
from paddle_nezha.checkpoint import CheckpointError
from paddle_nezha.cli import main
from paddle_nezha.export import LIBRARY_NAME, RECORD_NAME, export
from paddle_nezha.heads import (
    NeZhaForMaskedLM,
    NeZhaForMultipleChoice,
    NeZhaForQuestionAnswering,
    NeZhaForSequenceClassification,
)
from paddle_nezha.model import NeZhaModel
from paddle_nezha.operator import OperatorError
from weights.demo import FOLDER

ROOT = Path(__file__).resolve().parent.parent
IS_2 = paddle.__version__.startswith("2.")
GRAPH = "model.pdmodel" if IS_2 else "model.json"

pytestmark = [
    # As in test_static.py: of Paddle's own code.
    pytest.mark.filterwarnings(r"ignore:The Attr\(force_cpu\) of Op\(fill_constant\)"),
    pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface"),
]

# On both sides of the 65 from which on distances are clipped, and of 512, where BERT ends.
LENGTHS = (1, 64, 65, 200, 512, 700)
# float32: sums over at most 700 keys in another order; a wrong row of the table is off by 1e-2 and more.
ROUNDING = 2e-5

SERVE = """
import sys, zlib
import numpy as np
import paddle
folder, graph, cases, answers, engine, registered = sys.argv[1:]
if registered == "load_op":
    import paddle_nezha
    paddle_nezha.load_op(folder)
config = paddle.inference.Config(f"{folder}/{graph}", f"{folder}/model.pdiparams")
if graph.endswith(".json"):
    config.enable_new_ir()
    config.enable_new_executor()
config.enable_mkldnn() if engine == "onednn" else config.disable_mkldnn()
config.switch_ir_optim(True)
config.disable_glog_info()
predictor = paddle.inference.create_predictor(config)
given, made = np.load(cases), {}
for case in sorted({name.partition("/")[0] for name in given.files}):
    for name in predictor.get_input_names():
        predictor.get_input_handle(name).copy_from_cpu(given[f"{case}/{name}"])
    predictor.run()
    for index, name in enumerate(predictor.get_output_names()):
        made[f"{case}/{index}"] = predictor.get_output_handle(name).copy_to_cpu()
np.savez(answers, **made)
"""


def python(code, *arguments, **environment):
    """Runs code in a process of its own: a fault of Paddle's may end it."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, errors="replace", timeout=200,
    )  # fmt: skip


def serve(folder, cases, tmp_path, engine="onednn", registered="load_op"):
    """What Paddle Inference gives: the finished process, and its answers by case."""
    np.savez(tmp_path / "cases.npz", **{f"{case}/{name}": x for case, xs in cases.items() for name, x in xs.items()})
    answers = tmp_path / "answers.npz"
    answers.unlink(missing_ok=True)
    done = python(SERVE, folder, GRAPH, tmp_path / "cases.npz", answers, engine, registered)
    return done, dict(np.load(answers)) if answers.is_file() else None


@pytest.fixture
def texts(rng):
    """A factory of inputs by case, each batch with padding but where there is but one token."""

    def make(*leading, lengths=LENGTHS):
        cases = {}
        for length in lengths:
            shape = (*leading, length)
            mask = np.ones(shape, "int64")
            if length > 1:
                mask[0, ..., length - length // 3 :] = 0
            segments = np.broadcast_to(np.arange(length) >= length // 2, shape).astype("int64")
            ids = rng.integers(1, 99, shape)
            cases[str(length)] = {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}
        return cases

    return make


def dygraph(model, case):
    with paddle.no_grad():
        answer = model(**{name: paddle.to_tensor(x) for name, x in case.items()})
    return [x.numpy() for x in (answer if isinstance(answer, tuple) else [answer])]


def assert_served(model, folder, cases, tmp_path, engine, registered):
    done, answers = serve(folder, cases, tmp_path, engine, registered)
    assert done.returncode == 0, done.stderr
    for name, case in cases.items():
        truths = dygraph(model, case)
        assert len(truths) == sum(key.startswith(f"{name}/") for key in answers)
        for index, truth in enumerate(truths):
            assert answers[f"{name}/{index}"].shape == truth.shape
            assert error(answers[f"{name}/{index}"], truth) <= ROUNDING, (name, index)


# ---- the numbers


@pytest.mark.parametrize("engine", ["onednn", "plain"])
@pytest.mark.parametrize("op", [False, True], ids=["operations", "operator"])
def test_paddle_inference_gives_dygraphs_numbers(op, engine, build, texts, tmp_path):
    model = build(NeZhaModel)
    report = export(model, tmp_path / "first", op)
    assert report.outputs == ["last_hidden_state", "pooler_output"]
    folder = tmp_path / "\u670d \u52a1"  # it is whole, so it may be moved
    shutil.move(tmp_path / "first", folder)
    assert_served(model, folder, texts(2), tmp_path, engine, "load_op" if op else "nothing")


@pytest.mark.parametrize("op", [False, True], ids=["operations", "operator"])
def test_multiple_choice_keeps_an_open_number_of_choices(op, build, texts, tmp_path):
    model = build(NeZhaForMultipleChoice)
    export(model, tmp_path / "out", op)
    cases = {f"{c}x{name}": case for c in (2, 3) for name, case in texts(2, c, lengths=(5, 70)).items()}
    assert_served(model, tmp_path / "out", cases, tmp_path, "onednn", "load_op" if op else "nothing")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (NeZhaForMaskedLM, {}),
        (NeZhaModel, {"position_encoding": "parametric_relative"}),
        pytest.param(NeZhaForQuestionAnswering, {}, marks=pytest.mark.slow),
        pytest.param(NeZhaForSequenceClassification, {"num_labels": 3}, marks=pytest.mark.slow),
        pytest.param(
            NeZhaModel, {"position_encoding": "absolute", "max_position_embeddings": 600}, marks=pytest.mark.slow
        ),
    ],
)
def test_heads_and_encodings_with_the_operator(kind, changes, build, texts, tmp_path):
    model = build(kind, **changes)
    export(model, tmp_path / "out", op=True)
    assert_served(model, tmp_path / "out", texts(2, lengths=(1, 65, 200)), tmp_path, "onednn", "load_op")


def test_the_operator_is_in_the_graph_where_it_was_asked_for_alone(build, tmp_path, monkeypatch):
    model = build(NeZhaForMaskedLM)
    monkeypatch.setenv(FORM_VARIABLE, "operator")  # of dygraph; an export says for itself
    export(model, tmp_path / "without")
    export(model, tmp_path / "with", op=True)
    graphs = [(tmp_path / name / GRAPH).read_bytes() for name in ("without", "with")]
    assert b"nezha_attention" not in graphs[0]
    # Joined weights are stored: joined in the graph they would crash Paddle Inference 2.6.2.
    assert graphs[1].count(b"nezha_attention") >= 2 and b"concat" not in graphs[1]
    assert LIBRARY_NAME not in os.listdir(tmp_path / "without")
    sizes = [(tmp_path / name / "model.pdiparams").stat().st_size for name in ("without", "with")]
    assert abs(sizes[1] - sizes[0]) < 1000  # and stored once


def test_a_layer_that_is_not_plain_is_exported_as_it_computes(build, texts, tmp_path):
    model = build(NeZhaModel)
    model.encoder.layer[0].attention.key.register_forward_post_hook(lambda layer, given, made: made * 2)
    export(model, tmp_path / "out", op=True)
    assert b"concat" in (tmp_path / "out" / GRAPH).read_bytes()  # of its results; the other layer's weights are stored
    assert_served(model, tmp_path / "out", texts(2, lengths=(7,)), tmp_path, "plain", "load_op")


def test_the_model_stays_as_it_is(build, ids, tmp_path):
    model, tokens = build(NeZhaForMaskedLM), ids(2, 7)
    model.train()
    model.nezha.encoder.layer[1].eval()
    names = list(model.state_dict())
    modes = [layer.training for layer in model.sublayers()]
    export(model, tmp_path / "out", op=True)
    assert list(model.state_dict()) == names and [layer.training for layer in model.sublayers()] == modes
    assert not any("forward" in vars(layer) for layer in model.sublayers(include_self=True))
    loss = model(tokens, labels=tokens)[0]
    loss.backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "pooler" not in name)


# ---- the folder


def test_a_checkpoint_becomes_a_folder_of_its_own(tmp_path):
    report = export(FOLDER, tmp_path / "out", op=True, head="masked_lm")
    content = json.loads((tmp_path / "out" / RECORD_NAME).read_text(encoding="utf-8"))
    assert sorted(os.listdir(tmp_path / "out")) == report.files == content["files"]
    assert {GRAPH, "model.pdiparams", "config.json", "vocab.txt", LIBRARY_NAME} <= set(report.files)
    assert (content["head"], content["outputs"]) == ("masked_lm", ["logits"])
    assert content["operator"]["Paddle"] == content["paddle"] == paddle.__version__
    assert not report.remarks
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode  # not for the owner alone
    config = paddle_nezha.NeZhaConfig.from_pretrained(tmp_path / "out")
    assert config.architectures == ["NeZhaForMaskedLM"]
    one, other = (paddle_nezha.NeZhaTokenizer.from_pretrained(folder) for folder in (FOLDER, tmp_path / "out"))
    assert one("\u4eca\u5929[MASK]\u4e0a") == other("\u4eca\u5929[MASK]\u4e0a")


def test_the_example_runs(tmp_path):
    export(FOLDER, tmp_path / "served", op=True)
    code = exporting.__doc__.partition("each call:")[2]
    code = "\n".join(line.removeprefix("    ") for line in code.splitlines())
    if IS_2:
        code = code.replace("model.json", "model.pdmodel").replace("config.enable_new", "# ")
    code = code.replace('"served', f'"{tmp_path}/served')
    done = python(f"import zlib\n{code}\nprint([x.shape for x in outputs])")
    assert done.stdout.splitlines()[-1:] == ["[(2, 8, 778), (2, 2)]"], done.stderr


def test_a_model_alone_has_no_tokenizer_unless_given_one(build, tmp_path):
    report = export(build(NeZhaModel), tmp_path / "one")
    assert "vocab.txt" not in report.files and "no tokenizer beside the model" in report.remarks[0]
    for name, tokenizer in (("two", FOLDER), ("three", paddle_nezha.NeZhaTokenizer.from_pretrained(FOLDER))):
        report = export(build(NeZhaModel), tmp_path / name, tokenizer=tokenizer)
        assert "vocab.txt" in report.files and not report.remarks


def test_what_is_there_is_not_overwritten(build, tmp_path):
    model, place = build(NeZhaModel), tmp_path / "out"
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="is a file"):
        export(model, tmp_path / "file")
    place.mkdir()
    export(model, place, op=True)  # an empty folder is filled
    with pytest.raises(FileExistsError, match="holds config.json.*force=True"):
        export(model, place)
    export(model, place, force=True)
    assert LIBRARY_NAME not in os.listdir(place)  # a whole new folder
    (place / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"what no export wrote there \(mine.txt\)"):
        export(model, place, force=True)
    with pytest.raises(FileExistsError, match="what no export wrote there"):
        export(FOLDER, shutil.copytree(FOLDER, tmp_path / "checkpoint"), force=True)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "file", "out"]  # and nothing half done


KILLED = """
import os, signal, sys, zlib
from paddle_nezha._paddle import paddle
from paddle_nezha.export import export
real = paddle.jit.save
def save(*given, **more):
    real(*given, **more)
    os.kill(os.getpid(), int(sys.argv[3]))
paddle.jit.save = save
export(sys.argv[1], sys.argv[2], force=True)
"""


def test_a_killed_export_leaves_no_half_folder(tmp_path):
    place = tmp_path / "out"
    done = python(KILLED, FOLDER, place, signal.SIGKILL.value)
    assert done.returncode == -signal.SIGKILL and not place.exists()
    export(FOLDER, place)
    assert os.listdir(tmp_path) == ["out"]  # what was left of the killed one went
    before = {name: (place / name).read_bytes() for name in os.listdir(place)}
    done = python(KILLED, FOLDER, place, signal.SIGKILL.value)
    assert done.returncode == -signal.SIGKILL
    assert {name: (place / name).read_bytes() for name in os.listdir(place)} == before


def test_a_failed_export_leaves_nothing(build, tmp_path, monkeypatch):
    def fail(*given, **more):
        raise RuntimeError("no")

    monkeypatch.setattr(paddle.jit, "save", fail)
    with pytest.raises(RuntimeError, match="no"):
        export(build(NeZhaModel), tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("what", "options", "kind", "message"),
    [
        (FOLDER, {"head": "sequence_classification"}, CheckpointError, "lacks classifier, without which"),
        (FOLDER, {"head": "lm"}, ValueError, "head must be one of model, pretraining"),
        ("nowhere", {}, FileNotFoundError, "There is no folder 'nowhere'"),
        (paddle.nn.Linear(1, 1), {}, TypeError, "but got a Linear: paddle.jit.save exports"),
        (3, {}, TypeError, "expected a folder or a published name, but got 3"),
    ],
)
def test_what_cannot_be_exported(what, options, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        export(what, tmp_path / "out", **options)
    assert os.listdir(tmp_path) == []


def test_a_model_is_of_one_head(build, tmp_path):
    with pytest.raises(ValueError, match="head='model' chooses from a checkpoint"):
        export(build(NeZhaForMaskedLM), tmp_path / "out", head="model")


# ---- the operator that is not to be had


def test_without_the_operator_an_export_with_it_is_refused(build, tmp_path, monkeypatch):
    monkeypatch.setattr(operator, "_loaded", None)
    monkeypatch.setattr(operator, "_failure", OperatorError("there is no C++ compiler"))
    with pytest.raises(OperatorError, match=r"there is no C\+\+ compiler. Leave op \(--op\) out"):
        export(build(NeZhaModel), tmp_path / "out", op=True)
    assert os.listdir(tmp_path) == []
    export(build(NeZhaModel), tmp_path / "out")


def test_a_model_the_operator_cannot_compute_is_refused(build, tmp_path):
    with pytest.raises(OperatorError, match="float32 and float64 .* but this model is in .*float16 with 8"):
        export(build(NeZhaModel, dtype="float16"), tmp_path / "out", op=True)


def test_a_graph_whose_operator_was_not_registered_fails_in_paddles_words(build, texts, tmp_path):
    export(build(NeZhaModel), tmp_path / "out", op=True)
    done, answers = serve(tmp_path / "out", texts(2, lengths=(5,)), tmp_path, registered="nothing")
    assert done.returncode == 1 and answers is None  # an error, no crash
    said = (
        "Operator (nezha_attention) is not registered"
        if IS_2
        else "kernel output args (0) defs should equal op outputs (2)"
    )
    assert said in done.stderr
    # Who looks for these words finds the cure beside the graph.
    record = json.loads((tmp_path / "out" / RECORD_NAME).read_text(encoding="utf-8"))
    assert said in record["to run"] and "paddle_nezha.load_op" in record["to run"]


@pytest.fixture
def carrying(build, tmp_path):
    """A folder that carries the operator, and a way to change what its record says of it."""
    folder = tmp_path / "out"
    export(build(NeZhaModel, num_hidden_layers=1), folder, op=True)

    def change(**changes):
        content = json.loads((folder / RECORD_NAME).read_text(encoding="utf-8"))
        content["operator"].update(changes)
        (folder / RECORD_NAME).write_text(json.dumps(content), encoding="utf-8")

    return folder, change


def test_load_op_gives_the_library_that_runs(carrying):
    folder, _ = carrying
    assert paddle_nezha.load_op(folder) == paddle_nezha.load_op() == operator.load()  # the same build: loaded once


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Paddle": "3.9.9"}, "was made for Paddle 3.9.9, but this is"),
        ({"processor": "s390x"}, "was made for processor s390x, but this is"),
        ({"system": "Plan9"}, "was made for system Plan9, but this is Linux: export again here"),
        ({"sha256": "0"}, "is not the library that was exported"),
    ],
)
def test_a_library_for_another_place_is_refused(changes, message, carrying):
    folder, change = carrying
    change(**changes)
    with pytest.raises(OperatorError, match=message):
        paddle_nezha.load_op(folder)


def test_a_folder_without_its_library_is_refused(carrying):
    folder, _ = carrying
    (folder / LIBRARY_NAME).unlink()
    with pytest.raises(OperatorError, match=f"exported with {LIBRARY_NAME}, which is not there"):
        paddle_nezha.load_op(folder)


def test_a_file_that_is_no_library_is_refused(carrying, monkeypatch):
    folder, change = carrying
    (folder / LIBRARY_NAME).write_bytes(b"no library")
    change(sha256=paddle_nezha.hub.sha256_of(folder / LIBRARY_NAME))
    monkeypatch.setattr(operator, "_loaded", None)
    with pytest.raises(OperatorError, match="could not be loaded into Paddle"):
        paddle_nezha.load_op(folder)


def test_another_build_in_the_same_process_is_refused(carrying, tmp_path, monkeypatch):
    folder, _ = carrying
    (tmp_path / "other.so").write_bytes(b"another build")
    monkeypatch.setattr(operator, "_loaded", tmp_path / "other.so")
    with pytest.raises(OperatorError, match="already runs another build of the operator, .*other.so"):
        paddle_nezha.load_op(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"operator": []}', '{"operator": {"Paddle": 3}}'])
def test_a_record_that_is_none_is_refused(content, carrying):
    folder, _ = carrying
    (folder / RECORD_NAME).write_text(content, encoding="utf-8")
    with pytest.raises(OperatorError, match="export again"):
        paddle_nezha.load_op(folder)


def test_a_folder_that_needs_no_operator_says_so(build, tmp_path):
    export(build(NeZhaModel), tmp_path / "out")
    with pytest.raises(OperatorError, match="carries no operator and needs none"):
        paddle_nezha.load_op(tmp_path / "out")


def test_a_folder_that_no_export_wrote_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"with {RECORD_NAME}, but got .*nezha-seeded-demo, which holds"):
        paddle_nezha.load_op(FOLDER)
    with pytest.raises(FileNotFoundError, match="which is no folder"):
        paddle_nezha.load_op(tmp_path / "nowhere")


# ---- the command


def test_the_command_exports(capsys, tmp_path):
    assert main(["export", str(FOLDER), str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"wrote    {tmp_path / 'a'}: config.json, export.json, model.")
    assert out[1:] == [
        "inputs   input_ids, token_type_ids, attention_mask: int64, any batch and length",
        "outputs  prediction_logits, seq_relationship_logits (pretraining)",
        "operator none: it runs wherever Paddle Inference does",
    ]
    assert main(["export", str(FOLDER), str(tmp_path / "b"), "--op", "--head", "masked_lm"]) == 0
    assert f"operator for Paddle {paddle.__version__}, system Linux, processor " in capsys.readouterr().out
    assert main(["export", str(FOLDER), str(tmp_path / "b"), "--force", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["operator"] is None and content["files"] == sorted(os.listdir(tmp_path / "b"))


def test_the_command_says_what_it_cannot(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(operator, "_loaded", None)
    monkeypatch.setattr(operator, "_failure", OperatorError("there is no C++ compiler"))
    assert main(["export", str(FOLDER), str(tmp_path / "a"), "--op", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("paddle-nezha: An export with the operator needs it here")
    assert json.loads(captured.out)["error"] in captured.err
    assert main(["export", "nowhere", str(tmp_path / "a")]) == 2
    assert "There is no folder 'nowhere'" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_the_command_without_paddle_names_the_way(tmp_path):
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "paddle":
            raise ModuleNotFoundError(f"No module named {name!r}", name="paddle")
sys.meta_path.insert(0, Blocked())
from paddle_nezha.cli import main
sys.exit(main(["export", *sys.argv[1:]]))
"""
    done = python(code, FOLDER, tmp_path / "out")
    assert done.returncode == 2 and "pip install 'paddle_nezha[cpu]'" in done.stderr and "Traceback" not in done.stderr


def test_the_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert "examples:\n  paddle-nezha export ./my-model ./served" in capsys.readouterr().out
