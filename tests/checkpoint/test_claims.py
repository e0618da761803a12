"""What a checkpoint claims and where it lies, through `from_pretrained`: contradictions are refused by name, a name
decides what turns, a path is only a path, and nothing outside the folder is read."""

import dataclasses
import json
import os
import shutil
import stat

import numpy as np
import pytest
from matrix import CELLS, CONFIG, LAYOUTS, Cell, check, drawn, laid_out, named, open_folder, values, write_folder

from paddle_nezha import CheckpointError, NeZhaForPretraining, NeZhaModel
from paddle_nezha.checkpoint import DIALECTS, open_checkpoint, safetensors, stored

pytest.importorskip("torch")

HF = Cell("hf", "torch zip", "pretraining")
EVERY_FORM = pytest.mark.parametrize(
    "cell",
    [
        Cell("paddlenlp", "pdparams", "pretraining"),
        Cell("hf", "safetensors", "pretraining"),
        Cell("hf", "safetensors, 2 shards", "pretraining"),
        Cell("huawei", "torch zip", "pretraining"),
        Cell("nezha_chinese_pytorch", "torch legacy", "pretraining"),
        Cell("tensorflow", "tensorflow", "pretraining"),
    ],
    ids=lambda cell: cell.form.replace(" ", "_"),
)


def test_the_cells_here_exist():
    assert {mark for mark in EVERY_FORM.args[1]} <= {cell for cell in CELLS if not cell.absent()}


def tensors_of(cell):
    return laid_out(values(cell.head), LAYOUTS[cell.layout], cell.head)


def refused(folder, kind=NeZhaForPretraining, **options):
    with pytest.raises(CheckpointError) as error:
        kind.from_pretrained(folder, **options)
    assert str(folder) in str(error.value)
    return str(error.value)


# One parameter claimed twice


@pytest.mark.parametrize(
    ("second", "first"),
    [
        ("cls.predictions.decoder.weight", "nezha.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
)
@pytest.mark.parametrize("form", ["torch zip", "torch legacy", "safetensors", "safetensors, 2 shards", "pdparams"])
def test_two_values_for_one_parameter(second, first, form, tmp_path):
    """The smallest difference that float32 has."""
    cell = dataclasses.replace(HF, form=form)
    tensors = tensors_of(cell)
    tensors[second] = tensors[first].copy()
    tensors[second].flat[-1] = np.nextafter(tensors[first].flat[-1], np.float32(9))
    write_folder(tmp_path, cell, tensors)
    said = refused(tmp_path)
    assert "claimed twice with different values (1)" in said and second in said and first in said


@pytest.mark.parametrize("other", ["embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"])
def test_two_values_under_two_spellings(other, tmp_path):
    tensors = tensors_of(HF)
    mine = "nezha.embeddings.LayerNorm.weight"
    tensors[other] = tensors[mine].copy()
    write_folder(tmp_path, HF, tensors)
    check(open_folder(tmp_path, HF), "pretraining")
    tensors[other] = tensors[mine] + 1
    write_folder(tmp_path, HF, tensors)
    said = refused(tmp_path)
    assert other in said and mine in said and "claimed twice" in said


# Squares


def test_the_same_square_values_under_two_names_are_two_models(tmp_path):
    """Every matrix of the layers is square here: the names alone say that one file's are [out, in]."""
    config = dataclasses.replace(CONFIG, intermediate_size=CONFIG.hidden_size, vocab_size=CONFIG.hidden_size)
    arrays = drawn(config, "model")
    linear = [name for name in arrays if arrays[name].ndim == 2 and "embeddings" not in name]
    assert len(linear) == 6 * config.num_hidden_layers + 1
    # The file under Hugging Face's names holds the very bytes that PaddleNLP's holds.
    stored = {DIALECTS["hf"].to_file(name, "model")[0].theirs: array for name, array in arrays.items()}
    write_folder(tmp_path / "paddlenlp", Cell("paddlenlp", "safetensors", "model"), arrays, config)
    write_folder(tmp_path / "hf", Cell("hf", "safetensors", "model"), stored, config)
    ours = {name: p.numpy() for name, p in NeZhaModel.from_pretrained(tmp_path / "paddlenlp").state_dict().items()}
    theirs = {name: p.numpy() for name, p in NeZhaModel.from_pretrained(tmp_path / "hf").state_dict().items()}
    for name, array in arrays.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
        np.testing.assert_array_equal(theirs[name], array.T if name in linear else array, err_msg=name)
        assert name not in linear or not np.array_equal(ours[name], theirs[name])


# BERT is not NeZha


def bert():
    return dataclasses.replace(CONFIG, position_encoding="absolute")


@pytest.mark.parametrize("layout", ["paddlenlp", "huawei"])
@pytest.mark.parametrize("form", ["safetensors", "torch zip", "pdparams"])
def test_q63_bert_offered_as_nezha_and_the_reverse(layout, form, tmp_path):
    cell = Cell(layout, form, "pretraining")
    arrays = drawn(bert(), "pretraining")
    write_folder(tmp_path / "bert", cell, named(arrays, layout, "pretraining"), bert())
    said = refused(tmp_path / "bert", use_relative_position=True)
    assert "embeddings.position_embeddings.weight" in said
    assert "it is a BERT checkpoint and no NeZha: load it with a config that says use_relative_position=False" in said
    model = NeZhaForPretraining.from_pretrained(tmp_path / "bert", use_relative_position=False)
    for name, parameter in model.state_dict().items():
        np.testing.assert_array_equal(parameter.numpy(), arrays[name], err_msg=name)

    write_folder(tmp_path / "nezha", cell)
    said = refused(tmp_path / "nezha", use_relative_position=False)
    assert "it is a NeZha checkpoint and no BERT" in said and "use_relative_position=True" in said
    check(open_folder(tmp_path / "nezha", cell), "pretraining")


def test_q63_a_config_of_bert_is_refused_with_the_remedy(tmp_path):
    cell = Cell("huawei", "torch zip", "model")
    write_folder(tmp_path, cell, named(drawn(bert(), "model"), "huawei", "model"), bert())
    (tmp_path / "bert_config.json").rename(tmp_path / "config.json")
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"use_relative_position": false', '"model_type": "bert"'))
    with pytest.raises(ValueError, match="of a 'bert' model, not of NeZha. To open a BERT here, pass use_relative_pos"):
        NeZhaModel.from_pretrained(tmp_path)
    assert NeZhaModel.from_pretrained(tmp_path, use_relative_position=False).config.position_encoding == "absolute"


# Numbers


@EVERY_FORM
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(cell, number, tmp_path):
    tensors = tensors_of(cell)
    (name,) = [name for name in tensors if name.endswith(("layer.1.ffn.bias", "1.intermediate.dense.bias"))] or [
        "bert/encoder/layer_1/intermediate/dense/bias"
    ]
    tensors[name] = tensors[name].copy()
    tensors[name][7] = number
    write_folder(tmp_path, cell, tensors)
    said = refused(tmp_path)
    assert "not finite (NaN or infinity) (1):\n  nezha.encoder.layer.1.ffn.bias" in said


# Where it lies


def snapshot(folder):
    """All that opening might change, access times apart."""
    return {
        path: (os.lstat(path).st_mtime_ns, os.lstat(path).st_size, os.lstat(path).st_mode)
        for path in (folder, *folder.rglob("*"))
    }


@EVERY_FORM
def test_opening_writes_nothing_and_works_where_nothing_can_be_written(cell, tmp_path):
    folder = tmp_path / "model"
    write_folder(folder, cell)
    for file in folder.iterdir():
        file.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    before = snapshot(tmp_path)
    check(open_folder(folder, cell), "pretraining")
    assert snapshot(tmp_path) == before
    folder.chmod(stat.S_IRWXU)  # so that pytest can clean up


@EVERY_FORM
def test_a_folder_that_moved_under_a_chinese_name(cell, tmp_path, monkeypatch):
    """Q32. TensorFlow keeps the path of the machine that trained beside the weights."""
    write_folder(tmp_path / "first", cell)
    if cell.form == "tensorflow":
        state = tmp_path / "first" / "checkpoint"
        state.write_text(f'model_checkpoint_path: "{tmp_path}/first/model.ckpt-90"\n')
    moved = tmp_path / "哪吒 模型 (第一版)" / "base’s #1"
    moved.parent.mkdir()
    (tmp_path / "first").rename(moved)
    check(open_folder(moved, cell), "pretraining")
    monkeypatch.chdir(moved.parent)
    check(NeZhaForPretraining.from_pretrained("base’s #1"), "pretraining")


SHARDS = Cell("hf", "safetensors, 2 shards", "pretraining")
FIRST, INDEX = "model-00001-of-00002.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize("place", ["../outside/{}", "{folder}/outside/{}", "..\\outside\\{}", "./{}", "sub/../{}"])
def test_an_index_that_points_outside_is_refused(place, tmp_path):
    folder, outside = tmp_path / "model", tmp_path / "outside"
    write_folder(folder, SHARDS)
    write_folder(outside, SHARDS)
    text = (folder / INDEX).read_text()
    escaped = place.format(FIRST, folder=tmp_path).replace("\\", "\\\\")
    (folder / INDEX).write_text(text.replace(f'"{FIRST}"', f'"{escaped}"'))
    assert "refused: it points outside its folder" in refused(folder)


@pytest.mark.parametrize("how", ["the file", "a file of the same name elsewhere", "by way of a second link"])
def test_a_shard_that_is_a_link_to_elsewhere_is_refused(how, tmp_path):
    folder, outside = tmp_path / "model", tmp_path / "outside"
    write_folder(folder, SHARDS)
    outside.mkdir()
    (folder / FIRST).rename(outside / FIRST)
    target = outside / FIRST
    if how == "a file of the same name elsewhere":
        target = (outside / FIRST).rename(tmp_path / FIRST)
    elif how == "by way of a second link":
        (folder / "inside").symlink_to(target)
        target = folder / "inside"
    (folder / FIRST).symlink_to(target)
    said = refused(folder)
    assert "was refused" in said and f"{FIRST}, a link to " in said and "lies outside its folder" in said


def test_a_single_file_that_is_a_link_to_elsewhere_is_refused_and_opens_by_its_own_name(tmp_path):
    folder, outside = tmp_path / "model", tmp_path / "outside"
    write_folder(folder, HF)
    shutil.copytree(folder, outside)
    (folder / "pytorch_model.bin").unlink()
    (folder / "pytorch_model.bin").symlink_to(outside / "pytorch_model.bin")
    said = refused(folder)
    assert "pytorch_model.bin, a link to " in said and "name the file" in said
    NeZhaForPretraining.from_pretrained(outside)


def test_a_file_of_very_many_tensors_and_one_of_very_many_axes_are_refused(tmp_path):
    many = {f"t{number}": np.zeros(1, np.float32) for number in range(20_001)}
    safetensors.write(tmp_path / "many.safetensors", many)
    with pytest.raises(CheckpointError, match="20,001 tensors"), open_checkpoint(tmp_path / "many.safetensors"):
        pass
    header = json.dumps({"t": {"dtype": "F32", "shape": [1] * 33, "data_offsets": [0, 4]}}).encode()
    (tmp_path / "axes.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(CheckpointError, match="32"), open_checkpoint(tmp_path / "axes.safetensors"):
        pass


@pytest.mark.parametrize("cell", [HF, SHARDS, Cell("hf", "safetensors", "pretraining")], ids=lambda cell: cell.form)
def test_the_layout_of_the_hugging_face_cache(cell, tmp_path):
    """A snapshot holds nothing but relative links to blobs, which are named by their hashes."""
    model = tmp_path / "models--sijunhe--nezha-cn-base"
    snapshot_folder, blobs = model / "snapshots" / "0123abcd", model / "blobs"
    write_folder(tmp_path / "plain", cell)
    snapshot_folder.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted((tmp_path / "plain").iterdir())):
        file.rename(blobs / f"{number:064x}")
        (snapshot_folder / file.name).symlink_to(f"../../blobs/{number:064x}")
    check(open_folder(snapshot_folder, cell), "pretraining")


def test_a_shard_that_is_not_there_is_named(tmp_path):
    """Found by mutation (an index with another digit in a shard's name)."""
    write_folder(tmp_path, SHARDS)
    (tmp_path / FIRST).unlink()
    with pytest.raises((FileNotFoundError, CheckpointError), match=FIRST):
        NeZhaForPretraining.from_pretrained(tmp_path)


@pytest.mark.parametrize("form", ["pdparams", "safetensors"])
def test_a_large_table_comes_in_rows_and_is_the_same(form, tmp_path, monkeypatch):
    cell = Cell("paddlenlp" if form == "pdparams" else "hf", form, "pretraining")
    write_folder(tmp_path, cell)
    whole = NeZhaForPretraining.from_pretrained(tmp_path).state_dict()
    monkeypatch.setattr(stored, "_LARGE", 64)
    monkeypatch.setattr(stored, "_PIECE", 1000)
    with open_checkpoint(tmp_path) as opened:
        table = next(tensor for name, tensor in opened.tensors.items() if name.endswith("word_embeddings.weight"))
        parts = list(stored.pieces(table))
        assert len(parts) > 2 and np.array_equal(np.concatenate([rows for _, rows in parts]), table.read())
    for dtype in ("float32", "float64"):
        in_rows = NeZhaForPretraining.from_pretrained(tmp_path, dtype=dtype).state_dict()
        assert all(np.array_equal(in_rows[name].numpy(), value.numpy()) for name, value in whole.items())
