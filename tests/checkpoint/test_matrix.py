"""Every dialect in every format for every head opens and is the same model (`make matrix` prints the table), and so do
the variations that circulate: old spellings, second copies, tables, slots, wrappers."""

import json
import logging

import numpy as np
import pytest
import tensorflow_sample.make_sample as sample
from matrix import (
    CELLS,
    CONFIG,
    LAYOUTS,
    Cell,
    check,
    laid_out,
    open_folder,
    position_table,
    run,
    save_bundle,
    values,
    write_folder,
)
from test_tensorflow import SAMPLE

import paddle_nezha
from paddle_nezha.checkpoint import tensorflow

torch = pytest.importorskip("torch")

HF = Cell("hf", "torch zip", "pretraining")
TABLE = "{}encoder.layer.{}.attention.self.relative_positions_encoding.positions_encoding"


def name_of(value):
    return "-".join((value.layout, value.form, value.head)).replace(" ", "_") if isinstance(value, Cell) else None


@pytest.mark.parametrize("cell", [cell for cell in CELLS if not cell.absent()], ids=name_of)
def test_every_cell_is_the_same_model(cell, tmp_path):
    run(cell, tmp_path)


def test_cells_that_do_not_exist_say_why():
    absent = {cell.absent() for cell in CELLS} - {None}
    assert len(absent) == 2 and all(len(why) > 20 for why in absent)
    assert sum(cell.absent() is None for cell in CELLS) == 228


@pytest.mark.parametrize(
    "name",
    ["encoder.layer.1.attention.self.value.weight", "pooler.dense.weight", "cls.predictions.transform.dense.weight"],
)
def test_one_square_weight_the_other_way_round_is_seen(name, tmp_path):
    """Nothing but the numbers could tell."""
    tensors = laid_out(values("pretraining"), LAYOUTS["hf"], "pretraining")
    (key,) = [key for key in tensors if key.endswith(name)]
    tensors[key] = tensors[key].T.copy()
    write_folder(tmp_path, HF, tensors)
    with pytest.raises(AssertionError, match=r"nezha|cls"):
        check(open_folder(tmp_path, HF), "pretraining")


def test_the_bundle_writer_writes_what_tensorflow_writes(tmp_path):
    """The bytes of the data, and of the index all that it says, with the optimizer's slots among them."""
    whole = {**sample.bert(), **sample.slots(), **{name: np.asarray(one) for name, one in sample.OPTIMIZER.items()}}
    save_bundle(tmp_path, whole)
    data = "model.ckpt-90.data-00000-of-00001"
    assert (tmp_path / data).read_bytes() == (SAMPLE / "single" / data).read_bytes()
    ours, theirs = (tensorflow._index(str(folder / "model.ckpt-90.index")) for folder in (tmp_path, SAMPLE / "single"))
    assert ours == theirs


# What circulates. Each takes the tensors of a file and changes them.


def gamma_and_beta(tensors):
    """Torch files that were converted from TensorFlow by name."""
    for name in [name for name in tensors if "LayerNorm" in name]:
        tensors[name.replace("weight", "gamma").replace("bias", "beta")] = tensors.pop(name)


def the_second_bias_alone(tensors):
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")


def the_first_bias_alone(tensors):
    del tensors["cls.predictions.decoder.bias"]


def no_decoder(tensors):
    del tensors["cls.predictions.decoder.weight"]


def a_decoder_of_its_own_memory(tensors):
    tensors["cls.predictions.decoder.weight"] = tensors["cls.predictions.decoder.weight"].copy()


def tables_of(length):
    def change(tensors):
        for number in range(CONFIG.num_hidden_layers):
            tensors[TABLE.format("nezha.", number)] = position_table(length)

    return change


def constants(tensors):
    tensors["nezha.embeddings.position_ids"] = np.arange(512)[None]
    tensors["nezha.embeddings.token_type_ids"] = np.zeros((1, 512), np.int64)


def prefixed(old, new):
    def change(tensors):
        for name in list(tensors):
            if name.startswith(old):
                tensors[new + name[len(old) :]] = tensors.pop(name)

    return change


VARIATIONS = {
    "gamma and beta": gamma_and_beta,
    "the second MLM bias alone": the_second_bias_alone,
    "the first MLM bias alone": the_first_bias_alone,
    "both MLM biases": lambda tensors: None,
    "no decoder": no_decoder,
    "a decoder of its own memory": a_decoder_of_its_own_memory,
    "tables of 7": tables_of(7),
    "tables of 512": tables_of(512),
    "position_ids": constants,
    "no prefix": prefixed("nezha.", ""),
    "bert.": prefixed("nezha.", "bert."),
    "module.": prefixed("", "module."),
    "module.bert.": lambda tensors: (prefixed("nezha.", "bert.")(tensors), prefixed("", "module.")(tensors)),
    "model.": prefixed("", "model."),
    "_orig_mod.module.": prefixed("", "_orig_mod.module."),
}


@pytest.mark.parametrize("form", ["torch zip", "torch legacy", "safetensors"])
@pytest.mark.parametrize("variation", VARIATIONS)
def test_what_circulates_is_the_same_model(variation, form, tmp_path):
    cell = Cell("hf", form, "pretraining")
    tensors = laid_out(values("pretraining"), LAYOUTS["hf"], "pretraining")
    VARIATIONS[variation](tensors)
    write_folder(tmp_path, cell, tensors)
    check(open_folder(tmp_path, cell), "pretraining")


def test_q16_tables_raise_no_alarm(tmp_path, caplog):
    tensors = laid_out(values("pretraining"), LAYOUTS["hf"], "pretraining")
    tables_of(7)(tensors)
    write_folder(tmp_path, HF, tensors)
    with caplog.at_level(logging.WARNING):
        open_folder(tmp_path, HF)
    assert not caplog.records


def test_q21_slots_of_the_optimizer(tmp_path):
    """Both moments of every variable, the step, the loss scale: three times the model."""
    cell = Cell("tensorflow", "tensorflow", "pretraining")
    tensors = laid_out(values("pretraining"), LAYOUTS["tensorflow"], "pretraining")
    slots = {f"{name}/{slot}": array + 1 for name, array in tensors.items() for slot in ("adam_m", "adam_v")}
    counters = {"global_step": np.array(90), "loss_scale": np.array(2.0**15, np.float32)}
    write_folder(tmp_path, cell, {**tensors, **slots, **counters})
    check(open_folder(tmp_path, cell), "pretraining")


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_a_training_checkpoint_of_torch(legacy, tmp_path):
    tensors = laid_out(values("pretraining"), LAYOUTS["huawei"], "pretraining")
    cell = Cell("huawei", "torch zip", "pretraining")
    write_folder(tmp_path, cell, tensors)
    state = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
    moments = {"state": {0: {"step": 3, "exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 1e-4, "params": [0]}]}
    torch.save(
        {"model": state, "optimizer": moments, "epoch": 2},
        tmp_path / "pytorch_model.bin",
        _use_new_zipfile_serialization=not legacy,
    )
    check(open_folder(tmp_path, cell), "pretraining")


@pytest.mark.parametrize("head", ["masked_lm", "token_classification", "question_answering"])
def test_a_file_without_the_pooler_that_its_head_does_not_read(head, tmp_path, caplog):
    """As transformers saves these heads. All that is computed from the file is the same, and what is new is named."""
    cell = Cell("hf", "safetensors", head)
    tensors = laid_out(values(head), LAYOUTS["hf"], head)
    write_folder(tmp_path, cell, {name: array for name, array in tensors.items() if "pooler" not in name})
    with caplog.at_level(logging.WARNING, logger="paddle_nezha"):
        model = open_folder(tmp_path, cell)
    assert "new, to be trained: pooler" in caplog.text
    check(model, head, new="pooler")


def test_a_config_that_names_no_class_is_opened_by_its_tensors(tmp_path):
    write_folder(tmp_path, HF)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["SomebodysOwnModel"]}))
    check(paddle_nezha.load(tmp_path), "pretraining")
