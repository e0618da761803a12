"""Folders to models and back."""

import json
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import paddle_nezha
from paddle_nezha import CheckpointError, NeZhaConfig
from paddle_nezha._paddle import paddle
from paddle_nezha.auto import MODEL_CLASSES, head_of
from paddle_nezha.checkpoint import parameter_shapes, pdparams, safetensors

ROOT = Path(__file__).resolve().parent.parent
SHELF = ROOT / "weights" / "nezha-seeded-demo"
HEADS = sorted(MODEL_CLASSES)


@pytest.mark.parametrize("weights", ["safetensors", "pdparams"])
@pytest.mark.parametrize("head", HEADS)
def test_a_saved_model_comes_back_bit_for_bit(head, weights, tiny, tmp_path):
    model = MODEL_CLASSES[head](tiny(num_labels=3))
    model.save_pretrained(tmp_path, weights=weights)
    again = MODEL_CLASSES[head].from_pretrained(tmp_path)
    assert again.config.architectures == [MODEL_CLASSES[head].__name__]
    before, after = model.state_dict(), again.state_dict()
    assert list(before) == list(after)
    for name in before:
        np.testing.assert_array_equal(before[name].numpy(), after[name].numpy(), err_msg=name)


@pytest.mark.parametrize("head", HEADS)
def test_load_finds_the_class_by_architecture_and_by_tensors(head, tiny, tmp_path):
    MODEL_CLASSES[head](tiny()).save_pretrained(tmp_path)
    assert type(paddle_nezha.load(tmp_path)) is MODEL_CLASSES[head]
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": None}))
    if head in ("sequence_classification", "token_classification", "multiple_choice", "question_answering"):
        with pytest.raises(ValueError, match="may classify texts, tokens or choices"):
            head_of(tmp_path)
    else:
        assert head_of(tmp_path) == head


@pytest.mark.parametrize(
    "architecture, head",
    [
        ("NezhaForPreTraining", "pretraining"),
        ("NezhaForMaskedLM", "masked_lm"),
        ("BertForQuestionAnswering", "question_answering"),
    ],
)
def test_architectures_of_other_code_bases_are_understood(architecture, head, tiny, tmp_path):
    tiny(architectures=[architecture]).save_pretrained(tmp_path)
    assert head_of(tmp_path) == head


@pytest.mark.parametrize("head", HEADS)
def test_the_list_of_parameters_is_the_models_own(head, tiny):
    for encoding in ("functional_relative", "parametric_relative", "absolute"):
        config = tiny(position_encoding=encoding)
        state = MODEL_CLASSES[head](config).state_dict()
        assert {name: tuple(value.shape) for name, value in state.items()} == parameter_shapes(config, head)


def test_deviates_from_pretrained_gives_eval_mode(tiny, tmp_path, ids):
    config = tiny(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    paddle_nezha.NeZhaForMaskedLM(config).save_pretrained(tmp_path)
    model = paddle_nezha.NeZhaForMaskedLM.from_pretrained(tmp_path)
    assert not model.training
    text = ids(2, 7)
    np.testing.assert_array_equal(model(text).numpy(), model(text).numpy())
    assert paddle_nezha.NeZhaForMaskedLM.from_pretrained(tmp_path, train=True).training


def test_the_tied_decoder_stays_tied_and_is_stored_once(tiny, tmp_path):
    model = paddle_nezha.NeZhaForPretraining(tiny())
    model.save_pretrained(tmp_path)
    assert "cls.predictions.decoder_weight" not in safetensors.read(tmp_path / "model.safetensors")
    again = paddle_nezha.NeZhaForPretraining.from_pretrained(tmp_path)
    assert again.cls.predictions.decoder_weight is again.nezha.embeddings.word_embeddings.weight


def test_q15_no_position_table_is_ever_stored(tiny, tmp_path):
    model = paddle_nezha.NeZhaForPretraining(tiny())
    model(paddle.to_tensor(np.full((1, 5), 3)))
    model.save_pretrained(tmp_path)
    stored = safetensors.read(tmp_path / "model.safetensors")
    assert sum(array.nbytes for array in stored.values()) == sum(4 * p.size for _, p in model.named_parameters())
    assert not [name for name in stored if "relative" in name or "position" in name]


def test_a_head_that_is_new_is_reported_and_nothing_else_may_be(tiny, tmp_path, caplog):
    paddle_nezha.NeZhaModel(tiny()).save_pretrained(tmp_path)
    with caplog.at_level("WARNING", logger="paddle_nezha"):
        model = paddle_nezha.NeZhaForSequenceClassification.from_pretrained(tmp_path, num_classes=5)
    assert model.classifier.weight.shape[1] == 5
    assert "new, to be trained: classifier" in caplog.text and "model.safetensors" in caplog.text


def test_q05_what_does_not_fit_is_one_error_that_lists_it_all(tiny, tmp_path):
    model = paddle_nezha.NeZhaModel(tiny())
    model.save_pretrained(tmp_path, weights="pdparams")
    arrays = pdparams.read(tmp_path / "model_state.pdparams")
    arrays["pooler.dense.weight"] = np.zeros((3, 3), np.float32)
    arrays["pooler.dense.bias"][0] = np.nan
    arrays["encoder.layer.0.ffn.wieght"] = arrays.pop("encoder.layer.0.ffn.weight")
    pdparams.write(tmp_path / "model_state.pdparams", arrays)
    with pytest.raises(CheckpointError) as caught:
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path)
    for part in ("model_state.pdparams", "missing (1)", "encoder.layer.0.ffn.weight", "unexpected (1)", "ffn.wieght",
                 "mis-shaped (1)", "[3, 3]", "not finite", "pooler.dense.bias"):  # fmt: skip
        assert part in str(caught.value)


def test_a_refused_checkpoint_changes_nothing(tiny):
    model = paddle_nezha.NeZhaModel(tiny())
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    arrays = {name: value + 1 for name, value in before.items()}
    arrays.pop("pooler.dense.bias")
    with pytest.raises(CheckpointError, match="pooler.dense.bias"):
        model.load_arrays(arrays)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_q63_a_bert_checkpoint_is_refused_with_the_remedy_and_opens_as_bert(tiny, tmp_path, ids):
    bert = paddle_nezha.NeZhaModel(tiny(use_relative_position=False))
    bert.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="use_relative_position=False"):
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path, use_relative_position=True)
    again = paddle_nezha.NeZhaModel.from_pretrained(tmp_path)
    bert.eval()
    text = ids(2, 7)
    np.testing.assert_array_equal(again(text)[0].numpy(), bert(text)[0].numpy())


def test_q26_a_folder_without_weights_says_what_was_looked_for_and_what_is_there(tiny, tmp_path):
    tiny().save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileNotFoundError) as caught:
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path)
    for part in ("model.safetensors", "model_state.pdparams", "config.json, notes.txt"):
        assert part in str(caught.value)


def test_a_folder_without_config_or_no_folder_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match="looked for config.json, model_config.json, bert_config.json"):
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path / "absent")
    (tmp_path / "a.pdparams").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="is a file: give the folder"):
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path / "a.pdparams")


def test_a_published_name_that_cannot_be_fetched_says_where_its_files_are(monkeypatch, tmp_path):
    monkeypatch.setenv("PADDLE_NEZHA_OFFLINE", "1")
    monkeypatch.setenv("PADDLE_NEZHA_HOME", str(tmp_path))
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path))
    for opens in (paddle_nezha.NeZhaModel.from_pretrained, paddle_nezha.load):
        with pytest.raises(OSError, match=r"https://.*/nezha-base-chinese\.pdparams"):
            opens("nezha-base-chinese")
    assert NeZhaConfig.from_pretrained("nezha-large-chinese").num_hidden_layers == 24


def test_q32_chinese_characters_and_spaces_in_the_path(tiny, tmp_path):
    folder = tmp_path / "模型 目录"
    for weights in ("safetensors", "pdparams"):
        paddle_nezha.NeZhaModel(tiny()).save_pretrained(folder, weights=weights)
        assert paddle_nezha.load(folder).config == tiny(architectures=["NeZhaModel"])
        shutil.rmtree(folder)


def test_opening_works_in_a_read_only_folder_and_writes_nothing(tmp_path):
    folder = tmp_path / "shelf"
    shutil.copytree(SHELF, folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for file in [*folder.iterdir(), folder]:
        file.chmod(file.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    paddle_nezha.load(folder)
    paddle_nezha.NeZhaTokenizer.from_pretrained(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    folder.chmod(0o755)


def test_a_float64_model_keeps_its_digits(tiny, tmp_path):
    model = paddle_nezha.NeZhaModel(tiny())
    model.to(dtype="float64")
    with paddle.no_grad():
        model.pooler.dense.bias.set_value(np.full([32], 1 / 3))
    model.save_pretrained(tmp_path)
    assert (safetensors.read(tmp_path / "model.safetensors")["pooler.dense.bias"] == 1 / 3).all()


def test_an_unknown_word_for_weights_is_refused(tiny, tmp_path):
    with pytest.raises(ValueError, match="'safetensors' or 'pdparams', but got 'bin'"):
        paddle_nezha.NeZhaModel(tiny()).save_pretrained(tmp_path / "new", weights="bin")
    assert not (tmp_path / "new").exists()


def test_paddle_load_opens_what_save_pretrained_wrote(tiny, tmp_path):
    model = paddle_nezha.NeZhaForPretraining(tiny())
    model.save_pretrained(tmp_path, weights="pdparams")
    loaded = paddle.load(os.fspath(tmp_path / "model_state.pdparams"))
    assert sorted(loaded) == sorted(model.state_dict())
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(np.asarray(loaded[name]), value.numpy())


def test_two_processes_load_the_same_numbers():
    code = (
        "import paddle_nezha, sys, zlib\n"
        f"model = paddle_nezha.load({str(SHELF)!r})\n"
        "print(zlib.crc32(b''.join(p.numpy().tobytes() for p in model.state_dict().values())))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        for _ in range(2)
    ]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout.splitlines()[-1] == runs[1].stdout.splitlines()[-1]


@pytest.mark.parametrize("name", ["nezha-cn-12L768H", "nezha-en-12L768H"])
def test_names_of_paddlenlps_documentation_answer_with_what_they_meant(name):
    for opens in (NeZhaConfig.from_pretrained, paddle_nezha.NeZhaModel.from_pretrained, paddle_nezha.load):
        with pytest.raises(FileNotFoundError, match="PaddleNLP's documentation lists it"):
            opens(name)


def test_a_folder_saved_again_in_another_format_holds_the_new_weights_alone(tiny, tmp_path):
    first, second = paddle_nezha.NeZhaModel(tiny()), paddle_nezha.NeZhaModel(tiny())
    for weights in ("safetensors", "pdparams", "safetensors"):
        first.save_pretrained(tmp_path, weights=weights)
        other = "pdparams" if weights == "safetensors" else "safetensors"
        second.save_pretrained(tmp_path, weights=other)
        again = paddle_nezha.NeZhaModel.from_pretrained(tmp_path)
        np.testing.assert_array_equal(again.pooler.dense.weight.numpy(), second.pooler.dense.weight.numpy())
        assert len(list(tmp_path.iterdir())) == 2


def test_a_torch_file_that_would_be_opened_first_is_not_saved_beside(tiny, tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(ValueError, match="pytorch_model.bin, which would be opened in place"):
        paddle_nezha.NeZhaModel(tiny()).save_pretrained(tmp_path, weights="pdparams")


def test_a_config_that_two_models_share_is_saved_as_each_of_them_is(tiny, tmp_path):
    config = tiny()
    one, other = paddle_nezha.NeZhaForMaskedLM(config), paddle_nezha.NeZhaForMaskedLM(config)
    one.resize_token_embeddings(120)
    for model, rows in ((one, 120), (other, 99)):
        model.save_pretrained(tmp_path)
        assert paddle_nezha.load(tmp_path).config.vocab_size == rows


def test_a_config_that_no_longer_describes_the_model_is_not_saved(tiny, tmp_path):
    model = paddle_nezha.NeZhaForSequenceClassification(tiny(num_labels=3))
    model.config.num_labels = 5
    with pytest.raises(ValueError, match=r"classifier.weight has shape \[32, 3\], and by the config it is \[32, 5\]"):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_numbers_too_large_for_the_model_are_refused_and_open_in_their_own_dtype(tiny, tmp_path):
    model = paddle_nezha.NeZhaModel(tiny())
    model.save_pretrained(tmp_path)
    arrays = safetensors.read(tmp_path / "model.safetensors")
    arrays["pooler.dense.bias"] = np.full(32, 1e300)
    safetensors.write(tmp_path / "model.safetensors", arrays)
    with pytest.raises(CheckpointError, match=r"pooler.dense.bias holds numbers up to 1e\+300.*dtype='float64'"):
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path)
    assert (paddle_nezha.NeZhaModel.from_pretrained(tmp_path, dtype="float64").pooler.dense.bias.numpy() == 1e300).all()


def test_integers_in_safetensors_are_no_bfloat16(tiny, tmp_path):
    paddle_nezha.NeZhaModel(tiny()).save_pretrained(tmp_path)
    arrays = safetensors.read(tmp_path / "model.safetensors")
    arrays["pooler.dense.bias"] = np.full(32, 3, np.uint16)
    safetensors.write(tmp_path / "model.safetensors", arrays)
    with pytest.raises(CheckpointError, match=r"pooler.dense.bias: expected \[32\], found \[32\] of uint16"):
        paddle_nezha.NeZhaModel.from_pretrained(tmp_path)


def test_other_shapes_can_be_ignored_and_are_reported(tiny, tmp_path, caplog):
    paddle_nezha.NeZhaForSequenceClassification(tiny(num_labels=3)).save_pretrained(tmp_path)
    with caplog.at_level("WARNING", logger="paddle_nezha"):
        model = paddle_nezha.NeZhaForSequenceClassification.from_pretrained(
            tmp_path, num_labels=5, ignore_mismatched_sizes=True
        )
    assert (
        model.classifier.weight.shape[1] == 5 and "classifier.weight (expected [32, 5], found [32, 3])" in caplog.text
    )


def test_files_are_readable_by_whom_the_umask_allows(tiny, tmp_path):
    before = os.umask(0o022)
    try:
        for weights in ("pdparams", "safetensors"):
            paddle_nezha.NeZhaModel(tiny()).save_pretrained(tmp_path, weights=weights)
            assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o644}
    finally:
        os.umask(before)


def test_threads_may_save_into_one_folder(tiny, tmp_path):
    models = [paddle_nezha.NeZhaModel(tiny()) for _ in range(3)]

    def save(model):
        for _ in range(5):
            model.save_pretrained(tmp_path)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(save, models))
    paddle_nezha.load(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_saves_of_two_formats_at_once_leave_one_whole_model(build, tmp_path):
    model = build(paddle_nezha.NeZhaModel)

    def save(number):
        for turn in range(8):
            model.save_pretrained(tmp_path, weights=("safetensors", "pdparams")[(number + turn) % 2])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(4)))
    assert len(list(tmp_path.iterdir())) == 2  # the config and one file of weights
    assert paddle_nezha.NeZhaModel.from_pretrained(tmp_path).config == model.config.from_pretrained(tmp_path)


def test_saves_of_two_formats_by_two_processes_leave_one_whole_model(build, tmp_path):
    build(paddle_nezha.NeZhaModel).save_pretrained(tmp_path)
    script = (
        "import sys, paddle_nezha\n"
        "model = paddle_nezha.NeZhaModel.from_pretrained(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.read()\n"
        "for turn in range(25): model.save_pretrained(sys.argv[1], weights=sys.argv[2])\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    savers = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path, form], **pipes)
        for form in ("safetensors", "pdparams")
    ]
    for saver in savers:
        assert saver.stdout.readline() == b"ready\n"
    for saver in savers:
        saver.stdin.close()
    assert [saver.wait() for saver in savers] == [0, 0]
    for saver in savers:
        saver.stdout.close()
    assert len(list(tmp_path.iterdir())) == 2
    paddle_nezha.NeZhaModel.from_pretrained(tmp_path)


def test_a_config_that_cannot_be_written_leaves_the_folder_as_it_was(build, tmp_path):
    model = build(paddle_nezha.NeZhaModel)
    model.save_pretrained(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with paddle.no_grad():
        model.embeddings.word_embeddings.weight.scale_(2.0)
    model.config.best = []
    model.config.best.append(object())
    with pytest.raises(ValueError, match="note 'best'"):
        model.save_pretrained(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
