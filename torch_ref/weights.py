"""Weights of the reference: names, and files opened by torch itself.

The list of names is this package's own: a wrong map on the Paddle side cannot hide behind a shared one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_ref.heads import Reference


@dataclass(frozen=True)
class Name:
    """One tensor under its three names; `hf` None where Hugging Face has no such tensor."""

    own: str
    paddle: str
    hf: str | None
    turned: bool
    """Paddle keeps the weight of a Linear as [in, out], PyTorch as [out, in]."""


# kind, name in torch_ref, in PaddleNLP, in Hugging Face. A "linear" has weight (turned) and bias, a "norm"
# weight and bias, a "table" weight alone, a "vector" is the tensor itself.
_BASE = (
    ("table", "word", "embeddings.word_embeddings", "embeddings.word_embeddings"),
    ("table", "segment", "embeddings.token_type_embeddings", "embeddings.token_type_embeddings"),
    ("norm", "embedding_norm", "embeddings.layer_norm", "embeddings.LayerNorm"),
)
_POSITION = (("table", "position", "embeddings.position_embeddings", "embeddings.position_embeddings"),)
_LAYER = (
    ("linear", "query", "attention.query", "attention.self.query"),
    ("linear", "key", "attention.key", "attention.self.key"),
    ("linear", "value", "attention.value", "attention.self.value"),
    ("linear", "dense", "attention.dense", "attention.output.dense"),
    ("norm", "attention_norm", "attention.layer_norm", "attention.output.LayerNorm"),
    ("linear", "ffn", "ffn", "intermediate.dense"),
    ("linear", "ffn_output", "ffn_output", "output.dense"),
    ("norm", "norm", "layer_norm", "output.LayerNorm"),
)
_LEARNED_TABLES = (
    ("table", "relative_key", "attention.relative_key", None),
    ("table", "relative_value", "attention.relative_value", None),
)
_POOLER = (("linear", "pooler", "pooler.dense", "pooler.dense"),)
_MLM = (
    ("linear", "mlm.dense", "cls.predictions.dense", "cls.predictions.transform.dense"),
    ("norm", "mlm.norm", "cls.predictions.layer_norm", "cls.predictions.transform.LayerNorm"),
    ("vector", "mlm.bias", "cls.predictions.decoder_bias", "cls.predictions.bias"),
)
_NSP = (("linear", "nsp", "cls.seq_relationship", "cls.seq_relationship"),)
_CLASSIFIER = (("linear", "classifier", "classifier", "classifier"),)
_SPAN = (("linear", "classifier", "classifier", "qa_outputs"),)
_HEADS = {
    "model": (), "pretraining": _MLM + _NSP, "masked_lm": _MLM, "next_sentence": _NSP,
    "sequence_classification": _CLASSIFIER, "token_classification": _CLASSIFIER,
    "question_answering": _SPAN, "multiple_choice": _CLASSIFIER,
}  # fmt: skip

# (copy, original): Paddle's and Hugging Face's files repeat these tensors under a second name.
_TIED = (
    ("cls.predictions.decoder_weight", "nezha.embeddings.word_embeddings.weight"),
    ("cls.predictions.decoder.weight", "nezha.embeddings.word_embeddings.weight"),
    ("cls.predictions.decoder.bias", "cls.predictions.bias"),
)
# Constants that some files hold; the reference makes its own.
_CONSTANTS = ("positions_encoding", "embeddings.position_ids", "embeddings.token_type_ids")
_NO_POOLER = ("masked_lm", "token_classification", "question_answering")

_SUFFIXES = {
    "linear": ((".weight", True), (".bias", False)),
    "norm": ((".weight", False), (".bias", False)),
    "table": ((".weight", False),),
    "vector": (("", False),),
}


def names(ref: Reference) -> list[Name]:
    """Every tensor of `ref`, the tied decoder weight once, as the word table."""
    encoding = ref.config.position_encoding
    base = _BASE + (_POSITION if encoding == "absolute" else ())
    layer = _LAYER + (_LEARNED_TABLES if encoding == "parametric_relative" else ())
    prefix = "" if ref.head == "model" else "nezha."
    found = _named(base, "base.", prefix, prefix)
    for n in range(ref.config.num_hidden_layers):
        found += _named(layer, f"base.layers.{n}.", f"{prefix}encoder.layer.{n}.", f"{prefix}encoder.layer.{n}.")
    found += _named(_POOLER if ref.base.pooler is not None else (), "base.", prefix, prefix)
    return found + _named(_HEADS[ref.head], "", "", "")


def _named(rows: tuple, own_prefix: str, paddle_prefix: str, hf_prefix: str) -> list[Name]:
    return [
        Name(own_prefix + own + suffix, paddle_prefix + paddle + suffix, hf and hf_prefix + hf + suffix, turned)
        for kind, own, paddle, hf in rows
        for suffix, turned in _SUFFIXES[kind]
    ]


def load_paddle(ref: Reference, arrays: Mapping[str, np.ndarray]) -> None:
    """Fill `ref` from arrays under PaddleNLP's names; Linear weights [in, out].

    Args:
        ref: changed in place, only if everything fits.
        arrays: floating-point arrays; a head's base tensors carry the prefix `nezha.`. The tied
            `cls.predictions.decoder_weight` may be there or not.

    Raises:
        ValueError: tensors that are missing, unknown, of a wrong shape or dtype, or a tied copy that differs;
            all of them are listed.
    """
    _fill(ref, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, "paddle")


def load_file(ref: Reference, path: str | os.PathLike) -> None:
    """Fill `ref` from a `.safetensors` file or a torch file, in PaddleNLP's or Hugging Face's names.

    The layout is read from the names: a file that holds `embeddings.layer_norm.weight` is PaddleNLP's, whose
    Linear weights are [in, out]. Prefixes `module.`, `bert.` and `nezha.`, `gamma` and `beta`, and stored
    position tables are understood. A Hugging Face file of a head that reads no pooled output holds no pooler;
    `ref` then has none either, and gives no pooler_output.

    Raises:
        ValueError: as `load_paddle`, or a file of another kind.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file as read

        tensors = read(path)
    elif path.suffix in (".bin", ".pt", ".pth"):
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    else:
        raise ValueError(
            f"{path.name}: expected a .safetensors, .bin, .pt or .pth file, got suffix {path.suffix!r}; "
            "read other files with paddle_nezha and hand their arrays to load_paddle"
        )
    tensors = {_settled(name, ref.head): t for name, t in tensors.items() if not name.endswith(_CONSTANTS)}
    if "cls.predictions.bias" not in tensors and "cls.predictions.decoder.bias" in tensors:
        tensors["cls.predictions.bias"] = tensors.pop("cls.predictions.decoder.bias")
    layout = "paddle" if any(name.endswith("embeddings.layer_norm.weight") for name in tensors) else "hf"
    if layout == "hf" and ref.head in _NO_POOLER and not any("pooler." in name for name in tensors):
        ref.base.pooler = None
    _fill(ref, tensors, layout)


def _settled(name: str, head: str) -> str:
    """A file's name without training wrappers and old spellings, and with the prefix that `head` expects."""
    name = name.removeprefix("module.")
    if name.startswith("bert."):
        name = "nezha." + name[len("bert.") :]
    if head == "model":
        name = name.removeprefix("nezha.")
    elif name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = "nezha." + name
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        name = name[: -len(old)] + new if name.endswith(old) else name
    return name


def _fill(ref: Reference, tensors: dict[str, Tensor], layout: str) -> None:
    wanted = {getattr(n, layout): n for n in names(ref)}
    ties = _TIED if ref.head in ("pretraining", "masked_lm") else ()
    faults = [
        f"tied: {copy} differs from {original}"
        for copy, original in ties
        if copy in tensors and original in tensors and not torch.equal(tensors[copy], tensors[original])
    ]
    known = wanted.keys() | {copy for copy, _ in ties}
    faults += [f"missing: {name}" for name in wanted if name not in tensors]
    faults += [f"unknown: {name}" for name in tensors if name not in known]
    own = dict(ref.named_parameters())
    found = []
    for name in wanted.keys() & tensors.keys():
        turned = wanted[name].turned and layout == "paddle"
        target, tensor = own[wanted[name].own], tensors[name]
        expected = tuple(target.T.shape if turned else target.shape)
        if tuple(tensor.shape) != expected:
            faults.append(f"shape: {name}: expected {expected}, got {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            faults.append(f"dtype: {name}: expected floating point, got {tensor.dtype} (give bfloat16 as float32)")
        found.append((target, tensor.T if turned else tensor))
    if faults:
        raise ValueError(
            f"expected the {len(wanted)} tensors of head {ref.head} in {layout} names, got:\n  "
            + "\n  ".join(sorted(faults))
            + "\nbuild the head and config that these weights were saved from"
        )
    with torch.no_grad():
        for target, tensor in found:
            target.copy_(tensor)


def parameters(ref: Reference) -> dict[str, np.ndarray]:
    """Every parameter under its PaddleNLP name and in Paddle's layout; copies."""
    return _to_paddle(ref, lambda p: p)


def gradients(ref: Reference) -> dict[str, np.ndarray]:
    """The gradient of every parameter, as `parameters`; zeros where none arrived, which is what it then is.

    The tied word table has one gradient, from the look-up and from the decoder.
    """
    return _to_paddle(ref, lambda p: torch.zeros_like(p) if p.grad is None else p.grad)


def _to_paddle(ref: Reference, value: Any) -> dict[str, np.ndarray]:
    own = dict(ref.named_parameters())
    found = {}
    for name in names(ref):
        tensor = value(own[name.own]).detach().cpu()
        found[name.paddle] = (tensor.T if name.turned else tensor).contiguous().clone().numpy()
    return found
