"""Mistakes in the way from a file to the model. torch_ref opens the same file by its own names, and parts."""

import pickle  # written, never read
import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable
from unittest import mock

import numpy as np
import safetensors.torch
import torch

import torch_ref
from paddle_nezha.checkpoint import account, arrays, dialects, pdparams, reconcile
from paddle_nezha.checkpoint import safetensors as files
from paddle_nezha.checkpoint.names import parameter_shapes
from paddle_nezha.checkpoint.stored import Held, Stored
from paddle_nezha.config import NeZhaConfig
from parity.cases import Sample, make_sample
from parity.faults.base import Fault, find_case
from parity.faults.plants import Plant
from parity.sides import Observed, PaddleSide, TorchSide


@dataclass(frozen=True)
class LoaderFault(Fault):
    """
    Args:
        file: what is opened: "hf" names, "hf-gamma" (LayerNorm.gamma and .beta), "hf-bfloat16", "paddlenlp" names (all
            .safetensors), or "pdparams" with its arrays in column order.
    """

    file: str = "hf"


# ---- the files, and how both sides open them


def observe_loaded(fault: LoaderFault) -> "tuple[Sample, Observed, Observed]":
    """The numbers of the case, and what Paddle and PyTorch make of one file that each opened for itself."""
    sample = make_sample(find_case(fault.case), fault.head, seed=0)
    torch_side = TorchSide(sample.config, fault.head, "float64")
    paddle_side = PaddleSide(sample.config, fault.head, "float64")
    torch_side.load(sample.arrays)
    with tempfile.TemporaryDirectory() as folder:
        file = write_file(Path(folder), fault.file, torch_side.model, sample.arrays)
        if fault.file != "pdparams":  # which torch cannot open: there the truth is what was written
            torch_ref.load_file(torch_side.model, file)
        with fault.plant(None):
            paddle_side.load(open_file(file, sample.config, fault.head))
    loaded = replace(sample, arrays=torch_ref.parameters(torch_side.model))
    return loaded, paddle_side.observe(sample, fault.form), torch_side.observe(sample)


def write_file(folder: Path, kind: str, ref: torch_ref.Reference, paddle_arrays: "dict[str, np.ndarray]") -> Path:
    """A checkpoint of a kind of `LoaderFault.file`, with the values of `ref`."""
    if kind == "pdparams":
        path = folder / "model_state.pdparams"
        path.write_bytes(_column_order_pickle(paddle_arrays))
        return path
    own = {name: tensor.detach() for name, tensor in ref.named_parameters()}
    if kind == "paddlenlp":
        tensors = {item.paddle: own[item.own].T if item.turned else own[item.own] for item in torch_ref.names(ref)}
    else:
        tensors = {str(item.hf): own[item.own] for item in torch_ref.names(ref)}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    if kind == "hf-gamma":
        tensors = {
            re.sub("Norm.weight$", "Norm.gamma", re.sub("Norm.bias$", "Norm.beta", name)): x
            for name, x in tensors.items()
        }
    if kind == "hf-bfloat16":
        tensors = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    path = folder / "model.safetensors"
    safetensors.torch.save_file(tensors, str(path))
    return path


def _column_order_pickle(paddle_arrays: "dict[str, np.ndarray]") -> bytes:
    return pickle.dumps({name: np.asfortranarray(array) for name, array in paddle_arrays.items()}, protocol=4)


def open_file(path: Path, config: NeZhaConfig, head: str) -> "dict[str, np.ndarray]":
    """Parameters by name, as paddle_nezha opens a file."""
    read = pdparams.read if path.suffix == ".pdparams" else files.read
    return reconcile(parameter_shapes(config, head), read(path)).arrays


# ---- mistakes in the map


def _rows(dialect: str, change: "Callable[[dialects.Row], dialects.Row]") -> Plant:
    """Other rows in a dialect's map."""
    known = dialects.DIALECTS[dialect]
    changed = replace(known, rows=tuple(change(row) for row in known.rows))
    return lambda _: _alone(dialect, changed)


def _alone(name: str, dialect: dialects.Dialect) -> "AbstractContextManager[Any]":
    """A changed dialect without the others that know its names: they would contradict it, and the contradiction be
    refused before anything is loaded."""
    return mock.patch.dict(dialects.DIALECTS, {"paddlenlp": dialects.PADDLENLP, name: dialect}, clear=True)


def _names_swapped(one: str, other: str, dialect: str = "hf") -> Plant:
    """Two modules (by the end of our name) read from each other's tensors."""
    theirs = {row.ours: row.theirs for row in dialects.DIALECTS[dialect].rows if row.ours.endswith((one, other))}
    mine, yours = (next(ours for ours in theirs if ours.endswith(end)) for end in (one, other))
    exchange = {mine: theirs[yours], yours: theirs[mine]}
    return _rows(dialect, lambda row: row._replace(theirs=exchange.get(row.ours, row.theirs)))


def _kind(module: str, kind: str, dialect: str = "hf") -> Plant:
    return _rows(dialect, lambda row: row._replace(kind=kind) if row.ours.endswith(module) else row)


_TURNED, _AS_IT_IS = "linear", "paddle linear"


def _gamma_for_beta(_: Any) -> "AbstractContextManager[Any]":
    spellings = ((r"LayerNorm\.gamma$", "LayerNorm.bias"), (r"LayerNorm\.beta$", "LayerNorm.weight"))
    return _alone("hf", replace(dialects.HF, spellings=spellings))


def _number(change: "Callable[[str], str]") -> Plant:
    """Another layer number for the one in a tensor's name."""
    original = dialects._numbered
    return lambda _: mock.patch.object(
        dialects, "_numbered", lambda weight, number: original(weight, change(number) if number else number)
    )


def _as_sorted_strings(number: str) -> str:
    """Layers counted in the order of their names as text: 0, 1, 10, 11, 2, …"""
    return str(sorted(map(str, range(12))).index(number))


# ---- mistakes in the values


def _values(change: "Callable[[str, np.ndarray], np.ndarray]") -> Plant:
    """Other values for a parameter, once it has its tensor: `change(name, array)`."""
    original = account._accept

    def accept(found: Any, name: str, shape: "tuple[int, ...]", tensor: Stored) -> None:
        original(found, name, shape, Held(change(name, tensor.read())))

    return lambda _: mock.patch.object(account, "_accept", accept)


def _only(end: str, change: "Callable[[np.ndarray], np.ndarray]") -> Plant:
    return _values(lambda name, array: change(array) if name.endswith(end) else array)


def _exponent_alone(bits: np.ndarray) -> np.ndarray:
    """Sign and exponent of a bfloat16, without its fraction."""
    return arrays.widened(bits & np.uint16(0xFF80))


@contextmanager
def _row_order(_: Any) -> Iterator[None]:
    original = arrays.StoredArray.read

    def read(stored: arrays.StoredArray) -> np.ndarray:
        stored._order = "C"
        return original(stored)

    with mock.patch.object(arrays.StoredArray, "read", read):
        yield


def _fault(
    name: str,
    what: str,
    stage: str,
    plant: Plant,
    file: str = "hf",
    case: str = "plain",
    head: str = "masked_lm",
) -> LoaderFault:
    return LoaderFault(name, "loader", what, case, head, stage, plant, file=file)


_MAP = (
    _fault(
        "map-query-key",
        "query and key change places",
        "layer.0.query",
        _names_swapped("attention.query", "attention.key"),
    ),
    _fault(
        "map-key-value",
        "key and value change places",
        "layer.0.key",
        _names_swapped("attention.key", "attention.value"),
    ),
    _fault(
        "map-norms",
        "the LayerNorms of a layer change places",
        "layer.0.attention_output",
        _names_swapped("attention.layer_norm", "{}.layer_norm"),
    ),
    _fault(
        "map-norm-of-head",
        "the LayerNorms of embeddings and masked-LM head change places",
        "embeddings",
        _names_swapped("embeddings.layer_norm", "predictions.layer_norm"),
    ),
    _fault(
        "map-output-dense",
        "output.dense is taken for attention.output.dense",
        "layer.0.attention_output",
        _names_swapped("attention.dense", "{}.ffn_output"),
        case="all-square",
    ),
    _fault(
        "map-ffn",
        "the two matrices of the feed-forward change places",
        "layer.0.ffn",
        _names_swapped("{}.ffn", "{}.ffn_output"),
        case="all-square",
    ),
    _fault(
        "map-head",
        "the masked-LM head is read from the pooler's tensors, and the pooler from its",
        "pooler",
        _names_swapped("pooler.dense", "predictions.dense"),
    ),
    _fault(
        "map-norms-paddlenlp",
        "the LayerNorms of a layer change places in a file of our own names",
        "layer.0.attention_output",
        _names_swapped("attention.layer_norm", "{}.layer_norm", "paddlenlp"),
        "paddlenlp",
    ),
    _fault(
        "map-layers-as-text",
        "layer 10 comes after layer 1",
        "layer.2.query",
        _number(_as_sorted_strings),
        case="twelve-layers",
    ),
    _fault(
        "map-layers-backwards",
        "layers are counted from the last",
        "layer.0.query",
        _number(lambda number: str(1 - int(number))),
    ),
    _fault("map-gamma-beta", "gamma is read as the bias", "embeddings", _gamma_for_beta, "hf-gamma"),
    _fault(
        "map-query-as-it-is",
        "a square matrix is not transposed",
        "layer.0.query",
        _kind("attention.query", _AS_IT_IS),
    ),
    _fault(
        "map-dense-as-it-is",
        "a square matrix is not transposed",
        "layer.0.attention_output",
        _kind("attention.dense", _AS_IT_IS),
    ),
    _fault(
        "map-ffn-as-it-is",
        "a square matrix is not transposed",
        "layer.0.ffn",
        _kind("{}.ffn", _AS_IT_IS),
        case="all-square",
    ),
    _fault("map-pooler-as-it-is", "a square matrix is not transposed", "pooler", _kind("pooler.dense", _AS_IT_IS)),
    _fault(
        "map-mlm-as-it-is",
        "a square matrix is not transposed",
        "mlm.transform",
        _kind("predictions.dense", _AS_IT_IS),
    ),
    _fault(
        "map-classifier-as-it-is",
        "a square classifier is not transposed",
        "classifier.logits",
        _kind("classifier", _AS_IT_IS),
        case="all-square",
        head="sequence_classification",
    ),
    _fault(
        "map-value-turned",
        "a matrix of our own layout is transposed",
        "layer.0.value",
        _kind("attention.value", _TURNED, "paddlenlp"),
        "paddlenlp",
    ),
    _fault(
        "map-words-turned",
        "a square word table is transposed",
        "embeddings",
        _only("word_embeddings.weight", np.transpose),
        case="all-square",
        head="model",
    ),
)

_VALUES = (
    _fault(
        "decoder-bias-left",
        "the decoder's bias keeps its zeros",
        "mlm.logits",
        _only("decoder_bias", np.zeros_like),
    ),
    _fault(
        "nsp-left",
        "the next-sentence bias keeps its zeros",
        "nsp.logits",
        _only("seq_relationship.bias", np.zeros_like),
        head="pretraining",
    ),
    _fault(
        "span-columns-reversed",
        "start and end change places",
        "classifier.logits",
        _only("classifier.weight", lambda x: x[:, ::-1]),
        head="question_answering",
    ),
    _fault(
        "words-shifted",
        "the vocabulary counts from 1",
        "embeddings",
        _only("word_embeddings.weight", lambda x: np.roll(x, 1, 0)),
    ),
    _fault(
        "through-float16",
        "every tensor passes through float16",
        "embeddings",
        _values(lambda name, x: x.astype(np.float16)),
    ),
    _fault(
        "one-layer-through-float32",
        "one tensor passes through float32",
        "layer.1.ffn",
        _only("layer.1.ffn.weight", lambda x: x.astype(np.float32)),
    ),
    _fault(
        "bfloat16-fraction",
        "bfloat16 loses its fraction",
        "embeddings",
        lambda _: mock.patch.object(files, "widened", _exponent_alone),
        "hf-bfloat16",
    ),
    _fault("column-order", "an array stored in columns is read in rows", "embeddings", _row_order, "pdparams"),
)

LOADER_FAULTS = (*_MAP, *_VALUES)
