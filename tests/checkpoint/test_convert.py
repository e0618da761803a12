import copy
import json
import os
from pathlib import Path

import numpy as np
import pytest

from paddle_nezha.checkpoint import (
    DIALECTS,
    HEADS,
    CheckpointError,
    pdparams,
    safetensors,
    tensorflow,
    torch_files,
)
from paddle_nezha.checkpoint import convert as module
from paddle_nezha.checkpoint.configs import to_foreign
from paddle_nezha.checkpoint.convert import TARGETS, convert
from paddle_nezha.config import NeZhaConfig

CELLS = [(to, names) for to, target in TARGETS.items() for names in target.names]
CLASSIFIERS = ("sequence_classification", "token_classification", "question_answering", "multiple_choice")
DECODER, WORDS = "cls.predictions.decoder_weight", "nezha.embeddings.word_embeddings.weight"
QUERY = "nezha.encoder.layer.0.attention.query.weight"
SAMPLE = Path(__file__).parent / "tensorflow_sample" / "single"
# Of the TensorFlow sample; its layers hold square matrices that a turn would hide in.
SAMPLE_CONFIG = {
    "vocab_size": 31,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 19,
    "hidden_act": "gelu",
    "use_relative_position": True,
}


@pytest.fixture
def source(tiny, weights, tmp_path):
    """A folder of ours: `source(head, change)`, `change(config, arrays)` applied before it is written."""

    def make(head="pretraining", change=lambda config, arrays: None):
        config, arrays = copy.copy(tiny), weights(tiny, head)
        config.architectures = to_foreign(NeZhaConfig(), "paddlenlp", head)["architectures"]
        if head == "multiple_choice":
            config.num_labels = 4
        change(config, arrays)
        folder = tmp_path / "source"
        config.save_pretrained(folder)
        pdparams.write(folder / "model_state.pdparams", arrays)
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n今\n", encoding="utf-8")
        return folder

    return make


def snapshot(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def settings(folder, name="tokenizer_config.json"):
    return json.loads((folder / name).read_text(encoding="utf-8"))


# ---- there and back


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("to", "names"), CELLS)
def test_ours_to_theirs_to_ours_gives_identical_bytes(source, tmp_path, to, names, head):
    folder, there, back = source(head), tmp_path / "there", tmp_path / "back"
    before = snapshot(folder)
    if names == "bert4torch" and head in CLASSIFIERS:
        with pytest.raises(CheckpointError, match="bert4torch has no names for classifier.weight, classifier.bias, so"):
            convert(folder, there, to, names=names)
        assert not there.exists()
        return
    report = convert(folder, there, to, names=names)
    assert (report.head, report.names, report.dialect) == (head, names, "paddlenlp")
    assert sorted(path.name for path in there.iterdir()) == report.files
    # Where the tensors do not tell the head, Huawei's config does not either, nor how many classes there are.
    lost = {"num_labels": 6} if names == "huawei" else {}
    convert(there, back, "pdparams", head=head, overrides=lost)
    ours, returned = pdparams.read(folder / "model_state.pdparams"), pdparams.read(back / "model_state.pdparams")
    assert set(ours) == set(returned)
    for name, array in ours.items():
        assert (returned[name].tobytes(), returned[name].dtype) == (array.tobytes(), array.dtype), name
    assert snapshot(folder) == before
    assert (back / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()


@pytest.mark.parametrize("to", ["paddle", "pdparams"])
def test_a_folder_of_ours_comes_back_with_its_config(source, tmp_path, to):
    def change(config, arrays):
        config.layer_norm_eps, config.unread = 1e-5, {"someone": "else's"}

    folder = source("token_classification", change)
    convert(folder, tmp_path / "there", to)
    assert (tmp_path / "there" / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_a_tensorflow_checkpoint_becomes_ours(tmp_path):
    (tmp_path / "bert_config.json").write_text(json.dumps(SAMPLE_CONFIG), encoding="utf-8")
    prefix = next(SAMPLE.glob("*.index")).with_suffix("")
    report = convert(prefix, tmp_path / "ours", config=tmp_path / "bert_config.json")
    assert (report.form, report.dialect, report.head) == ("tensorflow", "tensorflow", "pretraining")
    assert any("hidden_act 'gelu' is written as 'gelu_new'" in remark for remark in report.remarks)
    assert NeZhaConfig.from_pretrained(tmp_path / "ours").hidden_act == "gelu_new"
    read, written = tensorflow.read(prefix), safetensors.read(tmp_path / "ours")
    # A kernel keeps its layout, `output_weights` turns.
    kernel = read["bert/encoder/layer_0/attention/self/query/kernel"]
    np.testing.assert_array_equal(written[QUERY], kernel)
    turned = read["cls/seq_relationship/output_weights"]
    np.testing.assert_array_equal(written["cls.seq_relationship.weight"], turned.T)


def test_a_setting_that_wins_over_the_config(tmp_path):
    (tmp_path / "bert_config.json").write_text(json.dumps(SAMPLE_CONFIG), encoding="utf-8")
    prefix = next(SAMPLE.glob("*.index")).with_suffix("")
    report = convert(prefix, tmp_path / "ours", config=tmp_path, overrides={"hidden_act": "gelu"})
    assert NeZhaConfig.from_pretrained(tmp_path / "ours").hidden_act == "gelu"
    assert not any("hidden_act" in remark for remark in report.remarks)


# ---- what the folders hold


def test_a_folder_for_transformers(source, tmp_path):
    folder = source("masked_lm")
    convert(folder, tmp_path / "hf", "hf")
    ours, theirs = pdparams.read(folder / "model_state.pdparams"), safetensors.read(tmp_path / "hf")
    assert safetensors.read_metadata(tmp_path / "hf" / "model.safetensors") == {"format": "pt"}
    config = settings(tmp_path / "hf", "config.json")
    assert (config["architectures"], config["model_type"]) == (["NezhaForMaskedLM"], "nezha")
    query = theirs["nezha.encoder.layer.0.attention.self.query.weight"]
    np.testing.assert_array_equal(query, ours[QUERY].T)
    np.testing.assert_array_equal(theirs["cls.predictions.decoder.bias"], theirs["cls.predictions.bias"])
    assert "cls.predictions.decoder.weight" not in theirs  # tied: transformers writes none either


def test_a_folder_for_huawei_s_code(source, tmp_path):
    convert(source("pretraining"), tmp_path / "huawei", "torch", names="huawei")
    assert settings(tmp_path / "huawei", "bert_config.json")["use_relative_position"] is True
    with torch_files.open_file(tmp_path / "huawei" / "pytorch_model.bin") as tensors:
        # One storage under both names, as torch's own tie.
        assert (
            tensors["cls.predictions.decoder.weight"].storage
            is tensors["bert.embeddings.word_embeddings.weight"].storage
        )


@pytest.mark.parametrize("to", ["paddle", "pdparams"])
def test_a_folder_of_ours(source, tmp_path, to):
    convert(source("masked_lm"), tmp_path / "ours", to)
    assert settings(tmp_path / "ours", "config.json")["architectures"] == ["NeZhaForMaskedLM"]
    if to == "paddle":
        assert safetensors.read_metadata(tmp_path / "ours" / "model.safetensors") == {"format": "np"}
        assert DECODER not in safetensors.read(tmp_path / "ours")
    else:
        arrays = pdparams.read(tmp_path / "ours" / "model_state.pdparams")
        assert arrays[DECODER] is arrays[WORDS]


def test_one_head_out_of_a_larger_checkpoint(source, tmp_path):
    report = convert(source("pretraining"), tmp_path / "model", head="model")
    names = set(safetensors.read(tmp_path / "model"))
    assert not any(name.startswith(("nezha.", "cls.")) for name in names) and len(names) == 38
    assert "of another head (cls.predictions)" in report.summary
    assert settings(tmp_path / "model", "config.json")["architectures"] == ["NeZhaModel"]


def test_a_part_that_is_not_there_is_not_made_up(source, tmp_path):
    def change(config, arrays):
        del arrays["nezha.pooler.dense.weight"], arrays["nezha.pooler.dense.bias"]

    report = convert(source("masked_lm", change), tmp_path / "hf", "hf")
    assert "not in the source, so not written: pooler" in report.remarks
    assert not any("pooler" in name for name in safetensors.read(tmp_path / "hf"))


def test_bfloat16_becomes_float32_and_a_remark(source, tmp_path):
    values = np.array([0.5, -2.0], np.float32)

    def change(config, arrays):
        arrays["cls.seq_relationship.bias"] = (values.view(np.uint32) >> 16).astype(np.uint16)

    report = convert(source("pretraining", change), tmp_path / "hf", "hf")
    assert "1 bfloat16 tensors are written as float32" in report.remarks
    written = safetensors.read(tmp_path / "hf")["cls.seq_relationship.bias"]
    assert (written.tolist(), written.dtype) == ([0.5, -2.0], np.float32)


# ---- the tokenizer


@pytest.mark.parametrize(
    ("given", "splits"),
    [
        (None, False),
        ({"do_lower_case": False}, True),
        ({"tokenizer_class": "NeZhaTokenizer"}, True),
        ({"tokenizer_class": "BertTokenizer", "do_lower_case": False}, False),
        ({"init_class": "NeZhaTokenizer", "vocab_file": "/somewhere/vocab.txt"}, True),
        ({"tokenizer_class": "NeZhaTokenizer", "split_symbols": False}, False),
    ],
)
@pytest.mark.parametrize(("to", "kind"), [("hf", "BertTokenizer"), ("paddle", "NeZhaTokenizer")])
def test_tokenizer_settings_keep_what_they_meant(source, tmp_path, to, kind, given, splits):
    folder = source()
    if given is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(given), encoding="utf-8")
    report = convert(folder, tmp_path / "there", to)
    found = settings(tmp_path / "there")
    lower = (given or {}).get("do_lower_case", True)
    assert found == {"tokenizer_class": kind, "split_symbols": splits, "do_lower_case": lower}
    assert any("keeps symbols" in remark for remark in report.remarks) == (splits and to == "hf")


def test_tokenizer_files_are_carried_along(source, tmp_path):
    folder = source()
    for name in ("special_tokens_map.json", "added_tokens.json", "tokenizer.json", "optimizer.pt", "README.md"):
        (folder / name).write_text("{}", encoding="utf-8")
    carried = {"vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
    hf = convert(folder, tmp_path / "hf", "hf")
    assert set(hf.files) == carried | {"config.json", "model.safetensors", "tokenizer.json"}
    assert set(convert(folder, tmp_path / "ours").files) == carried | {"config.json", "model.safetensors"}


def test_without_a_vocabulary_a_remark_says_so(source, tmp_path):
    folder = source()
    (folder / "vocab.txt").unlink()
    assert "no vocab.txt beside the source" in convert(folder, tmp_path / "hf", "hf").remarks[-1]
    assert not (tmp_path / "hf" / "tokenizer_config.json").exists()


@pytest.mark.parametrize("text", ["{", "[]"])
def test_broken_tokenizer_settings_are_named(source, tmp_path, text):
    folder = source()
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="tokenizer_config.json (is not a JSON file|holds a JSON list)"):
        convert(folder, tmp_path / "hf", "hf")
    assert not (tmp_path / "hf").exists()


# ---- where it may write


def test_a_folder_that_holds_something_is_left_alone(source, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    convert(source(), there)  # an empty one will do
    before = snapshot(there)
    with pytest.raises(FileExistsError, match=r"holds config.json, .*or say force=True \(--force"):
        convert(source(), there)
    assert snapshot(there) == before


def test_force_replaces_the_checkpoint_and_nothing_else(source, tmp_path):
    there = tmp_path / "there"
    convert(source(), there, "torch", names="huawei")
    for name in ("model-00001-of-00002.safetensors", "tokenizer.json", "README.md"):
        (there / name).write_text("{}", encoding="utf-8")
    (there / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    report = convert(source(), there, force=True)
    assert {path.name for path in there.iterdir()} == {*report.files, "README.md"}


@pytest.mark.parametrize("place", [".", "inside", "../source"])
def test_the_source_is_never_written_to(source, tmp_path, place):
    folder = source()
    before = snapshot(folder)
    with pytest.raises(ValueError, match="is the source's folder, or lies in it"):
        convert(folder, folder / place, force=True)
    with pytest.raises(ValueError, match="is the source's folder"):
        convert(folder / "model_state.pdparams", folder, force=True)
    assert snapshot(folder) == before


def test_a_file_in_the_way_is_named(source, tmp_path):
    (tmp_path / "there").write_text("x", encoding="utf-8")
    with pytest.raises(FileExistsError, match="there is a file, but a folder is to be written there"):
        convert(source(), tmp_path / "there", force=True)


@pytest.mark.parametrize("step", range(4))
def test_an_aborted_conversion_leaves_no_folder_that_opens(source, tmp_path, monkeypatch, step):
    """Whatever stands there at whichever step: a config never lies beside weights that are not its own."""
    there, folder = tmp_path / "there", source()
    convert(folder, there, "hf")
    moves = []

    def replace(old, new, real=os.replace):
        if Path(new).parent == there:
            if len(moves) == step:
                raise KeyboardInterrupt
            moves.append(Path(new).name)
        real(old, new)

    monkeypatch.setattr(module.os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        convert(folder, there, force=True)
    assert len(moves) == step and not any((there / name).exists() for name in module._CONFIG_NAMES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "there"]
    with pytest.raises(FileNotFoundError, match="No config in"):
        NeZhaConfig.from_pretrained(there)
    monkeypatch.undo()
    convert(folder, there, force=True)
    assert NeZhaConfig.from_pretrained(there).hidden_size == 32


def test_a_failure_before_the_end_changes_nothing(source, tmp_path, monkeypatch):
    there, folder = tmp_path / "there", source()
    convert(folder, there, "hf")
    before = snapshot(there)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.safetensors, "write", full)
    with pytest.raises(OSError, match="No space left"):
        convert(folder, there, force=True)
    assert snapshot(there) == before and sorted(path.name for path in tmp_path.iterdir()) == ["source", "there"]


# ---- what is refused


@pytest.mark.parametrize(
    "spoil", [lambda array: array.T, lambda array: np.nextafter(array, np.float32(9)), lambda array: array[::-1]]
)
def test_a_wrong_conversion_is_not_given_out(source, tmp_path, monkeypatch, spoil):
    """Every tensor is looked for in what was written: a square matrix turned, or off by one bit, is no secret."""
    name = "nezha.encoder.layer.1.attention.self.value.weight"

    def wrong(path, arrays, metadata, real=safetensors.write):
        real(path, {**arrays, name: spoil(arrays[name])}, metadata)

    folder = source()
    monkeypatch.setattr(module.safetensors, "write", wrong)
    with pytest.raises(CheckpointError, match=r"The conversion is wrong, so nothing was written: \d+ of 1024 numbers"):
        convert(folder, tmp_path / "hf", "hf")
    assert not (tmp_path / "hf").exists()


def test_a_source_that_does_not_fit_is_refused_with_all_that_is_wrong(source, tmp_path):
    def change(config, arrays):
        del arrays[QUERY]
        arrays["cls.seq_relationship.bias"] = np.zeros(3, np.float32)

    with pytest.raises(CheckpointError, match=r"missing \(1\):\n  nezha.enc[\s\S]*expected \[2\], found \[3\]"):
        convert(source("pretraining", change), tmp_path / "hf", "hf")


def test_numbers_that_are_none_are_refused(source, tmp_path):
    def change(config, arrays):
        arrays[QUERY][0, 0] = np.nan

    with pytest.raises(CheckpointError, match=rf"not finite \(NaN or infinity\) \(1\):\n  {QUERY}"):
        convert(source("pretraining", change), tmp_path / "hf", "hf")
    assert not (tmp_path / "hf").exists()


def test_a_setting_that_has_no_spelling_there_is_refused(source, tmp_path):
    def change(config, arrays):
        config.hidden_act = "gelu_new"

    with pytest.raises(CheckpointError, match="hidden_act='gelu_new' has no spelling in the config of huawei"):
        convert(source("model", change), tmp_path / "there", "torch", names="huawei")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "onnx"}, "to must be one of paddle, pdparams, hf, torch, but got 'onnx'"),
        ({"to": "hf", "names": "huawei"}, "to='hf' is written with the names of hf, but got 'huawei'"),
        ({"dialect": "keras"}, "dialect must be one of paddlenlp, .*, but got 'keras'"),
        ({"head": "regression"}, "head must be one of model, .*, but got 'regression'"),
    ],
)
def test_words_that_mean_nothing(source, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        convert(source(), tmp_path / "there", **options)
    assert not (tmp_path / "there").exists()


def test_the_dialect_that_is_said_wins(source, tmp_path):
    with pytest.raises(CheckpointError, match=r"missing \(\d+\)"):
        convert(source(), tmp_path / "there", dialect="tensorflow", config=source())
    assert convert(source(), tmp_path / "there", dialect="paddlenlp").dialect in DIALECTS


def test_a_bert_without_a_word_about_positions_is_recognised(source, tmp_path):
    def change(config, arrays):
        config.position_encoding = "absolute"

    with pytest.raises(CheckpointError, match="it is a NeZha checkpoint and no BERT: load it with"):
        convert(source("model", change), tmp_path / "hf", "hf")
