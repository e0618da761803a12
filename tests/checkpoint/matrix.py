"""Every dialect in every format for every head, holding the same seeded values. `make matrix` prints the table.

Each format is written by its own library where that is installed (paddle.save, safetensors, both formats of
torch.save), the TensorFlow bundle by the few lines below, which `test_matrix` holds against files of a real TensorFlow.
A cell is equal if its folder opens, every parameter has the bits it was made of, and the model gives exactly the hidden
states and logits of one that never was in a file.
"""

import json
import os
import sys
import tempfile
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Callable, NamedTuple, Optional

import numpy as np
from safetensors.numpy import save_file
from test_tensorflow import block, entry, header, masked, table

import paddle_nezha
from paddle_nezha._paddle import paddle
from paddle_nezha.auto import MODEL_CLASSES, head_of
from paddle_nezha.checkpoint import DIALECTS, parameter_shapes
from paddle_nezha.checkpoint.configs import SCHEMAS, to_foreign
from paddle_nezha.checkpoint.heads import head_of_class
from paddle_nezha.config import NeZhaConfig

Arrays = Mapping[str, np.ndarray]

HEADS = tuple(MODEL_CLASSES)
LENGTH = 67  # beyond max_relative_position, so that the outputs depend on it
CONFIG = NeZhaConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_relative_position=64,  # TensorFlow's code knows no other
    hidden_act="relu",  # the one activation that every code base spells alike and means alike
    num_labels=3,
)


# The same values everywhere


def drawn(config: NeZhaConfig, head: str) -> "dict[str, np.ndarray]":
    """A whole checkpoint by our names, its decoder tied. Nothing is zero or one: a forgotten bias would show."""
    rng = np.random.default_rng(3)
    arrays = {
        name: 0.2 * rng.standard_normal(shape, dtype=np.float32)
        for name, shape in parameter_shapes(config, head).items()
    }
    if "cls.predictions.decoder_weight" in arrays:
        arrays["cls.predictions.decoder_weight"] = arrays["nezha.embeddings.word_embeddings.weight"]
    return arrays


@cache
def values(head: str) -> Arrays:
    return drawn(CONFIG, head)


def outputs(model) -> "dict[str, np.ndarray]":
    """Everything that a model gives for two texts, one of them padded: hidden states of each layer, logits."""
    rng = np.random.default_rng(5)
    shape = (2, 3, LENGTH) if type(model) is MODEL_CLASSES["multiple_choice"] else (2, LENGTH)
    ids, types, mask = rng.integers(1, 99, shape), rng.integers(0, 2, shape), np.ones(shape, np.int64)
    mask[0, ..., LENGTH // 2 :] = 0
    given = model(*map(paddle.to_tensor, (ids, types, mask)), output_hidden_states=True, return_dict=True)
    found = {f"hidden_states.{number}": part.numpy() for number, part in enumerate(given.hidden_states)}
    return {**found, **{name: part.numpy() for name, part in given.items() if name != "hidden_states"}}


@cache
def expected(head: str) -> "dict[str, np.ndarray]":
    model = MODEL_CLASSES[head](CONFIG)
    model.load_arrays(dict(values(head)))
    model.eval()
    return outputs(model)


# Whose names


class Layout(NamedTuple):
    """How one code base lays out its files."""

    tensors: str  # the dialect of the names
    config: str  # the dialect of the config
    table: str = ""  # under which a position table lies in every layer
    renamed: "tuple[tuple[str, str], ...]" = ()
    extra: "tuple[str, ...]" = ()  # constants beside the weights


_HF_TABLE = "encoder.layer.{}.attention.self.relative_positions_encoding.positions_encoding"
_BERT4TORCH_TABLE = "encoderLayer.{}.multiHeadAttention.relative_positions_encoding.position_embeddings"
LAYOUTS: "dict[str, Layout]" = {
    "paddlenlp": Layout("paddlenlp", "paddlenlp"),
    "hf": Layout("hf", "hf", extra=("nezha.embeddings.position_ids",)),
    "huawei": Layout("huawei", "huawei"),
    "nezha_chinese_pytorch": Layout("nezha_chinese_pytorch", "nezha_chinese_pytorch", f"bert.{_HF_TABLE}"),
    "bert4torch": Layout("bert4torch", "bert4torch", _BERT4TORCH_TABLE),
    "bert4torch before 0.4": Layout(
        "bert4torch",
        "bert4torch",
        _BERT4TORCH_TABLE,
        renamed=(("attnLayerNorm", "layerNorm1"), ("ffnLayerNorm", "layerNorm2")),
    ),
    "bert4torch save_pretrained": Layout("nezha_chinese_pytorch", "bert4torch", _BERT4TORCH_TABLE),
    "tensorflow": Layout("tensorflow", "tensorflow"),
}


def named(arrays: Arrays, dialect: str, head: str) -> "dict[str, np.ndarray]":
    """The tensors as a code base's files hold them; Linear weights the other way round where they are there."""
    return {
        weight.theirs: np.ascontiguousarray(array.T) if weight.turned else array
        for name, array in arrays.items()
        for weight in DIALECTS[dialect].to_file(name, head)
    }


def laid_out(arrays: Arrays, layout: Layout, head: str) -> "dict[str, np.ndarray]":
    """`named`, in the spelling of a layout and with what its files hold beside parameters."""
    found = {}
    for name, array in named(arrays, layout.tensors, head).items():
        for ours, theirs in layout.renamed:
            name = name.replace(ours, theirs)
        found[name] = array
    if layout.table:
        found.update({layout.table.format(number): position_table(7) for number in range(CONFIG.num_hidden_layers)})
    found.update({name: np.arange(512)[None] for name in layout.extra})
    return found


def position_table(length: int) -> np.ndarray:
    """[L, L, D] of numbers that are in no model: whoever loads them is caught."""
    return np.full((length, length, CONFIG.head_size), 9.0, np.float32)


# In which format


def save_pdparams(folder: Path, arrays: Arrays) -> None:
    paddle.save({name: paddle.to_tensor(array) for name, array in arrays.items()}, str(folder / "model_state.pdparams"))


def save_safetensors(folder: Path, arrays: Arrays) -> None:
    save_file(dict(arrays), folder / "model.safetensors", metadata={"format": "pt"})


def save_shards(folder: Path, arrays: Arrays) -> None:
    """As Hugging Face's code names them; every other tensor in the second file."""
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    for number, file in enumerate(files):
        save_file({name: arrays[name] for name in list(arrays)[number::2]}, folder / file, metadata={"format": "pt"})
    places = {name: files[number % 2] for number, name in enumerate(arrays)}
    size = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def save_zip(folder: Path, arrays: Arrays) -> None:
    import torch

    torch.save({name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, folder / "pytorch_model.bin")


def save_legacy(folder: Path, arrays: Arrays) -> None:
    import torch

    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


_TF_CODES = {"float32": 1, "int32": 3, "int64": 9}  # tensorflow/core/framework/types.proto


def save_bundle(folder: Path, arrays: Arrays, prefix: str = "model.ckpt-90") -> None:
    """TensorFlow's second format: tensors one after another in the order of their names, and the index of them."""
    entries, data = {b"": header(1, (3, b"\x08\x01"))}, b""
    for name in sorted(arrays):
        content = arrays[name].tobytes()
        code = _TF_CODES[arrays[name].dtype.name]
        place = (code, arrays[name].shape, 0, len(data), len(content))
        entries[name.encode()] = entry(*place, checksum=masked(content))
        data += content
    (folder / f"{prefix}.data-00000-of-00001").write_bytes(data)
    index = table(block([(0, key, value) for key, value in sorted(entries.items())]))
    (folder / f"{prefix}.index").write_bytes(index)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{prefix}"\n')


FORMATS: "dict[str, Callable[[Path, Arrays], None]]" = {
    "pdparams": save_pdparams,
    "safetensors": save_safetensors,
    "safetensors, 2 shards": save_shards,
    "torch zip": save_zip,
    "torch legacy": save_legacy,
    "tensorflow": save_bundle,
}


# The cells


@dataclass(frozen=True)
class Cell:
    layout: str
    form: str
    head: str

    def absent(self) -> Optional[str]:
        """Why there are no such files, or None."""
        if (self.layout == "tensorflow") != (self.form == "tensorflow"):
            return "TensorFlow alone writes its format, and no other"
        if self.layout.startswith("bert4torch") and any(name.startswith("classifier.") for name in values(self.head)):
            return "bert4torch has no classifiers: people write their own around its model"
        return None


CELLS = tuple(Cell(layout, form, head) for layout in LAYOUTS for form in FORMATS for head in HEADS)


def write_folder(folder: Path, cell: Cell, tensors: Optional[Arrays] = None, config: NeZhaConfig = CONFIG) -> None:
    """A checkpoint as that code base would leave it.

    Args:
        tensors: what the file holds, by its own names; None stands for `values`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if tensors is None:
        tensors = laid_out(values(cell.head), LAYOUTS[cell.layout], cell.head)
    FORMATS[cell.form](folder, tensors)
    dialect = LAYOUTS[cell.layout].config
    content = to_foreign(config, dialect, cell.head)
    (folder / SCHEMAS[dialect].file).write_text(json.dumps(content), encoding="utf-8")


def open_folder(folder: Path, cell: Cell):
    """By `paddle_nezha.load` where the folder says what it is, else by the class of the head.

    A config that counts no labels needs to be told their number: so do people.
    """
    config = json.loads((folder / SCHEMAS[LAYOUTS[cell.layout].config].file).read_text())
    options = {} if "id2label" in config else {"num_labels": CONFIG.num_labels}
    silent = not any(map(head_of_class, config.get("architectures", ())))
    if silent and any(name.startswith("classifier.") for name in values(cell.head)):
        try:
            found = head_of(folder)
        except ValueError as error:
            assert "Open it with the class you know it to be" in str(error)
            return MODEL_CLASSES[cell.head].from_pretrained(folder, **options)
        assert found == cell.head  # `qa_outputs` tells
    return paddle_nezha.load(folder, **options)


def check(model, head: str, new: Optional[str] = None) -> None:
    """The model is of the right class, bit by bit what was written, and computes exactly the same.

    Exactly, since equal bits go through the same kernels in one process. `new` is a part that the file lacked.
    """
    assert type(model) is MODEL_CLASSES[head] and not model.training
    state = model.state_dict()
    assert state.keys() == values(head).keys()
    for name, array in values(head).items():
        assert new and new in name or state[name].numpy().tobytes() == array.tobytes(), name
    found = outputs(model)
    assert found.keys() == expected(head).keys()
    for name, array in expected(head).items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def run(cell: Cell, folder: Path) -> None:
    write_folder(folder, cell)
    check(open_folder(folder, cell), cell.head)


# The table


def main() -> int:
    from tqdm import tqdm

    rows: "dict[tuple[str, str], list[str]]" = {}
    reasons: "list[str]" = []
    failed: "list[str]" = []
    for cell in tqdm(CELLS, unit="cell", disable=not sys.stderr.isatty()):
        why, state = cell.absent(), "equal"
        if why:
            reasons += [why] if why not in reasons else []
            state = f"({reasons.index(why) + 1})"
        else:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    run(cell, Path(folder))
            except Exception as error:
                state = "WRONG"
                failed.append(f"{cell}: {error}")
        rows.setdefault((cell.layout, cell.form), []).append(state)
    heads = [head.replace("_classification", "").replace("question_answering", "answers") for head in HEADS]
    for titles, states in ((("", ""), heads), *rows.items()):
        print(
            titles[0].ljust(29)
            + titles[1].ljust(23)
            + "".join(state.rjust(max(len(head), 5) + 2) for state, head in zip(states, heads))
        )
    for number, why in enumerate(reasons, 1):
        print(f"({number}) {why}")
    equal = sum(row.count("equal") for row in rows.values())
    print(f"{equal} of {equal + len(failed)} cells that exist open and give the same parameters and hidden states")
    print("\n".join(failed), end="\n" if failed else "")
    return bool(failed)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
