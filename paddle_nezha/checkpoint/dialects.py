"""The name map between PaddleNLP's parameters and other code bases', as data, read in both directions.

A name alone decides which parameter a tensor is and whether it turns; its shape never does, since square
matrices look the same either way.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from .names import RELATIVE_TABLES, bare


class Row(NamedTuple):
    """One module. `{}` stands for the number of the layer."""

    ours: str
    theirs: str
    kind: str
    head: Optional[str] = None  # the only head in which the foreign name is used


class Weight(NamedTuple):
    """One parameter under both names, without prefix. A turned one is [in, out] here and [out, in] there."""

    ours: str
    theirs: str
    turned: bool


# The parameters of a module: suffix, and whether the foreign one is turned.
_KINDS: dict[str, tuple[tuple[str, bool], ...]] = {
    "linear": ((".weight", True), (".bias", False)),
    "paddle linear": ((".weight", False), (".bias", False)),
    "norm": ((".weight", False), (".bias", False)),
    "table": ((".weight", False),),
    "tensor": (("", False),),
}

_LAYER = "encoder.layer.{}."
_HF_ROWS = (
    Row("embeddings.word_embeddings", "embeddings.word_embeddings", "table"),
    Row("embeddings.position_embeddings", "embeddings.position_embeddings", "table"),
    Row("embeddings.token_type_embeddings", "embeddings.token_type_embeddings", "table"),
    Row("embeddings.layer_norm", "embeddings.LayerNorm", "norm"),
    Row(_LAYER + "attention.query", _LAYER + "attention.self.query", "linear"),
    Row(_LAYER + "attention.key", _LAYER + "attention.self.key", "linear"),
    Row(_LAYER + "attention.value", _LAYER + "attention.self.value", "linear"),
    Row(_LAYER + "attention.dense", _LAYER + "attention.output.dense", "linear"),
    Row(_LAYER + "attention.layer_norm", _LAYER + "attention.output.LayerNorm", "norm"),
    Row(_LAYER + "ffn", _LAYER + "intermediate.dense", "linear"),
    Row(_LAYER + "ffn_output", _LAYER + "output.dense", "linear"),
    Row(_LAYER + "layer_norm", _LAYER + "output.LayerNorm", "norm"),
    Row("pooler.dense", "pooler.dense", "linear"),
    Row("cls.predictions.dense", "cls.predictions.transform.dense", "linear"),
    Row("cls.predictions.layer_norm", "cls.predictions.transform.LayerNorm", "norm"),
    Row("cls.predictions.decoder_weight", "cls.predictions.decoder.weight", "tensor"),
    Row("cls.predictions.decoder_bias", "cls.predictions.bias", "tensor"),
    Row("cls.seq_relationship", "cls.seq_relationship", "linear"),
    Row("classifier", "qa_outputs", "linear", head="question_answering"),
    Row("classifier", "classifier", "linear"),
)
_PADDLE_ROWS = (
    *(
        Row(row.ours, row.ours, "paddle linear" if row.kind == "linear" else row.kind)
        for row in _HF_ROWS
        if row.head is None
    ),
    *(Row(_LAYER + table, _LAYER + table, "tensor") for table in RELATIVE_TABLES),  # of this project alone
)

# What files hold beside parameters, and why it is left out.
_DROPPED = (
    (re.compile(r"relative_positions_encoding"), "a position table, which the model computes"),
    (re.compile(r"(^|\.)(position_ids|token_type_ids)$"), "a constant index, no parameter"),
)


@dataclass(frozen=True)
class Dialect:
    """One code base's names.

    Args:
        name: what reports and options call it.
        rows: its modules beside ours.
        spellings: (pattern, replacement) pairs that bring second spellings to the one in `rows`; read only.
    """

    name: str
    rows: tuple[Row, ...]
    spellings: tuple[tuple[str, str], ...] = ()
    _read: dict[str, Weight] = field(init=False, repr=False, compare=False)
    _written: dict[tuple[str, Optional[str]], Weight] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        weights = [
            (row.head, Weight(row.ours + suffix, row.theirs + suffix, turned))
            for row in self.rows
            for suffix, turned in _KINDS[row.kind]
        ]
        object.__setattr__(self, "_read", {weight.theirs: weight for _, weight in weights})
        object.__setattr__(self, "_written", {(weight.ours, head): weight for head, weight in weights})

    def to_ours(self, name: str) -> Optional[Weight]:
        """The parameter that a foreign name means, whatever its prefix; None when it means none."""
        spelled = bare(name)
        for pattern, replacement in self.spellings:
            spelled = re.sub(pattern, replacement, spelled)
        template, number = _template(spelled)
        return _numbered(self._read.get(template), number)

    def to_theirs(self, name: str, head: str) -> Optional[Weight]:
        """The same from our name, as files of that head spell it; None where they have no such parameter."""
        template, number = _template(bare(name))
        weight = self._written.get((template, head)) or self._written.get((template, None))
        return _numbered(weight, number)


PADDLENLP = Dialect("paddlenlp", _PADDLE_ROWS)
HF = Dialect(
    "hf",
    _HF_ROWS,
    spellings=(
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
        (r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias"),
    ),
)
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (PADDLENLP, HF)}


def detect(names: Iterable[str]) -> Dialect:
    """The dialect that knows most of the names; PaddleNLP's where several know as many."""
    listed = list(names)

    def known(dialect: Dialect) -> int:
        return sum(dialect.to_ours(name) is not None for name in listed)

    return max(DIALECTS.values(), key=known)


def dropped(name: str) -> Optional[str]:
    """Why a tensor of this name is left out on purpose, or None."""
    return next((why for pattern, why in _DROPPED if pattern.search(name)), None)


def _template(name: str) -> tuple[str, str]:
    numbers = re.search(r"^encoder\.layer\.(0|[1-9][0-9]*)\.", name)
    if numbers is None:
        return name, ""
    return _LAYER + name[numbers.end() :], numbers.group(1)


def _numbered(weight: Optional[Weight], number: str) -> Optional[Weight]:
    if weight is None or (not number and "{}" in weight.ours):  # a file may spell "{}" itself
        return None
    return weight._replace(ours=weight.ours.replace("{}", number), theirs=weight.theirs.replace("{}", number))
